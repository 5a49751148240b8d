// Where a rank's work runs: the engine enqueues on streams and learns of completion through events
// only, so that nothing above this line knows whether a stream is a thread of this process or a
// queue on an accelerator.
//
// Streams run in order and concurrently with each other. Addresses belong to the device; the host
// reads and writes them through read() and write(). What is passed by reference to a stream must
// live until the stream has been synchronized. After an error nothing more is run, everything that
// waits is released, and synchronize() throws the first error.
//
//   std::byte* arena = device.allocate(bytes);                    // once, zeroed
//   DeviceStream& compute = device.make_stream("compute", StreamUse::compute);
//   DeviceEvent& done = device.make_event();
//   compute.kernel(args, context);
//   compute.record(done);
//   other.wait(done);                                             // returns at once: `other` will wait
//   device.synchronize();
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "base/units.h"
#include "kernels/kernel_table.h"
#include "plan/program/trace.h"

namespace foretrain {

// Writes `bytes` at `host` when its stream reaches it.
using HostWork = std::function<void(void* host)>;

// How far a rank has come, for whoever waits for it and has to say where it stands.
struct alignas(64) RankProgress {
    std::atomic<std::int32_t> last_instruction{-1};  // last one begun on any stream
    std::atomic<std::int64_t> begun{0};
};

// Completes when the stream that recorded it last gets there; a wait names the last record before it.
class DeviceEvent {
public:
    virtual ~DeviceEvent() = default;
    virtual void synchronize() = 0;  // holds the host
};

// What a stream is for. Compute has the device, or a processor of the host, to itself where it can;
// communication runs beside it.
enum class StreamUse : std::uint8_t { compute, communication };

class DeviceStream {
public:
    virtual ~DeviceStream() = default;

    virtual void kernel(const KernelArgs& args, const KernelContext& context) = 0;
    virtual void fill(void* to, Bytes bytes) = 0;  // with zero
    virtual void copy(void* to, const void* from, Bytes bytes) = 0;
    virtual void produce(void* to, Bytes bytes, const HostWork& make) = 0;  // made on the host, then brought to `to`

    virtual void record(DeviceEvent& event) = 0;
    virtual void wait(DeviceEvent& event) = 0;

    // Bracket the work in between: its times are in `span` once the stream is synchronized, and an
    // error in it is reported under the span's instruction. Communication begins when all members are
    // there, as far as its communicator can tell: waiting for a late one is the late one's time.
    virtual void begin(Span& span) = 0;
    virtual void end(Span& span) = 0;
};

class Device {
public:
    // Called once, on the thread that failed: time to release whoever waits for this rank.
    using ErrorHandler = std::function<void(std::int32_t instruction, const std::exception_ptr& error)>;

    virtual ~Device() = default;

    // Page-aligned and zeroed; lives as long as the device.
    virtual std::byte* allocate(Bytes bytes) = 0;
    virtual Bytes allocated() const = 0;  // handed out so far
    virtual DeviceStream& make_stream(const std::string& name, StreamUse use) = 0;
    virtual DeviceEvent& make_event() = 0;

    virtual void write(void* to, const void* host, Bytes bytes) = 0;
    virtual void read(void* host, const void* from, Bytes bytes) = 0;

    virtual Time now() const = 0;                     // the clock of the spans
    virtual void on_error(ErrorHandler handler) = 0;  // before any work
    virtual void synchronize() = 0;
};

}  // namespace foretrain
