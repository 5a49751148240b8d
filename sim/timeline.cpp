#include "sim/timeline.h"

#include <algorithm>

#include "base/error.h"

namespace foretrain {

namespace {

// Is the body but a delay of the compute stream, from whichever of its clock and the input is later?
bool only_delays(const BodyCost& b) {
    for (std::size_t s = 0; s < body_streams; ++s)
        for (std::size_t p = 0; p < body_ports; ++p) {
            const std::int64_t expected = s == 0 && (p == 0 || p == body_streams) ? b.exit[0][0]
                                          : s != 0 && p == s                      ? 0
                                                                                  : BodyCost::never;
            if (b.exit[s][p] != expected) return false;
        }
    return true;
}

}  // namespace

std::uint32_t activity_of(const StageBodies& bodies) {
    std::uint32_t activity = 0;
    for (const auto& stage : bodies)
        for (std::size_t b = 0; b < stage.size(); ++b)
            if (!only_delays(*stage[b])) activity |= 1U << (b % bodies_of_chunk);
    return activity;
}

TimelineDurations timeline_durations(const CostModel& cost, std::int64_t stages, Bytes message) {
    TimelineDurations d;
    for (std::int64_t s = 0; s < stages && stages > 1; ++s) {
        d.next.push_back(cost.message(message, s, (s + 1) % stages));
        d.previous.push_back(cost.message(message, s, (s + stages - 1) % stages));
    }
    d.clear_loss = cost.memory_traffic(KernelKind::cast, Bytes{size_of(DType::fp64)});
    d.reduce_loss = cost.collective(InstructionKind::all_reduce, Axis::replica, Bytes{size_of(DType::fp64)});
    return d;
}

namespace {

// `took` from the compute stream's start to its exit, of which it waited so long for the context stream.
void account_body(StageTime& t, bool optimizer, bool forwards, const BodyCost& cost, Time took, Time for_context) {
    (optimizer ? t.optimizer : forwards ? t.forward : t.backward) += cost.kernels;
    if (!optimizer) {
        t.gemm += cost.gemm;
        t.attention += cost.attention;
        t.head += cost.head;
    }
    t.recompute += cost.recompute;
    t.tensor_exposed += cost.tensor;
    t.context_exposed += cost.context + for_context;
    // Inside a pass the compute stream idles for nothing but that, gathers and reductions.
    t.data_exposed += took - for_context - cost.kernels - cost.recompute - cost.tensor - cost.context;
}

// later + n (later - earlier), part by part
void add_often(StageTime& later, const StageTime& earlier, std::int64_t n) {
    for (Time StageTime::*part : {&StageTime::forward, &StageTime::backward, &StageTime::recompute,
                                  &StageTime::tensor_exposed, &StageTime::context_exposed, &StageTime::data_exposed,
                                  &StageTime::gemm, &StageTime::attention, &StageTime::head})
        later.*part += (later.*part - earlier.*part) * n;
}

}  // namespace

// Runs the operations.
class Timeline::Walk {
public:
    Walk(const Timeline& timeline, const StageBodies& bodies, const TimelineDurations& durations,
         std::vector<std::int64_t>& clocks, std::vector<StageTime>* times)
        : t_(timeline), bodies_(bodies), d_(durations), clocks_(clocks), times_(times) {
        clocks_.assign(t_.clocks_, 0);
    }

    template <bool accounts>
    Time run(std::int64_t microbatches) {
        std::size_t next = 0;
        for (const Steady& steady : t_.steady_) {
            take<accounts>(next, steady.begin);
            const std::int64_t more = microbatches - t_.microbatches_;
            repeat<accounts>(steady, more == 0 ? 0 : more / steady.microbatches);
            next = steady.end;
        }
        take<accounts>(next, t_.operations_.size());
        return Time{step_};
    }

private:
    // The periods of a steady part that are written down, and `more` of the last.
    template <bool accounts>
    void repeat(const Steady& steady, std::int64_t more) {
        const std::size_t operations = (steady.end - steady.begin) / steady.count, last = steady.count - 1;
        std::int64_t* const first = clocks_.data() + steady.first_clock;
        const std::int64_t periods = static_cast<std::int64_t>(steady.count) + more;
        std::size_t alike = 0;  // periods in a row that are the one before plus `shift`
        std::int64_t shift = -1;
        std::vector<StageTime> before;
        for (std::int64_t n = 0; n < periods; ++n) {
            const std::size_t place = std::min(static_cast<std::size_t>(n), last);
            // Beyond what is written down the last is run again, after all periods have moved back by one.
            if (static_cast<std::size_t>(n) > last)
                std::copy(first + steady.clocks, first + steady.count * steady.clocks, first);
            if constexpr (accounts) before = *times_;
            take<accounts>(steady.begin + place * operations, steady.begin + (place + 1) * operations);
            if (place == 0) continue;
            const std::int64_t by = constant_shift(first + place * steady.clocks, steady.clocks);
            alike = by < 0 ? 0 : by == shift ? alike + 1 : 1;
            shift = by;
            if (alike < steady.reach) continue;
            const std::int64_t left = periods - 1 - n;
            if constexpr (accounts)
                for (std::size_t s = 0; s < times_->size(); ++s) add_often((*times_)[s], before[s], left);
            finish(steady, place, left, shift);
            return;
        }
    }

    // By how much every clock of a period is later than in the one before, or -1 if not all by the same.
    static std::int64_t constant_shift(const std::int64_t* clocks, std::uint32_t count) {
        const std::int64_t shift = clocks[0] - clocks[-static_cast<std::ptrdiff_t>(count)];
        for (std::uint32_t c = 1; c < count; ++c)
            if (clocks[c] - clocks[static_cast<std::ptrdiff_t>(c) - static_cast<std::ptrdiff_t>(count)] != shift)
                return -1;
        return shift;
    }

    // The clocks of the last periods, `left` of which come after the one at `place`.
    void finish(const Steady& steady, std::size_t place, std::int64_t left, std::int64_t shift) {
        std::int64_t* const first = clocks_.data() + steady.first_clock;
        const std::vector<std::int64_t> now(first + place * steady.clocks, first + (place + 1) * steady.clocks);
        for (std::size_t back = 0; back < steady.reach; ++back) {
            std::int64_t* const period = first + (steady.count - 1 - back) * steady.clocks;
            const std::int64_t later = (left - static_cast<std::int64_t>(back)) * shift;
            for (std::size_t c = 0; c < now.size(); ++c) period[c] = now[c] + later;
        }
    }

    template <bool accounts>
    void take(std::size_t begin, std::size_t end) {
        for (std::size_t n = begin; n < end; ++n) take<accounts>(t_.operations_[n]);
    }

    // The latest of an operation's inputs [from, to).
    std::int64_t latest(const Operation& o, std::size_t from, std::size_t to) const {
        const std::uint32_t* const in = t_.inputs_.data() + o.inputs;
        std::int64_t t = 0;
        for (std::size_t k = from; k < to; ++k) t = std::max(t, clocks_[in[k]]);
        return t;
    }

    template <bool accounts>
    void take(const Operation& o) {
        if constexpr (accounts)
            if (o.reduction_last) account_reduction(o);
        switch (o.kind) {
            case Kind::delay: {
                const BodyCost& cost = *bodies_[o.stage][o.body];
                clocks_[o.output] = latest(o, 0, o.count) + cost.exit[0][0];
                if constexpr (accounts)
                    account_body((*times_)[o.stage], false, o.forwards, cost, Time{cost.exit[0][0]}, Time{});
                break;
            }
            case Kind::optimizer:
            case Kind::body: take_body<accounts>(o); break;
            case Kind::message: complete(o, (o.forwards ? d_.next : d_.previous)[o.stage]); break;
            case Kind::clear_loss:
                complete(o, d_.clear_loss);
                if constexpr (accounts) (*times_)[o.stage].forward += d_.clear_loss;
                break;
            case Kind::reduce_loss: complete(o, d_.reduce_loss); break;
            case Kind::reduce_tied: complete(o, d_.reduce_tied); break;
            case Kind::end:
                complete(o, Time{});
                step_ = std::max(step_, clocks_[o.output]);
                if constexpr (accounts) account_end(o);
        }
    }

    void complete(const Operation& o, Time duration) { clocks_[o.output] = latest(o, 0, o.count) + duration.value; }

    template <bool accounts>
    void take_body(const Operation& o) {
        const BodyCost& cost = *bodies_[o.stage][o.body];
        const std::uint32_t* const in = t_.inputs_.data() + o.inputs;
        std::array<Time, body_ports> entry;
        for (std::size_t s = 0; s < body_streams; ++s) entry[s] = Time{clocks_[in[s]]};
        entry[input_port] = Time{latest(o, body_streams, o.count)};
        const auto exit = cost.apply(entry);
        for (std::size_t s = 0; s < body_streams; ++s) clocks_[o.output + s] = exit[s].value;
        if constexpr (accounts) {
            const bool optimizer = o.kind == Kind::optimizer;
            StageTime& t = (*times_)[o.stage];
            account_body(t, optimizer, o.forwards, cost, exit[0] - std::max(entry[0], entry[input_port]),
                         exit[0] - cost.computed_without_context(entry));
            // It waits for this stage's gradients, and last for those of a tied embedding.
            if (optimizer) t.data_exposed += std::max(Time{}, Time{latest(o, body_streams, o.count - 1U)} - entry[0]);
        }
    }

    // By how much the reductions are later than all else that the pass waits for.
    void account_reduction(const Operation& o) {
        const std::size_t last = o.count - 1U;
        const std::int64_t otherwise = std::max(latest(o, 0, 1), latest(o, o.streams, last));
        (*times_)[o.stage].data_exposed += Time{std::max<std::int64_t>(0, latest(o, last, o.count) - otherwise)};
    }

    void account_end(const Operation& o) {
        StageTime& t = (*times_)[o.stage];
        t.step = Time{clocks_[o.output]};
        // What is left to wait for after the optimizer's own kernels: gathers, or messages.
        t.data_exposed += Time{latest(o, 0, o.streams) - latest(o, 0, 1)};
        t.pipeline_exposed = t.step - t.forward - t.backward - t.recompute - t.optimizer - t.tensor_exposed -
                             t.context_exposed - t.data_exposed;
    }

    const Timeline& t_;
    const StageBodies& bodies_;
    const TimelineDurations& d_;
    std::vector<std::int64_t>& clocks_;
    std::vector<StageTime>* times_;
    std::int64_t step_ = 0;
};

bool Timeline::serves(std::int64_t microbatches) const {
    const std::int64_t more = microbatches - microbatches_;
    const std::int64_t each = steady_.size() == 1 ? steady_.front().microbatches : 0;
    return more == 0 || (more > 0 && each > 0 && more % each == 0);
}

Time Timeline::step(const StageBodies& bodies, const TimelineDurations& durations, std::int64_t microbatches,
                    std::vector<std::int64_t>& clocks) const {
    return Walk(*this, bodies, durations, clocks, nullptr).run<false>(microbatches);
}

Estimate Timeline::run(const StageBodies& bodies, const TimelineDurations& durations, std::int64_t microbatches) const {
    FORETRAIN_CHECK(serves(microbatches), "another number of microbatches");
    Estimate e;
    e.times.resize(stages_);
    std::vector<std::int64_t> clocks;
    e.step = Walk(*this, bodies, durations, clocks, &e.times).run<true>(microbatches);
    return e;
}

}  // namespace foretrain
