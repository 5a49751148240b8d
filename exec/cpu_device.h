// The device that is this machine's processor: a stream is a worker thread with a FIFO queue, so
// that streams really overlap; an event is a counter.
//
//   CpuDevice device(cpu_kernels());
//   CpuStream& stream = device.make_stream("compute", StreamUse::compute);
//   stream.enqueue([=] { *p = 1; });          // captures: plain data only
//   device.synchronize();
//
// After a task has thrown, all streams of the device skip their tasks, except records: so every
// event completes and every wait inside the device ends. Waits for other ranks are the
// communicator's: the error handler is the place to release them.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "exec/device.h"
#include "exec/notifier.h"

namespace foretrain {

// A call with its captures inside, so that enqueuing allocates nothing. Plain data only.
class Task {
public:
    template <class F>
    explicit Task(F call, bool always = false) : always_(always) {
        static_assert(std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>, "capture plain data");
        static_assert(sizeof(F) <= sizeof(storage_) && alignof(F) <= alignof(std::max_align_t), "captures too much");
        new (static_cast<void*>(storage_)) F(call);
        run_ = [](void* storage) { (*std::launder(static_cast<F*>(storage)))(); };
    }
    void operator()() { run_(storage_); }
    bool always() const { return always_; }  // runs after an error too

private:
    void (*run_)(void*);
    bool always_;
    alignas(std::max_align_t) std::byte storage_[64];
};

class CpuDevice;

class CpuEvent final : public DeviceEvent {
public:
    void synchronize() override;

private:
    friend class CpuStream;
    void await(std::int64_t count);

    std::int64_t recorded_ = 0;  // the host's side: records enqueued
    std::atomic<std::int64_t> completed_{0};
    Notifier changed_;
};

class CpuStream final : public DeviceStream {
public:
    CpuStream(CpuDevice& device, std::string name);
    ~CpuStream() override;
    CpuStream(const CpuStream&) = delete;
    CpuStream& operator=(const CpuStream&) = delete;

    void kernel(const KernelArgs& args, const KernelContext& context) override;
    void fill(void* to, Bytes bytes) override;
    void copy(void* to, const void* from, Bytes bytes) override;
    void produce(void* to, Bytes bytes, const HostWork& make) override;
    void record(DeviceEvent& event) override;
    void wait(DeviceEvent& event) override;
    void begin(Span& span) override;
    void end(Span& span) override;

    template <class F>
    void enqueue(F call) {
        push(Task(call));
    }
    void synchronize();  // until all that was enqueued has run or been skipped
    // For the task at work: what it waited for is there, and its span begins only now.
    void restart_span();
    // Keeps the worker on one processor of those that this process may use, counted from 0 and around.
    void bind(std::int64_t processor);

private:
    void push(const Task& task);
    void work();
    void run(std::vector<Task>& batch);

    CpuDevice& device_;
    std::string name_;
    Span* span_ = nullptr;  // in work; the worker's own
    std::mutex mutex_;
    std::vector<Task> incoming_;  // under mutex_
    std::atomic<std::int64_t> pushed_{0};
    std::atomic<std::int64_t> done_{0};
    std::atomic<bool> stop_{false};
    Notifier arrived_, drained_;
    std::thread worker_;  // last: it uses all of the above
};

class CpuDevice final : public Device {
public:
    // `progress`, if given, is kept up to date; it and `kernels` outlive the device.
    explicit CpuDevice(const KernelTable& kernels, RankProgress* progress = nullptr);
    ~CpuDevice() override;
    CpuDevice(const CpuDevice&) = delete;
    CpuDevice& operator=(const CpuDevice&) = delete;

    std::byte* allocate(Bytes bytes) override;
    Bytes allocated() const override { return allocated_; }
    CpuStream& make_stream(const std::string& name, StreamUse use) override;
    CpuEvent& make_event() override;
    void write(void* to, const void* host, Bytes bytes) override;
    void read(void* host, const void* from, Bytes bytes) override;
    Time now() const override;
    // Compute streams made from now on stay on this processor.
    void bind_compute(std::int64_t processor) { compute_processor_ = processor; }
    void on_error(ErrorHandler handler) override { handler_ = std::move(handler); }
    void synchronize() override;

private:
    friend class CpuStream;
    struct Mapping {
        void* address;
        std::size_t bytes;
    };
    bool failed() const { return failed_.load(std::memory_order_acquire); }
    void fail(std::int32_t instruction, const std::exception_ptr& error);

    const KernelTable& kernels_;
    RankProgress* progress_;
    ErrorHandler handler_;
    std::int64_t compute_processor_ = -1;  // -1: anywhere
    std::atomic<bool> failed_{false};
    std::mutex error_mutex_;
    std::exception_ptr error_;  // the first; under error_mutex_
    std::vector<Mapping> mappings_;
    Bytes allocated_;
    std::vector<std::unique_ptr<CpuEvent>> events_;
    std::vector<std::unique_ptr<CpuStream>> streams_;  // last: their workers use the rest
};

}  // namespace foretrain
