#include "exec/thread_group.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace foretrain {

std::string to_text(const Posting& p) {
    return fmt::format("{} of {} {}{}", name_of(p.kind), p.count, name_of(p.type),
                       p.reduction == Reduction::maximum ? " (maximum)" : "");
}

ThreadGroup::ThreadGroup(ThreadWorld& world, std::vector<std::int64_t> members)
    : world_(world), members_(std::move(members)), seats_(members_.size()), mailboxes_(size() * size()) {}

void ThreadGroup::meet(std::size_t me, const Posting& mine) {
    seats_[me].posting = mine;
    meet(me, name_of(mine.kind).data());
    require_match(me);
}

void ThreadGroup::meet(std::size_t me, const char* what) {
    const std::int64_t round = seats_[me].arrived.load() + 1;
    seats_[me].arrived.store(round);
    changed_.notify();
    const auto all_here = [&] {
        for (const Seat& seat : seats_)
            if (seat.arrived.load() < round) return false;
        return true;
    };
    const auto missing = [&] {
        std::vector<std::int64_t> ranks;
        for (std::size_t i = 0; i < size(); ++i)
            if (seats_[i].arrived.load() < round) ranks.push_back(members_[i]);
        return ranks;
    };
    world_.await(changed_, all_here, missing, what);
}

void ThreadGroup::require_match(std::size_t me) const {
    for (std::size_t i = 0; i < size(); ++i)
        if (!seats_[i].posting.matches(seats_[me].posting))
            throw RunError(fmt::format("rank {} is in {} while rank {} of its group is in {}", members_[me],
                                       to_text(seats_[me].posting), members_[i], to_text(seats_[i].posting)));
}

void ThreadGroup::send(std::size_t me, std::size_t to, const Posting& message, const std::function<void()>& met) {
    Mailbox& box = mailbox(me, to);
    box.message = message;
    const std::int64_t number = box.posted.load() + 1;
    box.posted.store(number);
    box.changed.notify();
    const auto missing = [&] { return std::vector<std::int64_t>{members_[to]}; };
    world_.await(
        box.changed, [&] { return box.wanted.load() >= number; }, missing, "send");
    met();
    world_.await(
        box.changed, [&] { return box.taken.load() >= number; }, missing, "send");
}

void ThreadGroup::recv(std::size_t me, std::size_t from, const Posting& wanted, const std::function<void()>& met) {
    Mailbox& box = mailbox(from, me);
    const std::int64_t number = box.taken.load() + 1;
    box.wanted.store(number);
    box.changed.notify();
    world_.await(
        box.changed, [&] { return box.posted.load() >= number; },
        [&] { return std::vector<std::int64_t>{members_[from]}; }, "recv");
    met();
    const Posting& message = box.message;
    if (message.count != wanted.count || message.type != wanted.type)
        throw RunError(fmt::format("rank {} is in {} while rank {} sends it {}", members_[me], to_text(wanted),
                                   members_[from], to_text(message)));
    const std::int64_t bytes = message.count * size_of(message.type);
    std::memcpy(wanted.to, message.from, static_cast<std::size_t>(bytes));
    count_sent(from, InstructionKind::send, bytes);
    box.taken.store(number);
    box.changed.notify();
}

void ThreadGroup::count_sent(std::size_t member, InstructionKind kind, std::int64_t bytes) {
    seats_[member].sent[static_cast<std::size_t>(kind)].fetch_add(bytes, std::memory_order_relaxed);
}

Bytes ThreadGroup::sent(std::size_t member, InstructionKind kind) const {
    return Bytes{seats_[member].sent[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed)};
}

void ThreadGroup::release() {
    changed_.notify();
    for (Mailbox& box : mailboxes_) box.changed.notify();
}

}  // namespace foretrain
