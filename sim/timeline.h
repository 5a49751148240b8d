// When everything happens: the chunk-level program of all stages as one list of operations, each
// after those that it waits for. The list depends on the schedule alone (stages, microbatches, which
// bodies work on more than the compute stream), not on any duration, so that a sweep makes it once for
// thousands of plans; running it takes a few nanoseconds an operation.
//
// In the steady part of a schedule the same operations come again and again. Once all clocks of a period
// are those of the period before plus one constant, so are all that follow: what is left is skipped,
// exactly. And since periods repeat, a timeline of few microbatches serves every larger number.
//
// Streams run in order, a body is a max-plus map (sim/body_cost.h), the two sides of a message and of
// a reduction between the first and the last stage begin when both are ready.
//
//   Timeline timeline(skeleton, activity_of(bodies));
//   Estimate e = timeline.run(bodies, durations, skeleton.microbatches);
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program/result.h"
#include "plan/program/skeleton.h"
#include "sim/body_cost.h"
#include "sim/cost.h"

namespace foretrain {

constexpr std::size_t hosted_streams = 2;  // compute and host
constexpr std::uint32_t hosted_activity = ((1U << bodies_of_chunk) - 1) << bodies_of_chunk;

// Body costs of each stage, as Instruction::body counts them.
using StageBodies = std::vector<std::vector<const BodyCost*>>;

struct Estimate {
    Time step;
    std::vector<StageTime> times;  // by stage
};

// Which bodies of a stage are more than a delay of the compute stream, by their place in Stage::bodies, over
// all stages and chunks: a bit each for those that use more than the compute stream and the host, and a bit
// each for those that computing waits for the host in. Two plans of one schedule and activity share a timeline.
std::uint32_t activity_of(const StageBodies& bodies);

// The same for some of the bodies, to be joined with that of others: whether the context stream can be left out shows
// only once all are known.
struct BodyActivity {
    std::uint32_t alone = 0, followed = 0;  // if its clocks count, and if computing waits for all that it does
    bool follows = true;                    // in all of these bodies

    void add(const BodyCost& body, std::size_t place);  // in Stage::bodies
    void add(const BodyActivity& others);
    std::uint32_t activity() const { return follows ? followed : alone; }
};

// What is not a body takes; by stage where it matters.
struct TimelineDurations {
    std::vector<Time> next, previous;  // a message to the next stage, and to the previous
    Time clear_loss, reduce_loss;
};

Time longest_message(const TimelineDurations& durations);

// Throws UserError if a step might be longer than a Time can say, 106 days: of these bodies, with a message after each;
// or of so many microbatches, each of which keeps a stage for `longest` picoseconds.
void check_length(const StageBodies& bodies, const TimelineDurations& durations, std::int64_t microbatches);
void check_length(double longest, std::int64_t microbatches, std::int64_t stages);

// Of `stages` that send each other messages of this size.
TimelineDurations timeline_durations(const CostModel& cost, std::int64_t stages, Bytes message);

class Timeline {
public:
    Timeline(const Skeleton& skeleton, std::uint32_t activity);

    // The timeline serves the number of microbatches that its skeleton lists, and larger ones as far as its periods
    // allow.
    bool serves(std::int64_t microbatches) const;

    // The end of the step alone (`clocks` is room to work in), and with what each stage spends its time on.
    // `reduce_tied`: what it takes to sum the gradients of an embedding that first and last stage share.
    Time step(const StageBodies& bodies, const TimelineDurations& durations, Time reduce_tied,
              std::int64_t microbatches, std::vector<std::int64_t>& clocks) const;
    Estimate run(const StageBodies& bodies, const TimelineDurations& durations, Time reduce_tied,
                 std::int64_t microbatches) const;

    std::size_t operations() const { return operations_.size(); }

private:
    friend class TimelineBuilder;

    enum class Kind : std::uint8_t {
        delay,
        hosted,
        body,
        optimizer,
        message,
        clear_loss,
        reduce_loss,
        reduce_tied,
        end
    };
    struct Operation {
        Kind kind = Kind::delay;
        bool forwards = false;        // a message: to the next stage
        bool reduction_last = false;  // a pass whose last input is the end of this stage's own reductions
        std::uint16_t stage = 0;      // a message: its sender
        std::uint32_t body = 0;       // in the stage's bodies
        std::uint32_t inputs = 0;     // first of what it waits for, in inputs_; clocks
        std::uint16_t streams = 0;    // of them, the clocks of the body's streams at its entry
        std::uint16_t count = 0;
        std::uint32_t output = 0;  // clock that it sets, of a body one for each stream
    };

    // Operations [begin, end) are `count` periods; each sets `clocks` clocks from first_clock on, and nothing
    // in it or after them looks further back than `reach` periods.
    struct Steady {
        std::size_t begin = 0, end = 0;
        std::size_t count = 0;
        std::uint32_t first_clock = 0, clocks = 0;
        std::size_t reach = 0;
        std::int64_t microbatches = 0;  // that a period takes both ways; 0: of one way, for which no more can follow
    };

    class Walk;

    std::vector<Operation> operations_;
    std::vector<std::uint32_t> inputs_;
    std::uint32_t clocks_ = 1;  // clock 0 stays at 0: the beginning of the step
    std::size_t stages_ = 0;
    std::int64_t microbatches_ = 0;
    std::vector<Steady> steady_;
};

}  // namespace foretrain
