// A process may be started with a standard stream closed (`foretrain-exec run --trace T >&-`). The next
// file opened would then take its number, and a message meant for the stream would land in the file.
//
//   int main(...) { open_standard_streams(); ... }
//
// A stream that was closed stays useless: reading or writing it fails, and who checks is told.
#pragma once

namespace foretrain {

void open_standard_streams();

}  // namespace foretrain
