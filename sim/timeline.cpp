#include "sim/timeline.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace foretrain {

namespace {

using Clock = std::uint32_t;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

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

constexpr std::size_t bodies_of_chunk = 4;

}  // namespace

std::uint32_t activity_of(const StageBodies& bodies) {
    std::uint32_t activity = 0;
    for (const auto& stage : bodies)
        for (std::size_t b = 0; b < stage.size(); ++b)
            if (!only_delays(*stage[b])) activity |= 1U << (b % bodies_of_chunk);
    return activity;
}

TimelineDurations timeline_durations(const Skeleton& skeleton, const CostModel& cost) {
    TimelineDurations d;
    const auto stages = static_cast<std::int64_t>(skeleton.stages.size());
    for (std::int64_t s = 0; s < stages && stages > 1; ++s) {
        const Bytes message{skeleton.stages[at(s)].stage->boundary_elements * size_of(skeleton.context.types.weight)};
        d.next.push_back(cost.message(message, s, (s + 1) % stages));
        d.previous.push_back(cost.message(message, s, (s + stages - 1) % stages));
    }
    d.clear_loss = cost.memory_traffic(KernelKind::cast, Bytes{size_of(DType::fp64)});
    d.reduce_loss = cost.collective(InstructionKind::all_reduce, Axis::data, Bytes{size_of(DType::fp64)});
    if (skeleton.tied_across_stages())
        d.reduce_tied = cost.collective(InstructionKind::all_reduce, Axis::embedding, tied_gradient_bytes(skeleton));
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
    }

    void run() {
        for (bool progress = true; progress;) {
            progress = false;
            for (std::size_t s = 0; s < walks_.size(); ++s) progress |= advance(s);
        }
        for (const Walk& w : walks_) FORETRAIN_CHECK(w.next == w.code.size(), "the schedule deadlocks");
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
        std::array<Clock, stream_count> streams{};                                // where each stands
        std::array<std::int32_t, stream_count> last{-1, -1, -1, -1, -1, -1, -1};  // its last, if a message
    };

    // The two sides of messages between two stages in one direction, and of the reductions between
    // first and last stage: the n-th of one side meets the n-th of the other.
    struct Post {
        std::size_t stage = 0;
        std::size_t instruction = 0;
        std::vector<Clock> inputs;
    };
    struct Channel {
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

    bool is_active(const Instruction& i) const {
        return (activity_ >> (static_cast<std::size_t>(i.body) % bodies_of_chunk) & 1U) != 0 ||
               i.kind == InstructionKind::optimizer_step;
    }
    std::size_t streams_of(const Instruction& i) const { return is_active(i) ? body_streams : 1; }

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
        out_.operations_.push_back(o);
        return out_.operations_.back();
    }

    void take_body(std::size_t s, Walk& w, std::size_t n) {
        const Instruction& i = w.code[n];
        const std::size_t streams = streams_of(i);
        const Kind kind = i.kind == InstructionKind::optimizer_step ? Kind::optimizer
                          : is_active(i)                            ? Kind::body
                                                                    : Kind::delay;
        // What the optimizer waits for besides another stage comes first: see Timeline::walk.
        if (kind == Kind::optimizer) tied_last(w, i);
        Operation& o = emit(kind, s, streams, static_cast<Clock>(streams));
        o.body = static_cast<std::uint32_t>(i.body);
        o.forwards = i.kind == InstructionKind::forward_chunk;
        for (std::size_t stream = 0; stream < body_streams; ++stream) {
            if (stream < streams) w.streams[stream] = o.output + static_cast<Clock>(stream), w.last[stream] = -1;
            w.done[n][stream] = stream_clock(w, stream);
        }
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
        const bool forwards = i.stream == Stream::send_next || i.stream == Stream::recv_prev;
        const std::tuple key = tied    ? std::tuple{-1, -1, false}
                               : sends ? std::tuple{self, i.peer, forwards}
                                       : std::tuple{i.peer, self, forwards};
        Channel& channel = channels_[key];
        w.last[stream] = static_cast<std::int32_t>(n);
        if (channel.met == channel.waiting.size() || channel.waiting[channel.met].stage == s) {
            w.done[n].fill(open);
            channel.waiting.push_back({s, n, inputs_});
            return;
        }
        const Post& other = channel.waiting[channel.met++];
        inputs_.insert(inputs_.end(), other.inputs.begin(), other.inputs.end());
        Operation& o = emit(tied ? Kind::reduce_tied : Kind::message, tied || sends ? s : at(i.peer), 0, 1);
        o.forwards = forwards;
        w.done[n].fill(o.output);
        walks_[other.stage].done[other.instruction].fill(o.output);
    }

    std::uint32_t activity_;
    Timeline& out_;
    std::vector<Walk> walks_;
    std::vector<Clock> inputs_;  // of the instruction at hand
    std::size_t gathers_ = 1;
    std::map<std::tuple<std::int32_t, std::int32_t, bool>, Channel> channels_;
};

Timeline::Timeline(const Skeleton& skeleton, std::uint32_t activity) {
    TimelineBuilder(skeleton, activity, *this).run();
}

namespace {

void account_body(StageTime& t, bool optimizer, bool forwards, const BodyCost& cost, std::int64_t waited) {
    (optimizer ? t.optimizer : forwards ? t.forward : t.backward) += cost.kernels;
    t.recompute += cost.recompute;
    t.tensor_exposed += cost.tensor;
    // Inside a pass the compute stream idles for nothing but gathers and reductions.
    t.data_exposed += Time{waited} - cost.kernels - cost.recompute - cost.tensor;
}

}  // namespace

template <bool accounts>
Time Timeline::walk(const StageBodies& bodies, const TimelineDurations& d, std::vector<std::int64_t>& clocks,
                    std::vector<StageTime>* times) const {
    clocks.assign(clocks_, 0);
    std::int64_t step = 0;
    for (const Operation& o : operations_) {
        const std::uint32_t* in = inputs_.data() + o.inputs;
        const auto latest = [&](std::size_t from, std::size_t to) {
            std::int64_t t = 0;
            for (std::size_t k = from; k < to; ++k) t = std::max(t, clocks[in[k]]);
            return t;
        };
        switch (o.kind) {
            case Kind::delay: {
                const BodyCost& cost = *bodies[o.stage][o.body];
                clocks[o.output] = latest(0, o.count) + cost.exit[0][0];
                if constexpr (accounts) account_body((*times)[o.stage], false, o.forwards, cost, cost.exit[0][0]);
                break;
            }
            case Kind::optimizer:
            case Kind::body: {
                const BodyCost& cost = *bodies[o.stage][o.body];
                std::array<Time, body_ports> entry;
                for (std::size_t s = 0; s < body_streams; ++s) entry[s] = Time{clocks[in[s]]};
                entry[body_streams] = Time{latest(body_streams, o.count)};
                const auto exit = cost.apply(entry);
                for (std::size_t s = 0; s < body_streams; ++s) clocks[o.output + s] = exit[s].value;
                if constexpr (accounts) {
                    StageTime& t = (*times)[o.stage];
                    const bool optimizer = o.kind == Kind::optimizer;
                    account_body(t, optimizer, o.forwards, cost,
                                 (exit[0] - std::max(entry[0], entry[body_streams])).value);
                    // It waits for this stage's gradients, and last for those of a tied embedding.
                    if (optimizer)
                        t.data_exposed += std::max(Time{}, Time{latest(body_streams, o.count - 1U)} - entry[0]);
                }
                break;
            }
            case Kind::message:
                clocks[o.output] = latest(0, o.count) + (o.forwards ? d.next : d.previous)[o.stage].value;
                break;
            case Kind::clear_loss:
                clocks[o.output] = latest(0, o.count) + d.clear_loss.value;
                if constexpr (accounts) (*times)[o.stage].forward += d.clear_loss;
                break;
            case Kind::reduce_loss: clocks[o.output] = latest(0, o.count) + d.reduce_loss.value; break;
            case Kind::reduce_tied: clocks[o.output] = latest(0, o.count) + d.reduce_tied.value; break;
            case Kind::end: {
                const std::int64_t end = clocks[o.output] = latest(0, o.count);
                step = std::max(step, end);
                if constexpr (accounts) {
                    StageTime& t = (*times)[o.stage];
                    t.step = Time{end};
                    // What is left to wait for after the optimizer's own kernels: gathers, or messages.
                    t.data_exposed += Time{latest(0, o.streams) - clocks[in[0]]};
                    t.pipeline_exposed =
                        t.step - t.forward - t.backward - t.recompute - t.optimizer - t.tensor_exposed - t.data_exposed;
                }
            }
        }
    }
    return Time{step};
}

Time Timeline::step(const StageBodies& bodies, const TimelineDurations& durations,
                    std::vector<std::int64_t>& clocks) const {
    return walk<false>(bodies, durations, clocks, nullptr);
}

Estimate Timeline::run(const StageBodies& bodies, const TimelineDurations& durations) const {
    Estimate e;
    e.times.resize(stages_);
    std::vector<std::int64_t> clocks;
    e.step = walk<true>(bodies, durations, clocks, &e.times);
    return e;
}

}  // namespace foretrain
