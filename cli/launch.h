// Starting `foretrain-exec`, the binary that links the engine, as git starts its subcommands: the
// one beside this program, else the one on PATH.
//
//   TemporaryFolder folder;
//   int code = launch_exec(console, {"run", "--plan", folder.file("plan.json")}, Output::inherit);
//
// Errors: RunError if it cannot be started or is ended by a signal.
#pragma once

#include <string>

#include "cli/command.h"

namespace foretrain::cli {

// Where the started program's standard output goes: to ours, or to our standard error where ours
// holds a report.
enum class Output { inherit, to_error };

int launch_exec(Console& console, const Arguments& arguments, Output output);

// A folder that goes with its owner.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

}  // namespace foretrain::cli
