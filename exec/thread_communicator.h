// Communicators between the threads of one process: members post the addresses of their tensors,
// meet, copy, and meet again. The reference for every other implementation.
//
// Sums are taken in the order of the members: element e is ((x0 + x1) + x2) + ... whoever computes
// it, so results are the same bits on every member and in every run. Each member reduces the run
// that block_range() gives it and hands it out. Bytes are counted in the copy loops.
//
//   ThreadWorld world(4, std::chrono::seconds(60));
//   auto group = world.join({0, 1, 2, 3}, rank, 0);     // in rank's thread
//   group->all_reduce(stream, data, count, DType::fp32, Reduction::sum);
//
// A member that waits while no rank of the world begins an instruction for the whole time limit
// throws a RunError that names who is missing: a hang is a defect, and should read like one.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "exec/communicator.h"
#include "exec/notifier.h"

namespace foretrain {

class ThreadGroup;

class ThreadWorld final : public World {
public:
    // Says what an instruction of a rank is, for errors.
    using Describe = std::function<std::string(std::int64_t rank, std::int32_t instruction)>;

    ThreadWorld(std::int64_t ranks, std::chrono::milliseconds time_limit, Describe describe = {});
    ~ThreadWorld() override;

    std::unique_ptr<Communicator> join(const std::vector<std::int64_t>& members, std::int64_t rank,
                                       std::int64_t channel) override;
    void barrier(std::int64_t rank) override;
    void abort(std::int64_t rank, const std::string& why) override;

    RankProgress& progress(std::int64_t rank) { return progress_[static_cast<std::size_t>(rank)]; }
    std::string failure() const;  // the cause, or "" while nothing has failed

    // For its groups: waits on `notifier`; throws when the world is aborted or stands still.
    // `missing` lists the ranks that are waited for.
    void await(Notifier& notifier, const std::function<bool()>& ready,
               const std::function<std::vector<std::int64_t>()>& missing, const char* what);
    bool aborted() const { return aborted_.load(); }

private:
    std::int64_t begun() const;  // instructions by all ranks: grows while anything moves
    std::string standing_still(const std::vector<std::int64_t>& missing, const char* what);

    std::vector<RankProgress> progress_;
    std::chrono::milliseconds time_limit_;
    Describe describe_;
    std::atomic<bool> aborted_{false};
    mutable std::mutex mutex_;  // of what follows
    std::string failure_;
    std::map<std::pair<std::vector<std::int64_t>, std::int64_t>, std::unique_ptr<ThreadGroup>> groups_;
    std::unique_ptr<ThreadGroup> everyone_;
};

}  // namespace foretrain
