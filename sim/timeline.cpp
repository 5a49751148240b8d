#include "sim/timeline.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "plan/program/partners.h"

namespace foretrain {

namespace {

using Clock = std::uint32_t;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr std::size_t host = static_cast<std::size_t>(Stream::host);
constexpr std::size_t hosted_streams = 2;  // compute and host
static_assert(host == 1);

// Does the body use no stream but compute and host, and begin when both compute and its input are there?
bool is_simple(const BodyCost& b) {
    for (std::size_t s = 0; s < body_streams; ++s)
        for (std::size_t p = 0; p < body_ports; ++p) {
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

constexpr std::size_t bodies_of_chunk = 4;
constexpr std::uint32_t hosted_activity = ((1U << bodies_of_chunk) - 1) << bodies_of_chunk;

}  // namespace

std::uint32_t activity_of(const StageBodies& bodies) {
    std::uint32_t activity = 0;
    for (const auto& stage : bodies)
        for (std::size_t b = 0; b < stage.size(); ++b)
            if (!is_simple(*stage[b])) activity |= 1U << (b % bodies_of_chunk);
    // Where one pass waits for the host, the host's clock counts in all of them.
    for (const auto& stage : bodies)
        if (std::any_of(stage.begin(), stage.end(), [](const BodyCost* b) { return host_matters(*b); }))
            return activity | hosted_activity;
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

// Takes every stage's instructions as far as what they wait for is known, and writes them down.
class TimelineBuilder {
public:
    TimelineBuilder(const Skeleton& skeleton, std::uint32_t activity, Timeline& out)
        : activity_(activity), out_(out), walks_(skeleton.stages.size()) {
        FORETRAIN_CHECK(walks_.size() < (1U << 16), "more stages than a timeline counts");
        for (std::size_t s = 0; s < walks_.size(); ++s) {
            unroll_stage(skeleton, s, walks_[s].code);
            walks_[s].done.resize(walks_[s].code.size());
        }
        out_.stages_ = walks_.size();
        out_.microbatches_ = skeleton.microbatches;
    }

    void run() {
        for (bool progress = true; progress;) {
            progress = false;
            for (std::size_t s = 0; s < walks_.size(); ++s) progress |= advance(s);
        }
        for (const Walk& w : walks_) FORETRAIN_CHECK(w.next == w.code.size(), "the schedule deadlocks");
        sort_by_rounds();
        find_steady();
    }

private:
    using Operation = Timeline::Operation;
    using Kind = Timeline::Kind;
    static constexpr Clock open = UINT32_MAX;  // of a message whose other side is not there yet

    // The clocks of an instruction's end, by the body's streams; what is not a body has one.
    using Clocks = std::array<Clock, body_streams>;

    struct Walk {
        std::vector<Instruction> code;
        std::vector<Clocks> done;
        std::size_t next = 0;
        std::array<Clock, stream_count> streams{};    // where each stands
        std::array<std::int32_t, stream_count> last;  // its last, if a message; else -1
        Walk() { last.fill(-1); }
    };

    // The two sides of a channel (plan/program/partners.h), and of the reductions between first and
    // last stage: the n-th of one side meets the n-th of the other.
    struct Post {
        std::size_t stage = 0;
        std::size_t instruction = 0;
        std::vector<Clock> inputs;
    };
    struct Line {
        std::vector<Post> waiting;  // all of one side
        std::size_t met = 0;
    };

    bool advance(std::size_t s) {
        Walk& w = walks_[s];
        const std::size_t before = w.next;
        while (w.next < w.code.size() && take(s, w, w.next)) ++w.next;
        return w.next != before;
    }

    static Clock of(const Clocks& done, Stream stream) {
        const auto s = static_cast<std::size_t>(stream);
        return done[s < body_streams ? s : 0];
    }

    // The clock of a stream, once its last instruction has one.
    static Clock stream_clock(Walk& w, std::size_t stream) {
        if (w.last[stream] >= 0) w.streams[stream] = w.done[at(w.last[stream])][0];
        return w.streams[stream];
    }

    bool take(std::size_t s, Walk& w, std::size_t n) {
        const Instruction& i = w.code[n];
        inputs_.clear();
        if (i.body >= 0)
            for (std::size_t stream = 0; stream < streams_of(i); ++stream) inputs_.push_back(stream_clock(w, stream));
        else
            inputs_.push_back(stream_clock(w, at(static_cast<std::int64_t>(i.stream))));
        for (int k = 0; k < i.waits; ++k) {
            const Clocks& done = w.done[at(i.wait[at(k)].instruction)];
            inputs_.push_back(of(done, i.wait[at(k)].stream));
        }
        if (std::find(inputs_.begin(), inputs_.end(), open) != inputs_.end()) return false;
        if (i.body >= 0)
            take_body(s, w, n);
        else if (i.kind == InstructionKind::send || i.kind == InstructionKind::recv || i.axis == Axis::embedding)
            meet(s, w, n);
        else
            take_other(s, w, n);
        return true;
    }

    Kind kind_of_body(const Instruction& i) const {
        const std::size_t body = static_cast<std::size_t>(i.body) % bodies_of_chunk;
        if (i.kind == InstructionKind::optimizer_step) return Kind::optimizer;
        if ((activity_ >> body & 1U) != 0) return Kind::body;
        return (activity_ & hosted_activity) != 0 ? Kind::hosted : Kind::delay;
    }
    // Clocks that an operation sets.
    static std::size_t outputs_of(Kind kind) {
        switch (kind) {
            case Kind::hosted: return hosted_streams;
            case Kind::body:
            case Kind::optimizer: return body_streams;
            default: return 1;
        }
    }
    std::size_t streams_of(const Instruction& i) const { return outputs_of(kind_of_body(i)); }

    Operation& emit(Kind kind, std::size_t s, std::size_t streams, Clock outputs) {
        Operation o;
        o.kind = kind;
        o.stage = static_cast<std::uint16_t>(s);
        o.inputs = static_cast<std::uint32_t>(out_.inputs_.size());
        o.streams = static_cast<std::uint16_t>(streams);
        o.count = static_cast<std::uint16_t>(inputs_.size());
        o.output = out_.clocks_;
        out_.clocks_ += outputs;
        out_.inputs_.insert(out_.inputs_.end(), inputs_.begin(), inputs_.end());
        std::uint32_t round = kind < Kind::message ? 1 : 0;
        std::uint32_t begin = 0;
        for (const Clock in : inputs_) begin = std::max(begin, round_of_[in]);
        round_of_.resize(out_.clocks_, begin + round);
        out_.operations_.push_back(o);
        return out_.operations_.back();
    }

    void take_body(std::size_t s, Walk& w, std::size_t n) {
        const Instruction& i = w.code[n];
        const std::size_t streams = streams_of(i);
        const Kind kind = kind_of_body(i);
        // What the optimizer waits for besides another stage comes first: see Timeline::walk.
        if (kind == Kind::optimizer) tied_last(w, i);
        const bool reduction = kind != Kind::optimizer && reduction_last(i, streams);
        Operation& o = emit(kind, s, streams, static_cast<Clock>(streams));
        o.body = static_cast<std::uint32_t>(i.body);
        o.forwards = i.kind == InstructionKind::forward_chunk;
        o.reduction_last = reduction;
        for (std::size_t stream = 0; stream < body_streams; ++stream) {
            if (stream < streams) w.streams[stream] = o.output + static_cast<Clock>(stream), w.last[stream] = -1;
            w.done[n][stream] = stream_clock(w, stream);
        }
    }

    bool reduction_last(const Instruction& i, std::size_t streams) {
        for (int k = 0; k < i.waits; ++k)
            if (i.wait[at(k)].stream == Stream::reduce) {
                std::swap(inputs_[streams + at(k)], inputs_.back());
                return true;
            }
        return false;
    }

    void tied_last(const Walk& w, const Instruction& i) {
        for (int k = 0; k < i.waits; ++k)
            if (w.code[at(i.wait[at(k)].instruction)].axis == Axis::embedding)
                std::swap(inputs_[body_streams + at(k)], inputs_.back());
        const bool tied = std::any_of(i.wait.begin(), i.wait.begin() + i.waits, [&](const Wait& wait) {
            return w.code[at(wait.instruction)].axis == Axis::embedding;
        });
        if (!tied) inputs_.push_back(0);  // the last input is the other stage's: none
    }

    void take_other(std::size_t s, Walk& w, std::size_t n) {
        const Instruction& i = w.code[n];
        const auto stream = at(static_cast<std::int64_t>(i.stream));
        if (i.kind == InstructionKind::alloc || i.kind == InstructionKind::free) {
            w.done[n].fill(inputs_[0]);  // nobody waits for them
            return;
        }
        const Kind kind = i.kind == InstructionKind::fill         ? Kind::clear_loss
                          : i.kind == InstructionKind::all_reduce ? Kind::reduce_loss
                                                                  : Kind::end;
        FORETRAIN_CHECK(kind != Kind::end || i.kind == InstructionKind::step_end, "no place in a timeline");
        if (kind == Kind::end) gathers_first(i);
        Operation& o = emit(kind, s, kind == Kind::end ? gathers_ : 1, 1);
        w.streams[stream] = o.output;
        w.last[stream] = -1;
        w.done[n].fill(o.output);
    }

    // After the compute stream's clock, what ends on this stage's gather and reduce streams.
    void gathers_first(const Instruction& i) {
        gathers_ = 1;
        for (int k = 0; k < i.waits; ++k)
            if (i.wait[at(k)].stream == Stream::gather || i.wait[at(k)].stream == Stream::reduce)
                std::swap(inputs_[gathers_++], inputs_[1 + at(k)]);
    }

    void meet(std::size_t s, Walk& w, std::size_t n) {
        const Instruction& i = w.code[n];
        const auto stream = at(static_cast<std::int64_t>(i.stream));
        const auto self = static_cast<std::int32_t>(s);
        const bool tied = i.axis == Axis::embedding;
        const bool sends = i.kind == InstructionKind::send;
        Line& line = lines_[tied ? Channel{} : channel_of(i, self)];
        w.last[stream] = static_cast<std::int32_t>(n);
        if (line.met == line.waiting.size() || line.waiting[line.met].stage == s) {
            w.done[n].fill(open);
            line.waiting.push_back({s, n, inputs_});
            return;
        }
        const Post& other = line.waiting[line.met++];
        // The sender's first, whichever side came first.
        inputs_.insert(sends ? inputs_.end() : inputs_.begin(), other.inputs.begin(), other.inputs.end());
        Operation& o = emit(tied ? Kind::reduce_tied : Kind::message, tied || sends ? s : at(i.peer), 0, 1);
        o.forwards = !tied && !channel_of(i, self).gradients;
        w.done[n].fill(o.output);
        walks_[other.stage].done[other.instruction].fill(o.output);
    }

    // The order of a schedule whose passes all take one round and all else nothing: in its steady part
    // every microbatch looks like the one before.
    void sort_by_rounds() {
        std::vector<Operation>& operations = out_.operations_;
        const auto key = [&](const Operation& o) {
            const int phase = o.kind == Kind::end ? 2 : o.kind >= Kind::message ? 1 : 0;
            return std::tuple(round_of_[o.output], phase, o.stage, o.forwards);
        };
        std::stable_sort(operations.begin(), operations.end(),
                         [&](const Operation& a, const Operation& b) { return key(a) < key(b); });
        std::vector<Clock> renumbered(out_.clocks_, 0);
        std::vector<std::uint32_t> inputs;
        inputs.reserve(out_.inputs_.size());
        Clock next = 1;
        for (std::size_t n = 0; n < operations.size(); ++n) {
            Operation& o = operations[n];
            const std::uint32_t round = round_of_[o.output];
            while (rounds_.size() <= round) rounds_.push_back({n, next});
            const auto first = out_.inputs_.begin() + o.inputs;
            o.inputs = static_cast<std::uint32_t>(inputs.size());
            std::transform(first, first + o.count, std::back_inserter(inputs), [&](Clock c) { return renumbered[c]; });
            const auto outputs = static_cast<Clock>(outputs_of(o.kind));
            for (Clock c = 0; c < outputs; ++c) renumbered[o.output + c] = next + c;
            o.output = next;
            next += outputs;
        }
        out_.inputs_ = std::move(inputs);
    }

    // What ends in one round.
    struct Round {
        std::size_t operation = 0;  // the first
        Clock clock = 0;
    };

    // The longest run of rounds that repeat, one by one or several at a time; then the next after it.
    void find_steady() {
        rounds_.push_back({out_.operations_.size(), out_.clocks_});
        for (std::size_t from = 0; from + 2 < rounds_.size();) {
            std::size_t best_first = 0, best_rounds = 0, best_count = 0;
            constexpr std::size_t longest = 64;
            for (std::size_t k = 1; k <= longest && from + 2 * k < rounds_.size() && best_count < 4; ++k)
                for (std::size_t r = from; r + 2 * k < rounds_.size(); ++r) {
                    const std::size_t count = periods(r, k);
                    if (count * k > best_count * best_rounds && count >= 4)
                        best_first = r, best_rounds = k, best_count = count;
                    r += count > 1 ? (count - 1) * k - 1 : 0;
                }
            if (best_count < 4) return;
            add_steady(best_first, best_rounds, best_count);
            from = best_first + best_rounds * best_count;
        }
    }

    // How often k rounds from r on come again, themselves included.
    std::size_t periods(std::size_t r, std::size_t k) const {
        std::size_t count = 1;
        while (r + (count + 1) * k < rounds_.size() && alike(r, r + (count - 1) * k, k)) ++count;
        return count;
    }

    // Are the k rounds after those at r the same operations on later clocks, or on clocks from before `first`?
    bool alike(std::size_t first, std::size_t r, std::size_t k) const {
        const Round &a = rounds_[r], &b = rounds_[r + k], &end = rounds_[r + 2 * k];
        if (b.operation - a.operation != end.operation - b.operation) return false;
        const Clock later = b.clock - a.clock;
        for (std::size_t n = 0; n < b.operation - a.operation; ++n) {
            const Operation &x = out_.operations_[a.operation + n], &y = out_.operations_[b.operation + n];
            if (x.kind != y.kind || x.forwards != y.forwards || x.stage != y.stage || x.body != y.body ||
                x.streams != y.streams || x.reduction_last != y.reduction_last || x.count != y.count ||
                y.output - x.output != later)
                return false;
            for (std::size_t i = 0; i < x.count; ++i) {
                const Clock in = out_.inputs_[x.inputs + i], next = out_.inputs_[y.inputs + i];
                if (next - in != later && (next != in || in >= rounds_[first].clock)) return false;
            }
        }
        return b.operation > a.operation;
    }

    void add_steady(std::size_t r, std::size_t k, std::size_t count) {
        Timeline::Steady steady;
        steady.begin = rounds_[r].operation;
        steady.end = rounds_[r + k * count].operation;
        steady.count = count;
        steady.first_clock = rounds_[r].clock;
        steady.clocks = rounds_[r + k].clock - rounds_[r].clock;
        const Clock end = steady.first_clock + steady.clocks * static_cast<Clock>(count);
        steady.reach = 1;
        const std::size_t operations = (steady.end - steady.begin) / count;
        std::int64_t forwards = 0, backwards = 0;  // through the first chunk
        for (std::size_t n = steady.begin; n < out_.operations_.size(); ++n) {
            const Operation& o = out_.operations_[n];
            if (n < steady.begin + operations && o.kind != Kind::message && o.stage == 0 && o.body <= 1)
                ++(o.body == 0 ? forwards : backwards);
            const std::size_t period = std::min((n - steady.begin) / operations, count);
            for (std::size_t i = 0; i < o.count; ++i) {
                const Clock in = out_.inputs_[o.inputs + i];
                if (in >= steady.first_clock && in < end)
                    steady.reach = std::max(steady.reach, period - (in - steady.first_clock) / steady.clocks);
            }
        }
        if (forwards == backwards) steady.microbatches = forwards;
        if (steady.reach < count) out_.steady_.push_back(steady);
    }

    std::uint32_t activity_;
    Timeline& out_;
    std::vector<Round> rounds_;
    std::vector<std::uint32_t> round_of_{0};  // by clock, before they are sorted
    std::vector<Walk> walks_;
    std::vector<Clock> inputs_;  // of the instruction at hand
    std::size_t gathers_ = 1;
    std::map<Channel, Line> lines_;
};

Timeline::Timeline(const Skeleton& skeleton, std::uint32_t activity) {
    TimelineBuilder(skeleton, activity, *this).run();
}

namespace {

// What computing took from its start to its exit, and of that waited for others.
struct Took {
    Time all, for_host, for_context;
};

void account_body(StageTime& t, bool optimizer, bool forwards, const BodyCost& cost, const Took& took) {
    (optimizer ? t.optimizer : forwards ? t.forward : t.backward) += cost.kernels;
    t.recompute += cost.recompute;
    t.tensor_exposed += cost.tensor;
    t.context_exposed += cost.context + took.for_context;
    t.host_exposed += took.for_host;
    t.overhead += cost.overhead;
    // Inside a pass the compute stream idles for nothing but that, gathers and reductions; and what those take
    // of its time while it computes is theirs.
    t.data_exposed += took.all - took.for_host - took.for_context - cost.kernels - cost.recompute - cost.overhead -
                      cost.tensor - cost.context;
}

// later + n (later - earlier), part by part
void add_often(StageTime& later, const StageTime& earlier, std::int64_t n) {
    for (Time StageTime::*part :
         {&StageTime::forward, &StageTime::backward, &StageTime::recompute, &StageTime::tensor_exposed,
          &StageTime::context_exposed, &StageTime::data_exposed, &StageTime::host_exposed, &StageTime::overhead})
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
                    account_body((*times_)[o.stage], false, o.forwards, cost,
                                 {Time{cost.exit[0][0]}, Time{cost.exit[0][0] - cost.exit_without_host[0]}, Time{}});
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
            case Kind::reduce_tied: complete(o, d_.reduce_tied); break;
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
            const Time exit{clocks_[o.output]};
            account_body((*times_)[o.stage], false, o.forwards, cost,
                         {exit - std::max(entry[0], entry[input_port]),
                          exit - foretrain::latest(cost.exit_without_host, entry), Time{}});
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
                             t.context_exposed - t.data_exposed - t.host_exposed - t.overhead;
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
