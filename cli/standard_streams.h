// A process may be started with a standard stream closed (`foretrain-exec run --trace T >&-`). The next
// file opened would then take its number, and a message meant for the stream would land in the file.
//
//   int main(...) { open_standard_streams(); ... }
//
// A stream that was closed stays useless: reading or writing it fails, and who checks is told.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace foretrain {

inline void open_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(stream, F_GETFD) < 0) {
            // The lowest free number is this stream's: those below it are open by now.
            [[maybe_unused]] const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
}

}  // namespace foretrain
