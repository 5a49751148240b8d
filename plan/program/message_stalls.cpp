#include "plan/program/body_passes.h"

namespace foretrain {

namespace {

constexpr std::int32_t entry = 0;  // the wait that a body begins with

// On the pipeline's axis, by which it is told apart from what stands still for other reasons.
Instruction message_stall() {
    Instruction i;
    i.kind = InstructionKind::stall;
    i.axis = Axis::pipeline;
    return i;
}

}  // namespace

std::vector<Instruction> message_stalls(const StageContext& c) {
    std::vector<Instruction> out;
    if (c.added.stall_message > Time{}) {
        out.push_back(message_stall());
        out.back().count = c.added.stall_message.value;
    }
    if (c.added.message_share > 0) {
        // All stages send on at once, as in a ring: what the slowest of these messages takes counts for all. Frameworks
        // send it split over the tensor ranks even where the message of this program is whole (arXiv:2104.04473,
        // section 4.1).
        Instruction& i = out.emplace_back(message_stall());
        i.like = InstructionKind::ring_shift;
        i.share = c.added.message_share;
        i.type = c.types.weight;
        i.count = c.tokens() * c.model.hidden_size / c.parallelism.tensor;
    }
    return out;
}

// Not a Rewriter's work: it would copy the whole pass, of which nothing changes but indices, once for each plan that a
// sweep estimates. Waits on the entry go on waiting for just that, but for the host's: one that waits for messages
// is held up by what they make compute stand still for, and its waits move on to the last stall.
void add_message_stalls(const StageContext& context, const StageShape& shape, Body& body) {
    const bool receives = body.kind == InstructionKind::forward_chunk ? !shape.first : !shape.last;
    if (!receives) return;
    const std::vector<Instruction> stalls = message_stalls(context);
    if (stalls.empty()) return;
    const auto more = static_cast<std::int32_t>(stalls.size());
    for (Instruction& i : body.code)
        for (int w = 0; w < i.waits; ++w) {
            Wait& wait = i.wait[static_cast<std::size_t>(w)];
            if (wait.instruction > entry || i.stream == Stream::host) wait.instruction += more;
        }
    for (Cut& cut : body.cuts) cut.at += more;
    for (Hold& hold : body.holds) hold.at += hold.at > entry ? more : 0;
    body.code.insert(body.code.begin() + entry + 1, stalls.begin(), stalls.end());
    body.recomputed.insert(body.recomputed.begin() + entry + 1, stalls.size(), 0);
}

}  // namespace foretrain
