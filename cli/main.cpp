// The binary `foretrain`: streams and its own folder, nothing else.
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "base/standard_streams.h"
#include "cli/command.h"

namespace {

// A sweep makes and drops a hundred kilobytes ten thousand times. Memory that goes back to the system each
// time comes again page by page: a sixth of the whole time.
void keep_freed_memory() {
#ifdef M_MMAP_THRESHOLD
    constexpr int never = 1 << 30;
    mallopt(M_MMAP_THRESHOLD, never);
    mallopt(M_TRIM_THRESHOLD, never);
    mallopt(M_TOP_PAD, 32 << 20);
#endif
}

}  // namespace

int main(int argc, char** argv) {
    keep_freed_memory();
    foretrain::open_standard_streams();
    std::error_code unknown;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
    foretrain::cli::Console console{.out = std::cout,
                                    .err = std::cerr,
                                    .folder = unknown ? std::string() : self.parent_path().string(),
                                    .interactive = isatty(STDERR_FILENO) == 1};
    return foretrain::cli::front_door({argv + 1, argv + argc}, console);
}
