#include "sim/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/index.h"

namespace foretrain {

namespace {

constexpr std::size_t host = at(Stream::host), context = at(Stream::context);
static_assert(host + 1 == hosted_streams);

// Does computing wait, in each pass that uses it, for what the context stream does? Then that stream is never
// behind it, where a pass begins or ends, and can be left out.
bool context_follows(const BodyCost& b) {
    for (std::size_t s = 0; s < body_streams; ++s)
        if (s != context && b.exit[s][context] > b.exit[s][0]) return false;
    for (std::size_t p = 0; p < body_ports; ++p)
        if (b.exit[context][p] > b.exit[0][p == context ? 0 : p]) return false;
    return true;
}

// Does the body use no stream but compute and host, and begin when both compute and its input are there?
bool is_simple(const BodyCost& b, bool without_context) {
    for (std::size_t s = 0; s < body_streams; ++s)
        for (std::size_t p = 0; p < body_ports; ++p) {
            if (without_context && (s == context || p == context)) continue;
            const bool other = s >= hosted_streams, from_other = p >= hosted_streams && p != input_port;
            const std::int64_t expected = other && p == s ? 0 : BodyCost::never;
            if ((other || from_other) && b.exit[s][p] != expected) return false;
        }
    return b.exit[0][0] == b.exit[0][input_port];
}

// Computing never begins before what the host was at is enqueued (each pass ends with a wait for that), so the
// host's clock matters only where it can do more than the compute stream's.
bool host_matters(const BodyCost& b) {
    for (std::size_t s = 0; s < body_streams; ++s)
        if (s != host && b.exit[s][host] > b.exit[s][0]) return true;
    return false;
}

}  // namespace

void BodyActivity::add(const BodyCost& body, std::size_t place) {
    follows = follows && context_follows(body);
    if (!is_simple(body, false)) alone |= 1U << place;
    if (!is_simple(body, true)) followed |= 1U << place;
    // Where one pass waits for the host, the host's clock counts in all of them.
    if (host_matters(body)) alone |= hosted_activity, followed |= hosted_activity;
}

void BodyActivity::add(const BodyActivity& others) {
    follows = follows && others.follows;
    alone |= others.alone;
    followed |= others.followed;
}

std::uint32_t activity_of(const StageBodies& bodies) {
    BodyActivity all;
    for (const auto& stage : bodies)
        for (std::size_t b = 0; b < stage.size(); ++b) all.add(*stage[b], b % bodies_of_chunk);
    return all.activity();
}

Time longest_message(const TimelineDurations& durations) {
    Time longest;
    for (const auto* some : {&durations.next, &durations.previous})
        for (const Time& time : *some) longest = std::max(longest, time);
    return longest;
}

void check_length(const StageBodies& bodies, const TimelineDurations& durations, std::int64_t microbatches) {
    const Time message = longest_message(durations);
    double slowest = 0;  // stage, all its bodies once
    for (const auto& stage : bodies) {
        double all = 0;
        for (const BodyCost* b : stage) {
            std::int64_t body = 0;
            for (const auto& way : b->exit) body = std::max(body, *std::max_element(way.begin(), way.end()));
            all += static_cast<double>(body) + static_cast<double>(message.value);
        }
        slowest = std::max(slowest, all);
    }
    check_length(slowest, microbatches, static_cast<std::int64_t>(bodies.size()));
}

void check_length(double longest, std::int64_t microbatches, std::int64_t stages) {
    constexpr double most = 9e18;  // ps; what is left of a Time, 2 days, is more than a step's tail takes
    if (longest * static_cast<double>(microbatches + stages) < most) return;
    throw UserError({.file = "plan",
                     .field = "training.global_batch_size",
                     .found = fmt::format("{} microbatches", microbatches),
                     .expected = "a step that takes weeks at most on this cluster",
                     .suggestion = "a smaller batch, or a cluster whose links and kernels are not that slow"});
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

// What computing took from its start to its exit, and of that waited for others.
struct Took {
    Time all, for_host, for_context;
};

void account_body(StageTime& t, bool optimizer, bool forwards, const BodyCost& cost, const Took& took) {
    (optimizer ? t.optimizer : forwards ? t.forward : t.backward) += cost.kernels;
    if (!optimizer) {
        t.gemm += cost.gemm;
        t.attention += cost.attention;
        t.head += cost.head;
    }
    t.recompute += cost.recompute;
    t.tensor_exposed += cost.tensor;
    t.context_exposed += cost.context + took.for_context;
    t.expert_exposed += cost.expert;
    t.host_exposed += took.for_host;
    t.overhead += cost.overhead;
    // Inside a pass the compute stream idles for nothing but that, gathers and reductions; and what those take
    // of its time while it computes is theirs.
    t.data_exposed += took.all - took.for_host - took.for_context - cost.kernels - cost.recompute - cost.overhead -
                      cost.messages - cost.tensor - cost.context - cost.expert;
}

// later + n (later - earlier), part by part
void add_often(StageTime& later, const StageTime& earlier, std::int64_t n) {
    for (Time StageTime::*part :
         {&StageTime::forward, &StageTime::backward, &StageTime::recompute, &StageTime::tensor_exposed,
          &StageTime::context_exposed, &StageTime::expert_exposed, &StageTime::data_exposed, &StageTime::host_exposed,
          &StageTime::overhead, &StageTime::gemm, &StageTime::attention, &StageTime::head})
        later.*part += (later.*part - earlier.*part) * n;
}

}  // namespace

// Runs the operations.
class Timeline::Walk {
public:
    Walk(const Timeline& timeline, const StageBodies& bodies, const TimelineDurations& durations, Time reduce_tied,
         std::vector<std::int64_t>& clocks, std::vector<StageTime>* times)
        : t_(timeline), bodies_(bodies), d_(durations), reduce_tied_(reduce_tied), clocks_(clocks), times_(times) {
        clocks_.resize(t_.clocks_);  // each is set before it is looked at
        clocks_.front() = 0;
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
            // Beyond what is written down the last is run again, after those in its reach have moved back by one.
            if (static_cast<std::size_t>(n) > last) {
                std::int64_t* const end = first + steady.count * steady.clocks;
                std::int64_t* const reached = end - steady.reach * steady.clocks;
                std::copy(reached, end, reached - steady.clocks);
            }
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
                    account_body((*times_)[o.stage], false, o.forwards, cost,
                                 {Time{cost.exit[0][0]}, Time{cost.exit[0][0] - cost.exit_without_host[0]},
                                  Time{cost.exit_without_host[0] - cost.exit_without_either[0]}});
                break;
            }
            case Kind::hosted: take_hosted<accounts>(o); break;
            case Kind::optimizer:
            case Kind::body: take_body<accounts>(o); break;
            case Kind::message: complete(o, (o.forwards ? d_.next : d_.previous)[o.stage]); break;
            case Kind::clear_loss:
                complete(o, d_.clear_loss);
                if constexpr (accounts) (*times_)[o.stage].forward += d_.clear_loss;
                break;
            case Kind::reduce_loss: complete(o, d_.reduce_loss); break;
            case Kind::reduce_tied: complete(o, reduce_tied_); break;
            case Kind::end:
                complete(o, Time{});
                step_ = std::max(step_, clocks_[o.output]);
                if constexpr (accounts) account_end(o);
        }
    }

    void complete(const Operation& o, Time duration) { clocks_[o.output] = latest(o, 0, o.count) + duration.value; }

    // What a body of compute and host alone comes to: two clocks of three.
    template <bool accounts>
    void take_hosted(const Operation& o) {
        const BodyCost& cost = *bodies_[o.stage][o.body];
        const std::uint32_t* const in = t_.inputs_.data() + o.inputs;
        const std::int64_t compute = clocks_[in[0]], hosts = clocks_[in[host]];
        const std::int64_t input = latest(o, hosted_streams, o.count);
        for (std::size_t s = 0; s < hosted_streams; ++s) {
            const auto& way = cost.exit[s];
            const auto from = [&](std::int64_t clock, std::size_t port) {
                return way[port] == BodyCost::never ? 0 : clock + way[port];
            };
            clocks_[o.output + s] = std::max({from(compute, 0), from(hosts, host), from(input, input_port)});
        }
        if constexpr (accounts) {
            std::array<Time, body_ports> entry{};
            entry[0] = Time{compute}, entry[host] = Time{hosts}, entry[input_port] = Time{input};
            const Time exit{clocks_[o.output]}, without_host = foretrain::latest(cost.exit_without_host, entry);
            account_body((*times_)[o.stage], false, o.forwards, cost,
                         {exit - std::max(entry[0], entry[input_port]), exit - without_host,
                          without_host - foretrain::latest(cost.exit_without_either, entry)});
        }
    }

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
            const Time without_host = foretrain::latest(cost.exit_without_host, entry);
            account_body(t, optimizer, o.forwards, cost,
                         {exit[0] - std::max(entry[0], entry[input_port]), exit[0] - without_host,
                          without_host - foretrain::latest(cost.exit_without_either, entry)});
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
                             t.context_exposed - t.expert_exposed - t.data_exposed - t.host_exposed - t.overhead;
    }

    const Timeline& t_;
    const StageBodies& bodies_;
    const TimelineDurations& d_;
    Time reduce_tied_;
    std::vector<std::int64_t>& clocks_;
    std::vector<StageTime>* times_;
    std::int64_t step_ = 0;
};

bool Timeline::serves(std::int64_t microbatches) const {
    const std::int64_t more = microbatches - microbatches_;
    const std::int64_t each = steady_.size() == 1 ? steady_.front().microbatches : 0;
    return more == 0 || (more > 0 && each > 0 && more % each == 0);
}

Time Timeline::step(const StageBodies& bodies, const TimelineDurations& durations, Time reduce_tied,
                    std::int64_t microbatches, std::vector<std::int64_t>& clocks) const {
    return Walk(*this, bodies, durations, reduce_tied, clocks, nullptr).run<false>(microbatches);
}

Estimate Timeline::run(const StageBodies& bodies, const TimelineDurations& durations, Time reduce_tied,
                       std::int64_t microbatches) const {
    FORETRAIN_CHECK(serves(microbatches), "another number of microbatches");
    Estimate e;
    e.times.resize(stages_);
    std::vector<std::int64_t> clocks;
    e.step = Walk(*this, bodies, durations, reduce_tied, clocks, &e.times).run<true>(microbatches);
    return e;
}

}  // namespace foretrain
