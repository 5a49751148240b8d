#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace foretrain {

Workers::Workers(int count)
    : count_(count > 0 ? count : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {}

void Workers::for_each(std::size_t n, const std::function<void(std::size_t i, int worker)>& f) const {
    std::atomic<std::size_t> next{0};
    std::vector<std::exception_ptr> errors(std::clamp<std::size_t>(n, 1, static_cast<std::size_t>(count_)));
    const auto work = [&](std::size_t self) {
        try {
            for (std::size_t i = next++; i < n; i = next++) f(i, static_cast<int>(self));
        } catch (...) {
            errors[self] = std::current_exception();
            next = n;
        }
    };
    std::vector<std::thread> pool;
    try {
        for (std::size_t t = 1; t < std::min(errors.size(), n); ++t) pool.emplace_back(work, t);
    } catch (const std::system_error&) {
        // No more threads to be had: those that started do the work.
    }
    work(0);
    for (std::thread& t : pool) t.join();
    for (const std::exception_ptr& e : errors)
        if (e) std::rethrow_exception(e);
}

}  // namespace foretrain
