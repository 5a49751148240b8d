#include "sim/estimate.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "sim/live_peak.h"

namespace foretrain {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Completion of a chunk-level instruction, by stream; -1 while it waits for the other side. What is
// not a body completes at once on all.
struct Done {
    std::array<std::int64_t, body_streams> clock{-1, -1, -1};
    bool known() const { return clock[0] >= 0; }
    std::int64_t of(Stream stream) const {
        const auto s = static_cast<std::size_t>(stream);
        return clock[s < body_streams ? s : 0];
    }
};

// One stage's walk through its chunk-level instructions.
struct StageWalk {
    std::vector<Instruction> code;
    std::vector<Done> done;
    std::size_t next = 0;
    std::array<std::int32_t, stream_count> latest{};  // last instruction of each stream, -1: none
    StageTime time;
    std::int64_t end = 0;
};

// The two sides of messages from one stage to another, and of the reductions between first and last
// stage: the n-th of one side meets the n-th of the other.
struct Channel {
    struct Post {
        std::size_t stage = 0;
        std::size_t instruction = 0;
        std::int64_t ready = 0;
    };
    std::vector<Post> waiting;  // all of one side
    std::size_t met = 0;
};

class Fold {
public:
    Fold(const Skeleton& skeleton, const CostModel& cost, const std::vector<std::vector<BodyCost>>& bodies)
        : skeleton_(skeleton), cost_(cost), bodies_(bodies), walks_(skeleton.stages.size()) {
        for (std::size_t s = 0; s < walks_.size(); ++s) {
            unroll_stage(skeleton, s, walks_[s].code);
            walks_[s].done.resize(walks_[s].code.size());
            walks_[s].latest.fill(-1);
        }
    }

    Estimate run() {
        for (bool progress = true; progress;) {
            progress = false;
            for (std::size_t s = 0; s < walks_.size(); ++s) progress |= advance(s);
        }
        Estimate out;
        for (StageWalk& w : walks_) {
            FORETRAIN_CHECK(w.next == w.code.size() && w.done.back().known(), "the schedule deadlocks");
            out.step = std::max(out.step, Time{w.end});
            StageTime& t = w.time;
            t.step = Time{w.end};
            t.pipeline_exposed =
                t.step - t.forward - t.backward - t.recompute - t.optimizer - t.tensor_exposed - t.data_exposed;
            out.times.push_back(t);
        }
        return out;
    }

private:
    bool advance(std::size_t s) {
        StageWalk& w = walks_[s];
        const std::size_t before = w.next;
        while (w.next < w.code.size() && take(s, w, w.next)) ++w.next;
        return w.next != before;
    }

    // The clock of a stream of this stage, or -1 if its last instruction is still open.
    static std::int64_t clock(const StageWalk& w, std::size_t stream) {
        const std::int32_t latest = w.latest[stream];
        return latest < 0 ? 0 : w.done[at(latest)].of(static_cast<Stream>(stream));
    }

    // When all that the instruction waits for is complete, or -1.
    static std::int64_t awaited(const StageWalk& w, const Instruction& i) {
        std::int64_t ready = 0;
        for (int n = 0; n < i.waits; ++n) {
            const Wait& wait = i.wait[at(n)];
            const Done& d = w.done[at(wait.instruction)];
            if (!d.known()) return -1;
            ready = std::max(ready, d.of(wait.stream));
        }
        return ready;
    }

    bool take(std::size_t s, StageWalk& w, std::size_t n) {
        const Instruction& i = w.code[n];
        const std::int64_t ready = awaited(w, i);
        if (ready < 0) return false;
        if (i.body >= 0) return take_body(s, w, n, ready);
        const auto stream = static_cast<std::size_t>(i.stream);
        const std::int64_t free = clock(w, stream);
        if (free < 0) return false;
        w.latest[stream] = static_cast<std::int32_t>(n);
        const std::int64_t start = std::max(free, ready);
        if (i.kind == InstructionKind::send || i.kind == InstructionKind::recv || i.axis == Axis::embedding) {
            meet(s, n, start);
            return true;
        }
        const Time time = cost_.instruction(i, skeleton_.stages[s].stage->kernels, static_cast<std::int64_t>(s));
        w.done[n].clock.fill(start + time.value);
        if (i.kind == InstructionKind::fill) w.time.forward += time;
        if (i.kind == InstructionKind::step_end) end_step(w, i, free, start);
        return true;
    }

    void end_step(StageWalk& w, const Instruction& i, std::int64_t free, std::int64_t start) const {
        w.end = start;
        // What is left to wait for after the optimizer's own kernels: gathers of weights, or messages.
        std::int64_t gathers = free;
        for (int n = 0; n < i.waits; ++n)
            if (const Wait& wait = i.wait[at(n)]; wait.stream == Stream::gather || wait.stream == Stream::reduce)
                gathers = std::max(gathers, w.done[at(wait.instruction)].of(wait.stream));
        w.time.data_exposed += Time{gathers - free};
    }

    bool take_body(std::size_t s, StageWalk& w, std::size_t n, std::int64_t input) {
        const Instruction& i = w.code[n];
        std::array<Time, body_ports> entry;
        for (std::size_t stream = 0; stream < body_streams; ++stream) {
            const std::int64_t c = clock(w, stream);
            if (c < 0) return false;
            entry[stream] = Time{c};
        }
        entry[body_streams] = Time{input};
        const BodyCost& cost = bodies_[s][at(i.body)];
        const auto out = cost.apply(entry);
        for (std::size_t stream = 0; stream < body_streams; ++stream) {
            w.done[n].clock[stream] = out[stream].value;
            w.latest[stream] = static_cast<std::int32_t>(n);
        }
        account(w.time, i, cost, entry, out[0]);
        if (i.kind == InstructionKind::optimizer_step)
            w.time.data_exposed += std::max(Time{}, reduced(w, i) - entry[0]);
        return true;
    }

    // When the gradients that the optimizer step waits for are reduced, but for a tied embedding's:
    // waiting for that is waiting for another stage.
    static Time reduced(const StageWalk& w, const Instruction& i) {
        Time latest;
        for (int n = 0; n < i.waits; ++n)
            if (const Wait& wait = i.wait[at(n)]; w.code[at(wait.instruction)].axis != Axis::embedding)
                latest = std::max(latest, Time{w.done[at(wait.instruction)].of(wait.stream)});
        return latest;
    }

    static void account(StageTime& t, const Instruction& i, const BodyCost& cost,
                        const std::array<Time, body_ports>& entry, Time exit) {
        const bool step = i.kind == InstructionKind::optimizer_step;
        (step ? t.optimizer : i.kind == InstructionKind::forward_chunk ? t.forward : t.backward) += cost.kernels;
        if (!step) {
            t.gemm += cost.gemm;
            t.attention += cost.attention;
            t.head += cost.head;
        }
        t.recompute += cost.recompute;
        t.tensor_exposed += cost.tensor;
        // Inside a pass the compute stream idles for nothing but gathers and reductions.
        const Time start = std::max(entry[0], entry[body_streams]);
        t.data_exposed += exit - start - cost.kernels - cost.recompute - cost.tensor;
    }

    void meet(std::size_t s, std::size_t n, std::int64_t ready) {
        const Instruction& i = walks_[s].code[n];
        const bool sends = i.kind == InstructionKind::send;
        const auto self = static_cast<std::int32_t>(s);
        const std::pair<std::int32_t, std::int32_t> key = i.axis == Axis::embedding ? std::pair{-1, -1}
                                                          : sends                   ? std::pair{self, i.peer}
                                                                                    : std::pair{i.peer, self};
        Channel& channel = channels_[key];
        if (channel.met == channel.waiting.size() || channel.waiting[channel.met].stage == s) {
            channel.waiting.push_back({s, n, ready});
            return;
        }
        const Channel::Post& other = channel.waiting[channel.met++];
        const Time time = cost_.instruction(i, skeleton_.stages[s].stage->kernels, self);
        const std::int64_t end = std::max(ready, other.ready) + time.value;
        walks_[s].done[n].clock.fill(end);
        walks_[other.stage].done[other.instruction].clock.fill(end);
    }

    const Skeleton& skeleton_;
    const CostModel& cost_;
    const std::vector<std::vector<BodyCost>>& bodies_;
    std::vector<StageWalk> walks_;
    std::map<std::pair<std::int32_t, std::int32_t>, Channel> channels_;
};

}  // namespace

Estimator::Estimator(const Skeleton& skeleton, const CostModel& cost) : skeleton_(skeleton), cost_(cost) {
    const RankGrid grid = skeleton.plan.grid();
    std::map<const Stage*, std::size_t> known;
    for (std::size_t s = 0; s < skeleton.stages.size(); ++s) {
        const Stage& stage = *skeleton.stages[s].stage;
        const auto [same, fresh] = known.try_emplace(&stage, s);
        if (!fresh) {
            bodies_.push_back(bodies_[same->second]);
            continue;
        }
        bodies_.push_back(body_costs(stage, static_cast<std::int64_t>(s), grid, cost));
    }
}

Estimate Estimator::estimate() const { return Fold(skeleton_, cost_, bodies_).run(); }

Estimate Estimator::estimate_with_free_messages() const {
    const CostModel free = cost_.with_free_messages();
    return Fold(skeleton_, free, bodies_).run();
}

Estimator::StageBusy Estimator::busy(std::size_t s) const {
    const Stage& stage = *skeleton_.stages[s].stage;
    const auto of = [&](std::int32_t body) { return bodies_[s][at(body)].busy; };
    return {of(stage.forward), of(stage.backward), of(stage.backward_last), of(stage.optimizer)};
}

// A stage's stream is busy for all its microbatches. Its first forward pass starts only after those
// of the stages before it, and after its last backward pass theirs remain.
Time Estimator::bound() const {
    Time fill;  // of the stages before: forward, backward and two messages
    Time best;
    const Time first_step = busy(0).optimizer[0];
    for (std::size_t s = 0; s < bodies_.size(); ++s) {
        const StageBusy b = busy(s);
        for (std::size_t stream = 0; stream < body_streams; ++stream) {
            const Time passes = (b.forward[stream] + b.backward[stream]) * (skeleton_.microbatches - 1) +
                                b.forward[stream] + b.backward_last[stream];
            // Only the compute stream is bound to the order of the passes.
            if (stream == 0) best = std::max(best, fill + passes + (s == 0 ? first_step : Time{}));
            best = std::max(best, passes + b.optimizer[stream]);
        }
        if (s + 1 < bodies_.size()) {
            const Bytes message{skeleton_.stages[s].stage->boundary_elements * size_of(skeleton_.context.types.weight)};
            const auto here = static_cast<std::int64_t>(s);
            fill += b.forward[0] + std::min(b.backward[0], b.backward_last[0]) +
                    cost_.message(message, here, here + 1) + cost_.message(message, here + 1, here);
        }
    }
    return best;
}

std::vector<StageMemory> Estimator::memory() const {
    std::vector<StageMemory> out;
    std::vector<Instruction> code;
    for (std::size_t s = 0; s < skeleton_.stages.size(); ++s) {
        const StageSkeleton& stage = skeleton_.stages[s];
        const auto region = [&](Region r) { return stage.region_bytes[static_cast<std::size_t>(r)]; };
        StageMemory m;
        m.weights = region(Region::weights);
        m.gradients = region(Region::gradients);
        m.optimizer = region(Region::optimizer);
        m.activations = region(Region::activations);
        m.workspace = region(Region::transients);
        m.communication = region(Region::communication) + region(Region::gathered) + region(Region::staging);
        m.live_peak = live_peak(skeleton_, s, code).bytes + m.weights + m.gradients + m.optimizer +
                      region(Region::gathered) + region(Region::staging);
        out.push_back(m);
    }
    return out;
}

std::vector<WireCount> Estimator::wire() const {
    std::vector<WireCount> out;
    std::vector<Instruction> code;
    const RankGrid grid = skeleton_.plan.grid();
    for (std::size_t s = 0; s < skeleton_.stages.size(); ++s) {
        WireCount count;
        unroll_stage(skeleton_, s, code);
        for (const Instruction& i : code) {
            if (i.body >= 0)
                for (const auto& [key, bytes] : bodies_[s][at(i.body)].wire) count[key] += bytes;
            else if (const Bytes bytes = wire_bytes(i, grid.size(i.axis), 0); bytes.value > 0)
                count[wire_key(i.axis, i.kind)] += bytes;
        }
        out.push_back(std::move(count));
    }
    return out;
}

double Estimator::executed(Flops BodyCost::*kind) const {
    double total = 0;
    for (std::size_t s = 0; s < bodies_.size(); ++s) {
        const Stage& stage = *skeleton_.stages[s].stage;
        total +=
            static_cast<double>((bodies_[s][at(stage.forward)].*kind + bodies_[s][at(stage.backward)].*kind).value);
    }
    const RankGrid grid = skeleton_.plan.grid();
    return total * static_cast<double>(skeleton_.microbatches * grid.tensor * grid.data);
}

}  // namespace foretrain
