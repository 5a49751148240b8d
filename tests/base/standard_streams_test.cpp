#include "base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace foretrain {
namespace {

TEST(StandardStreams, AClosedOneIsNoFilesNumber) {
    EXPECT_EXIT(
        {
            close(STDIN_FILENO);
            close(STDOUT_FILENO);
            open_standard_streams();
            const int file = open("/dev/null", O_WRONLY);
            const bool writing_fails = write(STDOUT_FILENO, "x", 1) < 0;
            std::_Exit(file > STDERR_FILENO && writing_fails ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace foretrain
