// Work on several threads: f(i, worker) for every i, each worker one thread at a time, so that it can have
// room of its own. An exception of any is thrown to the caller.
//
//   Workers workers(0);                                      // as many as the machine has
//   workers.for_each(100, [&](std::size_t i, int worker) { out[i] = costs[worker].of(i); });
#pragma once

#include <cstddef>
#include <functional>

namespace foretrain {

class Workers {
public:
    explicit Workers(int count);  // 0: as many as the machine has
    int count() const { return count_; }
    void for_each(std::size_t n, const std::function<void(std::size_t i, int worker)>& f) const;

private:
    int count_;
};

}  // namespace foretrain
