// A body: the instructions of one pass over a stage's layers (forward, backward with its
// recompute, or the optimizer step), written once and used for every microbatch.
//
// It is built as plain arithmetic on the compute stream and completed by small passes: gathers of
// sharded parameters, reductions of gradients, alloc and free around each tensor's life, and a place
// for each tensor. Operands index the body's own buffers, waits its own instructions; `lower`
// (plan/program/lower.h) turns both into the stage's.
//
// On entry a body takes over the clocks of its streams. Its first instruction, a `wait`, is where
// what the pass depends on (a message, a free ring entry) is awaited; a `record` before it marks
// the entry for the other streams.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/program/program.h"

namespace foretrain {

// Where a body's buffer stands once the pass is bound to a microbatch.
enum class Home : std::uint8_t {
    fixed,            // the same address in every pass
    slot,             // in the microbatch's activation slot
    input,            // entry of a message ring: activations from the previous stage,
    output,           //   to the next,
    input_gradient,   //   gradients to the previous stage (of the chunk's input),
    output_gradient,  //   from the next
    unit_weight,      // in the weights of a unit, wherever they are gathered (resolved by a pass)
    unit_gradient,    // in the gradients of a unit, wherever they are collected (resolved by a pass)
};

// What to call a tensor or place in a stage: a word and the layer, named only when printed.
struct Label {
    std::string_view what;    // of static storage; compared by its letters
    std::int32_t layer = -1;  // within the stage
    bool operator==(const Label&) const = default;
};
std::string text(const Label& label, std::int64_t first_layer);

struct BodyBuffer {
    Label label;
    Home home = Home::fixed;
    Region region = Region::transients;
    DType type = DType::fp32;
    Axis axis = Axis::none;
    bool owned = false;      // begins and ends inside bodies: alloc and free are placed for it
    std::int32_t unit = -1;  // of a weight or gradient: which unit and which of its tensors
    std::int32_t tensor = -1;
    std::int32_t saved = -1;  // of Home::slot: index in Stage::saved
    std::int64_t elements = 0;
    Bytes offset;  // from the region's base; from the slot's base for Home::slot
    Bytes stride;
    Bytes bytes() const { return Bytes{elements * size_of(type)}; }
};

// Where the code of a layer, or of a run of them, begins. -1: what follows belongs to none.
struct Cut {
    std::int32_t at = 0;
    std::int32_t layer = -1;
};

// That an owned buffer lives while an instruction runs that does not read or write it: what other frameworks keep
// beside their arithmetic.
struct Hold {
    std::int32_t at = 0;
    std::int32_t buffer = 0;
};

// Instructions [begin, end) that stand for `times` of themselves, one after the other: of a brief stage.
// Each time their waits reach as far back as the first time.
struct CodeRepeat {
    std::int32_t begin = 0, end = 0;
    std::int64_t times = 1;
    std::int32_t repeat = 0;  // in StageLayout::repeats
};

// Bytes that begin and end to live while code runs: the most above those at its entry, and those that
// outlive it.
struct Life {
    Bytes peak, net;
};

struct Body {
    const char* name = "";
    InstructionKind kind = InstructionKind::forward_chunk;
    std::vector<Instruction> code;
    std::vector<BodyBuffer> buffers;
    std::vector<std::uint8_t> recomputed;  // by instruction: runs again what the forward pass ran
    std::vector<Cut> cuts;                 // ascending
    std::vector<Hold> holds;
    std::vector<CodeRepeat> repeats;  // ascending, disjoint; empty of a full stage
    std::vector<Life> life;           // of the code before, in and after each repeat in turn
    Bytes transient_bytes;            // the working set's region
    Bytes live_peak;                  // most owned bytes above those at entry
    Bytes live_net;                   // owned bytes at exit above those at entry
};

constexpr std::int64_t buffer_alignment = 256;

// Copies code while inserting, and keeps waits, cuts and holds right: kept instructions' waits are renumbered,
// and what is inserted where a layer begins belongs to that layer.
class Rewriter {
public:
    explicit Rewriter(Body& body);
    std::int32_t keep(std::int32_t old_index);     // returns the new index
    std::int32_t insert(Instruction instruction);  // waits already in new numbering
    Instruction& at(std::int32_t new_index) { return code_[static_cast<std::size_t>(new_index)]; }
    std::int32_t size() const { return static_cast<std::int32_t>(code_.size()); }
    void finish();  // writes the result back

private:
    Body& body_;
    std::vector<Instruction> code_;
    std::vector<std::uint8_t> recomputed_;
    std::vector<std::int32_t> renumbered_;
    std::size_t next_cut_ = 0;
    std::int32_t after_kept_ = 0;  // where the last kept instruction ends
};

// Of the whole, when the n-th repeat runs times[n] times.
Life life_of(const std::vector<Life>& pieces, std::span<const std::int64_t> times);

// By piece of the code: before the first cut, and from each cut on. Of a body that no pass has changed.
std::vector<Life> life_by_cut(const Body& body);

// Puts `alloc` before the first and `free` after the last use of every owned buffer; where that is on
// another stream than compute, after the compute stream has waited for it. `begins` and `ends` say whether
// slot buffers begin (forward) or end (backward) in this body.
void place_frees(Body& body, bool slots_begin, bool slots_end);

// Gives every owned transient an offset in the transient region such that no two live ones share an
// address (the lowest that fits, in host order), and sums up what lives. With the lowest the layout soon
// repeats from layer to layer; with the best fit it need not.
void place_transients(Body& body);

}  // namespace foretrain
