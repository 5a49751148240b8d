#include "plan/program/partners.h"

#include <map>

#include "plan/program/access.h"

namespace foretrain {

Channel channel_of(const Instruction& i, std::int32_t stage) {
    const bool sends = i.kind == InstructionKind::send;
    return {sends ? stage : i.peer, sends ? i.peer : stage,
            i.stream == Stream::send_prev || i.stream == Stream::recv_next};
}

std::vector<Meeting> meetings(const Program& program) {
    std::map<Channel, Meeting> channels;
    Meeting embedding{{0, static_cast<std::int32_t>(program.stages.size()) - 1}, {}, false};
    for (std::int32_t s = 0; s < static_cast<std::int32_t>(program.stages.size()); ++s) {
        const std::vector<Instruction>& code = program.stages[static_cast<std::size_t>(s)].instructions;
        for (std::size_t id = 0; id < code.size(); ++id) {
            const Instruction& i = code[id];
            if (is_message(i.kind)) {
                const Channel channel = channel_of(i, s);
                Meeting& m = channels.try_emplace(channel, Meeting{{channel.from, channel.to}, {}, true}).first->second;
                m.ids[i.kind == InstructionKind::send ? 0 : 1].push_back(static_cast<std::int32_t>(id));
            } else if (is_collective(i.kind) && i.axis == Axis::embedding && embedding.stage[1] > 0) {
                embedding.ids[s == 0 ? 0 : 1].push_back(static_cast<std::int32_t>(id));
            }
        }
    }
    std::vector<Meeting> out;
    for (auto& [channel, meeting] : channels) out.push_back(std::move(meeting));
    out.push_back(std::move(embedding));
    return out;
}

std::vector<std::vector<Partner>> partners(const Program& program) {
    std::vector<std::vector<Partner>> out(program.stages.size());
    for (std::size_t s = 0; s < out.size(); ++s) out[s].resize(program.stages[s].instructions.size());
    for (const Meeting& m : meetings(program))
        for (std::size_t k = 0; k < m.ids[0].size(); ++k)
            for (int side : {0, 1})
                out[static_cast<std::size_t>(m.stage[side])][static_cast<std::size_t>(m.ids[side][k])] = {
                    m.stage[1 - side], m.ids[1 - side][k]};
    return out;
}

}  // namespace foretrain
