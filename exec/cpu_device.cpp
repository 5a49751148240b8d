#include "exec/cpu_device.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <chrono>

#include "base/error.h"

namespace foretrain {

namespace {

CpuEvent& cpu_event(DeviceEvent& event) {
    auto* mine = dynamic_cast<CpuEvent*>(&event);
    FORETRAIN_CHECK(mine != nullptr, "an event of another device");
    return *mine;
}

}  // namespace

void CpuEvent::await(std::int64_t count) {
    changed_.wait([&] { return completed_.load() >= count; });
}

void CpuEvent::synchronize() { await(recorded_); }

CpuStream::CpuStream(CpuDevice& device, std::string name)
    : device_(device), name_(std::move(name)), worker_([this] { work(); }) {
    // The kernel shows 15 characters: debuggers and profilers tell the streams apart.
    pthread_setname_np(worker_.native_handle(), name_.substr(0, 15).c_str());
}

CpuStream::~CpuStream() {
    stop_.store(true);
    arrived_.notify();
    worker_.join();
}

void CpuStream::push(const Task& task) {
    {
        const std::lock_guard lock(mutex_);
        incoming_.push_back(task);
    }
    pushed_.fetch_add(1);
    arrived_.notify();
}

void CpuStream::synchronize() {
    const std::int64_t goal = pushed_.load();
    drained_.wait([&] { return done_.load() >= goal; });
}

void CpuStream::bind(std::int64_t processor) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;  // it runs anywhere then
    std::int64_t wanted = processor % std::max(CPU_COUNT(&allowed), 1);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || wanted-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        static_cast<void>(pthread_setaffinity_np(worker_.native_handle(), sizeof(one), &one));
        return;
    }
}

void CpuStream::work() {
    std::vector<Task> batch;  // swapped with the queue, so that neither allocates in the long run
    for (;;) {
        arrived_.wait([&] { return pushed_.load() > done_.load() || stop_.load(); });
        {
            const std::lock_guard lock(mutex_);
            batch.swap(incoming_);
        }
        if (batch.empty()) {
            if (stop_.load()) return;
            continue;  // counted, not yet seen: cannot happen while push() counts last
        }
        run(batch);
        done_.fetch_add(static_cast<std::int64_t>(batch.size()));
        batch.clear();
        drained_.notify();
    }
}

void CpuStream::run(std::vector<Task>& batch) {
    for (Task& task : batch) {
        if (device_.failed() && !task.always()) continue;
        try {
            task();
        } catch (...) {
            device_.fail(span_ == nullptr ? -1 : span_->instruction, std::current_exception());
        }
    }
}

void CpuStream::kernel(const KernelArgs& args, const KernelContext& context) {
    enqueue([table = &device_.kernels_, call = &args, context] { launch(*table, *call, context); });
}

void CpuStream::fill(void* to, Bytes bytes) {
    enqueue([to, size = static_cast<std::size_t>(bytes.value)] { std::memset(to, 0, size); });
}

void CpuStream::copy(void* to, const void* from, Bytes bytes) {
    enqueue([to, from, size = static_cast<std::size_t>(bytes.value)] { std::memmove(to, from, size); });
}

void CpuStream::produce(void* to, Bytes, const HostWork& make) {
    enqueue([to, work = &make] { (*work)(to); });
}

void CpuStream::record(DeviceEvent& event) {
    CpuEvent* mine = &cpu_event(event);
    const std::int64_t count = ++mine->recorded_;
    const auto complete = [mine, count] {
        mine->completed_.store(count);
        mine->changed_.notify();
    };
    push(Task(complete, true));
}

void CpuStream::wait(DeviceEvent& event) {
    CpuEvent* mine = &cpu_event(event);
    enqueue([mine, count = mine->recorded_] { mine->await(count); });
}

void CpuStream::begin(Span& span) {
    enqueue([this, at = &span] {
        span_ = at;
        if (RankProgress* progress = device_.progress_) {
            progress->last_instruction.store(at->instruction, std::memory_order_relaxed);
            progress->begun.fetch_add(1, std::memory_order_relaxed);
        }
        at->start = device_.now();
    });
}

void CpuStream::end(Span& span) {
    enqueue([this, at = &span] {
        at->end = device_.now();
        span_ = nullptr;
    });
}

void CpuStream::restart_span() {
    if (span_ != nullptr) span_->start = device_.now();
}

CpuDevice::CpuDevice(const KernelTable& kernels, RankProgress* progress) : kernels_(kernels), progress_(progress) {}

CpuDevice::~CpuDevice() {
    failed_.store(true);  // work that nobody synchronized is of no use to anyone
    streams_.clear();
    for (const Mapping& m : mappings_) munmap(m.address, m.bytes);
}

std::byte* CpuDevice::allocate(Bytes bytes) {
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes.value, 1));
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) throw RunError(fmt::format("cannot allocate an arena of {} bytes", bytes.value));
    mappings_.push_back({address, size});
    allocated_ += bytes;
    // Large pages spare the GEMMs address-translation misses; a refusal does no harm.
    static_cast<void>(madvise(address, size, MADV_HUGEPAGE));
    // Touched now: memory that is not there is found out before the first step and not during it.
    std::memset(address, 0, size);
    return static_cast<std::byte*>(address);
}

CpuStream& CpuDevice::make_stream(const std::string& name, StreamUse use) {
    streams_.push_back(std::make_unique<CpuStream>(*this, name));
    if (use == StreamUse::compute && compute_processor_ >= 0) streams_.back()->bind(compute_processor_);
    return *streams_.back();
}

CpuEvent& CpuDevice::make_event() {
    events_.push_back(std::make_unique<CpuEvent>());
    return *events_.back();
}

void CpuDevice::write(void* to, const void* host, Bytes bytes) {
    std::memcpy(to, host, static_cast<std::size_t>(bytes.value));
}

void CpuDevice::read(void* host, const void* from, Bytes bytes) {
    std::memcpy(host, from, static_cast<std::size_t>(bytes.value));
}

Time CpuDevice::now() const {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return Time{1000 * std::chrono::duration_cast<std::chrono::nanoseconds>(since).count()};
}

void CpuDevice::synchronize() {
    for (const auto& stream : streams_) stream->synchronize();
    const std::lock_guard lock(error_mutex_);
    if (error_) std::rethrow_exception(error_);
}

void CpuDevice::fail(std::int32_t instruction, const std::exception_ptr& error) {
    {
        const std::lock_guard lock(error_mutex_);
        if (error_) return;
        error_ = error;
    }
    failed_.store(true, std::memory_order_release);
    if (handler_) handler_(instruction, error);
}

}  // namespace foretrain
