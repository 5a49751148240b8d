// A place to wait for another thread: spins briefly, because what is waited for is often microseconds
// away, then sleeps, because ranks may outnumber cores and a spinning thread would hold up the one
// it waits for.
//
// Whoever changes what is waited for writes a sequentially consistent atomic and calls notify(),
// which costs one load while nobody sleeps. The waiter gives a test of such atomics.
//
//   std::atomic<bool> done{false};
//   Notifier notifier;
//   done.store(true); notifier.notify();                    // one thread
//   notifier.wait([&] { return done.load(); });             // another
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace foretrain {

class Notifier {
public:
    Notifier() = default;
    Notifier(const Notifier&) = delete;
    Notifier& operator=(const Notifier&) = delete;

    void notify() {
        // Sequential consistency decides between this load and the waiter's test: either the waiter
        // sees the change or it is counted here.
        if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
    }

    template <class Ready>
    void wait(Ready ready) {
        if (spin(ready)) return;
        std::unique_lock lock(mutex_);
        const Sleeper counted(sleepers_);
        changed_.wait(lock, ready);
    }

    // False if `ready` did not come true within `at_most`.
    template <class Ready>
    bool wait_for(Ready ready, std::chrono::milliseconds at_most) {
        if (spin(ready)) return true;
        std::unique_lock lock(mutex_);
        const Sleeper counted(sleepers_);
        // Not wait_for: gcc's thread sanitizer does not know the steady-clock wait underneath it.
        return changed_.wait_until(lock, std::chrono::system_clock::now() + at_most, ready);
    }

private:
    struct Sleeper {
        explicit Sleeper(std::atomic<int>& counter) : count(counter) { count.fetch_add(1, std::memory_order_seq_cst); }
        ~Sleeper() { count.fetch_sub(1, std::memory_order_seq_cst); }
        Sleeper(const Sleeper&) = delete;
        Sleeper& operator=(const Sleeper&) = delete;
        std::atomic<int>& count;
    };

    static constexpr int spins = 64;   // about 2 microseconds
    static constexpr int yields = 32;  // lets a rank that shares this core go ahead

    template <class Ready>
    static bool spin(Ready& ready) {
        for (int i = 0; i < spins; ++i) {
            if (ready()) return true;
            pause();
        }
        for (int i = 0; i < yields; ++i) {
            if (ready()) return true;
            std::this_thread::yield();
        }
        return ready();
    }

    static void pause() {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }

    std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace foretrain
