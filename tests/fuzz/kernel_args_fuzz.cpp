// A kernel's arguments as text: they read back as they are printed, and their work can be counted.
#include "plan/program/kernel_args.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const KernelArgs args = kernel_args_from_text(text);
        fuzz::require(to_text(kernel_args_from_text(to_text(args))) == to_text(args), "a kernel reads back");
        fuzz::require(work(args).bytes.value >= 0 && work(args).flops.value >= 0, "work is counted");
        for (int o = 0; o < operand_count(args); ++o)
            fuzz::require(operand_elements(args, o) >= 0, "an operand has a size");
    });
}
