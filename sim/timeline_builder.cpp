// Makes a Timeline of a skeleton.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/index.h"
#include "plan/program/partners.h"
#include "sim/timeline.h"

namespace foretrain {

namespace {

using Clock = std::uint32_t;

}  // namespace

// Takes every stage's instructions as far as what they wait for is known, and writes them down.
class TimelineBuilder {
public:
    TimelineBuilder(const Skeleton& skeleton, std::uint32_t activity, Timeline& out)
        : activity_(activity), out_(out), walks_(skeleton.stages.size()) {
        FORETRAIN_CHECK(walks_.size() < (1U << 16), "more stages than a timeline counts");
        for (std::size_t s = 0; s < walks_.size(); ++s) {
            unroll_stage(skeleton, s, walks_[s].code, false);
            walks_[s].done.resize(walks_[s].code.size());
        }
        out_.stages_ = walks_.size();
        out_.microbatches_ = skeleton.listed;
        chunks_ = skeleton.stages.front().chunks.size();
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
    static constexpr std::size_t fewest_periods = 3;
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
        std::size_t first = 0, end = 0;  // of its inputs, in posted_
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
        // What the optimizer waits for besides another stage comes first: see Timeline::Walk.
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
            line.waiting.push_back({s, n, posted_.size(), posted_.size() + inputs_.size()});
            posted_.insert(posted_.end(), inputs_.begin(), inputs_.end());
            return;
        }
        const Post& other = line.waiting[line.met++];
        // The sender's first, whichever side came first.
        inputs_.insert(sends ? inputs_.end() : inputs_.begin(),
                       posted_.begin() + static_cast<std::ptrdiff_t>(other.first),
                       posted_.begin() + static_cast<std::ptrdiff_t>(other.end));
        Operation& o = emit(tied ? Kind::reduce_tied : Kind::message, tied || sends ? s : at(i.peer), 0, 1);
        o.forwards = !tied && !channel_of(i, self).gradients;
        w.done[n].fill(o.output);
        walks_[other.stage].done[other.instruction].fill(o.output);
    }

    // The order of a schedule whose passes all take one round and all else nothing: in its steady part
    // every microbatch looks like the one before.
    void sort_by_rounds() {
        std::vector<std::pair<std::uint64_t, std::uint32_t>> order;  // what to sort by, and the operation
        order.reserve(out_.operations_.size());
        for (const Operation& o : out_.operations_) {
            const std::uint64_t phase = o.kind == Kind::end ? 2 : o.kind >= Kind::message ? 1 : 0;
            order.emplace_back(std::uint64_t{round_of_[o.output]} << 32 | phase << 20 | std::uint64_t{o.stage} << 1 |
                                   (o.forwards ? 1 : 0),
                               static_cast<std::uint32_t>(order.size()));
        }
        std::sort(order.begin(), order.end());
        std::vector<Operation> operations;
        operations.reserve(order.size());
        std::vector<Clock> renumbered(out_.clocks_, 0);
        std::vector<std::uint32_t> inputs;
        inputs.reserve(out_.inputs_.size());
        Clock next = 1;
        for (const auto& [key, n] : order) {
            Operation o = out_.operations_[n];
            while (rounds_.size() <= key >> 32) rounds_.push_back({operations.size(), next});
            const auto first = out_.inputs_.begin() + o.inputs;
            o.inputs = static_cast<std::uint32_t>(inputs.size());
            std::transform(first, first + o.count, std::back_inserter(inputs), [&](Clock c) { return renumbered[c]; });
            const auto outputs = static_cast<Clock>(outputs_of(o.kind));
            for (Clock c = 0; c < outputs; ++c) renumbered[o.output + c] = next + c;
            o.output = next;
            next += outputs;
            operations.push_back(o);
        }
        out_.operations_ = std::move(operations);
        out_.inputs_ = std::move(inputs);
    }

    // What ends in one round.
    struct Round {
        std::size_t operation = 0;  // the first
        Clock clock = 0;
    };

    // Runs of rounds that repeat: every pass takes a round, so that a microbatch forward or backward takes as
    // many as there are chunks, both twice as many, and interleaved chunks do all stages' microbatches in turn.
    void find_steady() {
        rounds_.push_back({out_.operations_.size(), out_.clocks_});
        const std::size_t chunks = chunks_, all = 2 * chunks * walks_.size();
        for (std::size_t from = 0; from + 2 < rounds_.size();) {
            std::size_t best_first = 0, best_rounds = 0, best_count = 0;
            for (const std::size_t k : {chunks, 2 * chunks, all / 2, all}) {
                for (std::size_t r = from; r + 2 * k < rounds_.size(); ++r) {
                    const std::size_t count = periods(r, k);
                    if (count < fewest_periods || count * k <= best_count * best_rounds) continue;
                    best_first = r, best_rounds = k, best_count = count;
                    r += (count - 1) * k - 1;
                }
                if (best_count > 0) break;
            }
            if (best_count == 0) return;
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
            if (n < steady.begin + operations && o.kind != Kind::message && o.stage == 0 && o.body <= Stage::backward)
                ++(o.body == Stage::forward ? forwards : backwards);
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
    std::size_t chunks_ = 1;  // of a stage
    std::vector<Round> rounds_;
    std::vector<std::uint32_t> round_of_{0};  // by clock, before they are sorted
    std::vector<Walk> walks_;
    std::vector<Clock> posted_;
    std::vector<Clock> inputs_;  // of the instruction at hand
    std::size_t gathers_ = 1;
    std::map<Channel, Line> lines_;
};

Timeline::Timeline(const Skeleton& skeleton, std::uint32_t activity) {
    TimelineBuilder(skeleton, activity, *this).run();
}

}  // namespace foretrain
