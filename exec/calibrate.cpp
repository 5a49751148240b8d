#include "exec/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "exec/calibrate_cases.h"
#include "exec/group_bench.h"
#include "exec/kernel_bench.h"
#include "exec/runtime.h"

namespace foretrain {

namespace {

constexpr std::int64_t streamed = 24 * MiB;  // of a copy that measures memory: beyond the caches

// From this share of the processors' time on, other programs disturb: waits become theirs.
constexpr double busy = 0.1;

// A program of one stage that calls one GEMM: what the engine holds besides its arenas when it has
// come to work.
Program tiny_program(int ranks) {
    constexpr std::int64_t side = 256;
    StageProgram stage;
    Buffer b{.name = "x", .region = Region::transients, .type = DType::fp32, .elements = side * side};
    for (const char* name : {"a", "b", "c"}) {
        b.name = name;
        stage.buffers.push_back(b);
        b.offset += b.bytes();
    }
    stage.region_bytes[static_cast<std::size_t>(Region::transients)] = b.offset;
    stage.kernels.push_back(GemmArgs{.m = side, .n = side, .k = side, .transpose_b = true});
    Instruction gemm{.kind = InstructionKind::kernel, .kernel = 0};
    for (const int operand : {0, 1, 2}) gemm.add_operand(operand);
    stage.instructions = {gemm, {.kind = InstructionKind::step_end}};
    return {.grid = {.tensor = 1, .context = 1, .data = ranks, .pipeline = 1},
            .micro_batch_size = 1,
            .sequence_length = 1,
            .microbatches = 1,
            .vocabulary = 1,
            .type = DType::fp32,
            .stages = {stage}};
}

Bytes resident_without_arenas(const KernelTable& kernels, int ranks) {
    const Program program = tiny_program(ranks);
    const RunResult result = run_program(program, {.kernels = &kernels, .steps = 2});
    return result.trace.peak_resident - program.stages[0].arena() * ranks;
}

Bytes physical_memory() { return Bytes{sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)}; }

void measure_kernels(KernelBench& bench, Measurements& out) {
    for (const DType type : {DType::fp32, DType::fp64})
        for (const KernelCase& c : gemm_cases(type)) out.kernels.push_back({c.args, bench.measure(c)});
    // The constants of the others are not kept by element type, and fp32 is what one trains in.
    for (const KernelCase& c : other_cases(DType::fp32)) out.kernels.push_back({c.args, bench.measure(c)});
}

void measure_traffic(KernelBench& bench, Measurements& out) {
    for (const std::int64_t bytes : {1 << 12, 1 << 16, 1 << 18, 1 << 20}) {
        out.traffic.push_back({Bytes{bytes}, bench.measure_fill(Bytes{bytes})});
        out.traffic.push_back({Bytes{2 * bytes}, bench.measure_copy(Bytes{bytes})});
    }
    out.memory = {2.0 * streamed / (bench.measure_copy(Bytes{streamed}) * 1e-6)};
}

void measure_groups(const KernelTable& kernels, double seconds, Measurements& out) {
    for (const std::int64_t bytes : {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24}) {
        for (const InstructionKind kind :
             {InstructionKind::all_reduce, InstructionKind::all_gather, InstructionKind::reduce_scatter})
            out.collectives.push_back(
                {kind, 2, Bytes{bytes}, measure_collective(kernels, kind, Bytes{bytes}, seconds)});
        out.collectives.push_back(
            {InstructionKind::send, 2, Bytes{bytes}, measure_message(kernels, Bytes{bytes}, seconds)});
    }
}

}  // namespace

Measurements measure_machine(const KernelTable& kernels, const MeasureOptions& options) {
    const auto say = [&](const std::string& line) {
        if (options.progress) options.progress(line);
    };
    Measurements out;
    out.cores = options.cores;
    out.host_memory = physical_memory();
    out.resident = resident_without_arenas(kernels, options.cores);  // first: it asks for the peak so far
    {
        KernelBench bench(kernels, options);
        say(fmt::format("measuring kernels on {} cores at once", options.cores));
        measure_kernels(bench, out);
        say(fmt::format("measured {} kernel calls; measuring memory", out.kernels.size()));
        measure_traffic(bench, out);
        if (bench.taken_by_others() > busy)
            say(
                fmt::format("other programs had the processors {:.0f} % of the time: communication will look slower "
                            "than it is; calibrate again when the machine is idle",
                            100 * bench.taken_by_others()));
    }
    say("measuring communication between two ranks");
    measure_groups(kernels, options.seconds_per_case, out);
    return out;
}

}  // namespace foretrain
