#include "exec/thread_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "exec/cpu_device.h"
#include "exec/thread_group.h"

namespace foretrain {

namespace {

// Sums are taken in pieces that stay in the first-level cache.
constexpr std::int64_t piece = 2048;  // elements

template <class T>
void combine(T* into, const T* from, std::int64_t count, Reduction op) {
    if (op == Reduction::sum) {
        for (std::int64_t e = 0; e < count; ++e) into[e] += from[e];
    } else {
        for (std::int64_t e = 0; e < count; ++e) into[e] = std::max(into[e], from[e]);
    }
}

CpuStream& cpu_stream(DeviceStream& stream) {
    auto* mine = dynamic_cast<CpuStream*>(&stream);
    FORETRAIN_CHECK(mine != nullptr, "a thread communicator needs CPU streams");
    return *mine;
}

class ThreadCommunicator final : public Communicator {
public:
    ThreadCommunicator(ThreadGroup& group, std::size_t me) : group_(group), me_(me) {}

    void all_reduce(DeviceStream& stream, void* data, std::int64_t count, DType type, Reduction op) override {
        enqueue(stream, {InstructionKind::all_reduce, type, op, count, data, data});
    }
    void reduce_scatter(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type,
                        Reduction op) override {
        enqueue(stream, {InstructionKind::reduce_scatter, type, op, count, from, to});
    }
    void all_gather(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type) override {
        enqueue(stream, {InstructionKind::all_gather, type, Reduction::sum, count, from, to});
    }
    void all_to_all(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type) override {
        enqueue(stream, {InstructionKind::all_to_all, type, Reduction::sum, count, from, to});
    }
    void ring_shift(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type) override {
        enqueue(stream, {InstructionKind::ring_shift, type, Reduction::sum, count, from, to});
    }
    void send(DeviceStream& stream, const void* from, std::int64_t count, DType type, std::int64_t member) override {
        const Posting message{InstructionKind::send, type, Reduction::sum, count, from, nullptr};
        CpuStream* on = &cpu_stream(stream);
        on->enqueue([this, on, message, to = static_cast<std::uint32_t>(member)] {
            group_.send(me_, to, message, [on] { on->restart_span(); });
        });
    }
    void recv(DeviceStream& stream, void* to, std::int64_t count, DType type, std::int64_t member) override {
        const Posting wanted{InstructionKind::recv, type, Reduction::sum, count, nullptr, to};
        CpuStream* on = &cpu_stream(stream);
        on->enqueue([this, on, wanted, from = static_cast<std::uint32_t>(member)] {
            group_.recv(me_, from, wanted, [on] { on->restart_span(); });
        });
    }
    Bytes wire(InstructionKind kind) const override { return group_.sent(me_, kind); }

private:
    void enqueue(DeviceStream& stream, const Posting& mine) {
        CpuStream* on = &cpu_stream(stream);
        on->enqueue([this, on, mine] { collective(*on, mine); });
    }

    void collective(CpuStream& stream, const Posting& mine) {
        group_.meet(me_, mine);
        stream.restart_span();
        switch (mine.kind) {
            case InstructionKind::all_gather: gather(mine); break;
            case InstructionKind::all_to_all: exchange(mine); break;
            case InstructionKind::ring_shift: shift(mine); break;
            default: reduce(mine); break;
        }
        group_.meet(me_, name_of(mine.kind).data());
    }

    void reduce(const Posting& mine) {
        switch (mine.type) {
            case DType::fp32: return reduce<float>(mine);
            case DType::fp64: return reduce<double>(mine);
            case DType::int32: return reduce<std::int32_t>(mine);
            default: throw RunError(fmt::format("cannot reduce elements of {}", name_of(mine.type)));
        }
    }

    // This member's run of the elements, piece by piece: reads it on every member, in their order,
    // then gives the result out. Nobody else touches this run, so no member waits for another.
    template <class T>
    void reduce(const Posting& mine) {
        const std::size_t size = group_.size();
        const bool give_out = mine.kind == InstructionKind::all_reduce;
        auto [first, last] = give_out ? block_range(mine.count, index(size), index(me_))
                                      : std::pair{index(me_) * mine.count, index(me_ + 1) * mine.count};
        const std::int64_t origin = give_out ? 0 : first;  // what `to` begins with
        std::vector<std::int64_t> sent(size, 0);
        std::array<T, piece> sum;
        for (std::int64_t begin = first; begin < last; begin += piece) {
            const std::int64_t n = std::min(piece, last - begin);
            const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
            for (std::size_t i = 0; i < size; ++i) {
                const T* from = static_cast<const T*>(group_.posting(i).from) + begin;
                if (i == 0) {
                    std::memcpy(sum.data(), from, bytes);
                } else {
                    combine(sum.data(), from, n, mine.reduction);
                }
                if (i != me_) sent[i] += index(bytes);
            }
            std::memcpy(static_cast<T*>(mine.to) + (begin - origin), sum.data(), bytes);
            for (std::size_t i = 0; give_out && i < size; ++i) {
                if (i == me_) continue;
                std::memcpy(static_cast<T*>(group_.posting(i).to) + begin, sum.data(), bytes);
                sent[me_] += index(bytes);
            }
        }
        count(mine.kind, sent);
    }

    void gather(const Posting& mine) {
        const std::int64_t bytes = mine.count * size_of(mine.type);
        std::vector<std::int64_t> sent(group_.size(), 0);
        for (std::size_t i = 0; i < group_.size(); ++i) {
            std::byte* to = static_cast<std::byte*>(mine.to) + index(i) * bytes;
            const void* from = group_.posting(i).from;
            if (to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));  // in place: it is there
            if (i != me_) sent[i] += bytes;
        }
        count(mine.kind, sent);
    }

    void exchange(const Posting& mine) {
        const std::int64_t bytes = mine.count * size_of(mine.type);
        std::vector<std::int64_t> sent(group_.size(), 0);
        for (std::size_t i = 0; i < group_.size(); ++i) {
            const auto* from = static_cast<const std::byte*>(group_.posting(i).from) + index(me_) * bytes;
            std::memcpy(static_cast<std::byte*>(mine.to) + index(i) * bytes, from, static_cast<std::size_t>(bytes));
            if (i != me_) sent[i] += bytes;
        }
        count(mine.kind, sent);
    }

    void shift(const Posting& mine) {
        const std::size_t before = (me_ + group_.size() - 1) % group_.size();
        const std::int64_t bytes = mine.count * size_of(mine.type);
        std::memcpy(mine.to, group_.posting(before).from, static_cast<std::size_t>(bytes));
        if (before != me_) group_.count_sent(before, mine.kind, bytes);
    }

    void count(InstructionKind kind, const std::vector<std::int64_t>& sent) {
        for (std::size_t i = 0; i < sent.size(); ++i)
            if (sent[i] != 0) group_.count_sent(i, kind, sent[i]);
    }

    static std::int64_t index(std::size_t i) { return static_cast<std::int64_t>(i); }

    ThreadGroup& group_;
    std::size_t me_;
};

std::vector<std::int64_t> all_ranks(std::int64_t count) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t r = 0; r < count; ++r) ranks.push_back(r);
    return ranks;
}

}  // namespace

ThreadWorld::ThreadWorld(std::int64_t ranks, std::chrono::milliseconds time_limit, Describe describe)
    : progress_(static_cast<std::size_t>(ranks)),
      time_limit_(time_limit),
      describe_(std::move(describe)),
      everyone_(std::make_unique<ThreadGroup>(*this, all_ranks(ranks))) {}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Communicator> ThreadWorld::join(const std::vector<std::int64_t>& members, std::int64_t rank,
                                                std::int64_t channel) {
    const auto me = std::find(members.begin(), members.end(), rank);
    FORETRAIN_CHECK(me != members.end(), "a rank joins a group that it is not of");
    const std::lock_guard lock(mutex_);
    std::unique_ptr<ThreadGroup>& group = groups_[{members, channel}];
    if (!group) group = std::make_unique<ThreadGroup>(*this, members);
    return std::make_unique<ThreadCommunicator>(*group, static_cast<std::size_t>(me - members.begin()));
}

void ThreadWorld::barrier(std::int64_t rank) { everyone_->meet(static_cast<std::size_t>(rank), "barrier"); }

void ThreadWorld::abort(std::int64_t rank, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    failure_ = fmt::format("rank {} failed: {}", rank, why);
    aborted_.store(true);
    everyone_->release();
    for (auto& [key, group] : groups_) group->release();
}

std::string ThreadWorld::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void ThreadWorld::await(Notifier& notifier, const std::function<bool()>& ready,
                        const std::function<std::vector<std::int64_t>()>& missing, const char* what) {
    const auto over = [&] { return ready() || aborted(); };
    constexpr int slices = 4;  // of the time limit, between looks at whether anything moved
    int still = 0;
    for (std::int64_t seen = -1;;) {
        // Checked first: what is ready after an abort may have been left half done.
        if (aborted()) throw RunError(failure());
        if (notifier.wait_for(over, time_limit_ / slices)) {
            if (aborted()) continue;
            return;
        }
        const std::int64_t now = begun();
        still = now == seen ? still + 1 : 1;
        seen = now;
        if (still == slices) throw RunError(standing_still(missing(), what));
    }
}

std::int64_t ThreadWorld::begun() const {
    std::int64_t total = 0;
    for (const RankProgress& p : progress_) total += p.begun.load(std::memory_order_relaxed);
    return total;
}

std::string ThreadWorld::standing_still(const std::vector<std::int64_t>& missing, const char* what) {
    std::vector<std::string> who;
    for (const std::int64_t rank : missing) {
        const std::int32_t last = progress(rank).last_instruction.load(std::memory_order_relaxed);
        const std::string where = last < 0    ? "no instruction"
                                  : describe_ ? describe_(rank, last)
                                              : fmt::format("instruction {}", last);
        who.push_back(fmt::format("rank {} (last began {})", rank, where));
    }
    return fmt::format("nothing moved for {} s while waiting in {} for {}",
                       std::chrono::duration<double>(time_limit_).count(), what, fmt::join(who, " and "));
}

}  // namespace foretrain
