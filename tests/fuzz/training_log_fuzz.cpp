// What a training run printed: any text.
#include "plan/training_log.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const TrainingLog log =
            read_training_log(text, "input", {.global_batch_size = 128, .sequence_length = 8192, .devices = 16});
        fuzz::require(!log.step_times.empty() && log.step_time_s() > 0, "a log that is read has a step time");
    });
}
