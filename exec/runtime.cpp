#include "exec/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "exec/cpu_device.h"
#include "exec/rank_run.h"
#include "exec/thread_communicator.h"
#include "plan/program/text.h"

namespace foretrain {

namespace {

// What the rank threads share. A rank writes its own entries; rank 0 reads all of them between the
// barrier that ends a step and the one that begins the next.
struct Shared {
    const Program& program;
    const RunOptions& options;
    ThreadWorld& world;
    StateCollector state;
    std::vector<RankTrace> ranks;
    std::vector<std::vector<RankStep>> steps;  // by rank
};

std::string what_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "unknown error";
    }
}

const StageProgram& stage_of(const Program& program, std::int64_t rank) {
    return program.stages[static_cast<std::size_t>(program.grid.coordinate(rank, Axis::pipeline))];
}

void report(const Shared& shared, std::int64_t step) {
    if (!shared.options.on_step) return;
    StepReport r{.step = step, .loss = 0, .duration = {}};
    for (std::size_t rank = 0; rank < shared.steps.size(); ++rank) {
        const RankStep& s = shared.steps[rank].back();
        r.duration = std::max(r.duration, s.duration);
        // Every rank of the last stage has the same loss, already summed over the replicas.
        if (stage_of(shared.program, static_cast<std::int64_t>(rank)).loss >= 0) r.loss = s.loss;
    }
    shared.options.on_step(r);
}

void run_steps(Shared& shared, std::int64_t rank, Device& device) {
    const auto me = static_cast<std::size_t>(rank);
    RankRun run(shared.program, rank, shared.options.seed, device, shared.world);
    WireCount wire;
    for (std::int64_t step = 0; step < shared.options.steps; ++step) {
        shared.world.barrier(rank);  // all begin together, so that their clocks compare
        shared.steps[me].push_back(run.step(step));
        shared.world.barrier(rank);  // nobody copies any more: counts and results are complete
        if (step == 0) wire = run.wire();
        if (!shared.options.keep_spans) shared.steps[me].back().spans = {};
        if (rank == 0) report(shared, step);
    }
    shared.ranks[me] = run.trace();
    shared.ranks[me].wire = std::move(wire);
    if (shared.options.keep_state) run.add_state(shared.state);
}

void run_rank(Shared& shared, std::int64_t rank, CpuDevice& device) {
    ThreadWorld& world = shared.world;
    device.on_error([&shared, &world, rank](std::int32_t instruction, const std::exception_ptr& error) {
        world.abort(rank, fmt::format("{}: {}", describe(stage_of(shared.program, rank), instruction), what_of(error)));
    });
    try {
        run_steps(shared, rank, device);
    } catch (...) {
        world.abort(rank, what_of(std::current_exception()));
    }
}

}  // namespace

RunResult run_program(const Program& program, const RunOptions& options) {
    FORETRAIN_CHECK(options.kernels != nullptr, "a run without kernels");
    const std::int64_t count = program.grid.world();
    ThreadWorld world(count, options.watchdog, [&](std::int64_t rank, std::int32_t instruction) {
        return describe(stage_of(program, rank), instruction);
    });
    Shared shared{program, options, world, {}, {}, {}};
    shared.ranks.resize(static_cast<std::size_t>(count));
    shared.steps.resize(static_cast<std::size_t>(count));
    // All devices live until every rank has ended: others read a rank's arena until they know.
    std::vector<std::unique_ptr<CpuDevice>> devices;
    for (std::int64_t r = 0; r < count; ++r)
        devices.push_back(std::make_unique<CpuDevice>(*options.kernels, &world.progress(r)));
    // One rank alone is best left where the system puts it.
    if (options.bind_ranks && count > 1 && count <= static_cast<std::int64_t>(std::thread::hardware_concurrency()))
        for (std::int64_t r = 0; r < count; ++r) devices[static_cast<std::size_t>(r)]->bind_compute(r);
    std::vector<std::thread> threads;
    for (std::int64_t r = 0; r < count; ++r)
        threads.emplace_back(
            [&shared, r, &device = *devices[static_cast<std::size_t>(r)]] { run_rank(shared, r, device); });
    for (std::thread& t : threads) t.join();
    if (const std::string failure = world.failure(); !failure.empty()) throw RunError(failure);

    RunResult result;
    result.trace.kind = "measured";
    result.trace.program = fingerprint(program);
    result.trace.peak_resident = peak_resident();
    result.trace.ranks = std::move(shared.ranks);
    for (std::size_t r = 0; r < result.trace.ranks.size(); ++r)
        result.trace.ranks[r].steps = std::move(shared.steps[r]);
    if (options.keep_state) result.state = shared.state.take();
    return result;
}

Bytes peak_resident() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) return Bytes{std::stoll(line.substr(6)) * 1024};  // given in kB
    }
    return Bytes{};
}

}  // namespace foretrain
