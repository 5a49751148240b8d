#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace foretrain {

void open_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(stream, F_GETFD) < 0) {
            // The lowest free number is this stream's: those below it are open by now.
            [[maybe_unused]] const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
}

}  // namespace foretrain
