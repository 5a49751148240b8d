// The binary `foretrain`: streams and its own folder, nothing else.
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "base/standard_streams.h"
#include "cli/command.h"

int main(int argc, char** argv) {
    foretrain::open_standard_streams();
    std::error_code unknown;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
    foretrain::cli::Console console{.out = std::cout,
                                    .err = std::cerr,
                                    .folder = unknown ? std::string() : self.parent_path().string(),
                                    .interactive = isatty(STDERR_FILENO) == 1};
    return foretrain::cli::front_door({argv + 1, argv + argc}, console);
}
