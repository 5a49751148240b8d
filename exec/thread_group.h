// What the members of one group of threads share: a meeting place, the addresses they posted, and a
// mailbox for each ordered pair.
//
//   group.meet(me, {.kind = all_gather, .from = a, .to = b, .count = n});   // all have posted
//   ... copy from group.posting(other).from ...
//   group.meet(me);                                                           // all have copied
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/notifier.h"
#include "exec/thread_communicator.h"

namespace foretrain {

// What a member brings to a collective or a message.
struct Posting {
    InstructionKind kind = InstructionKind::all_reduce;
    DType type = DType::fp32;
    Reduction reduction = Reduction::sum;
    std::int64_t count = 0;
    const void* from = nullptr;
    void* to = nullptr;

    bool matches(const Posting& other) const {
        return kind == other.kind && type == other.type && reduction == other.reduction && count == other.count;
    }
};
std::string to_text(const Posting& posting);

class ThreadGroup {
public:
    ThreadGroup(ThreadWorld& world, std::vector<std::int64_t> members);

    std::size_t size() const { return members_.size(); }
    const std::vector<std::int64_t>& members() const { return members_; }

    // Posts and waits until every member has; throws if they brought different things.
    void meet(std::size_t me, const Posting& mine);
    void meet(std::size_t me, const char* what);  // without posting
    const Posting& posting(std::size_t member) const { return seats_[member].posting; }

    // A message: the sender waits until the receiver has copied it. `met` is called when both are there.
    void send(std::size_t me, std::size_t to, const Posting& message, const std::function<void()>& met);
    void recv(std::size_t me, std::size_t from, const Posting& wanted, const std::function<void()>& met);

    void count_sent(std::size_t member, InstructionKind kind, std::int64_t bytes);
    Bytes sent(std::size_t member, InstructionKind kind) const;

    void release();  // wakes whoever waits here: the world is aborted

private:
    static constexpr std::size_t kinds = static_cast<std::size_t>(InstructionKind::step_end) + 1;
    // A member's place; on lines of its own, because its neighbours write theirs at the same time.
    struct alignas(64) Seat {
        std::atomic<std::int64_t> arrived{0};
        Posting posting;
        std::array<std::atomic<std::int64_t>, kinds> sent{};
    };
    struct alignas(64) Mailbox {
        std::atomic<std::int64_t> posted{0};  // messages offered
        std::atomic<std::int64_t> wanted{0};  // messages that the receiver has come for
        std::atomic<std::int64_t> taken{0};   // messages copied
        Posting message;
        Notifier changed;
    };
    Mailbox& mailbox(std::size_t from, std::size_t to) { return mailboxes_[from * size() + to]; }
    void require_match(std::size_t me) const;

    ThreadWorld& world_;
    std::vector<std::int64_t> members_;
    std::vector<Seat> seats_;
    std::vector<Mailbox> mailboxes_;
    Notifier changed_;
};

}  // namespace foretrain
