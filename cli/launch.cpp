#include "cli/launch.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>

#include "base/error.h"

extern char** environ;

namespace foretrain::cli {

namespace {

constexpr const char* exec_name = "foretrain-exec";

// While a child runs, an interrupt from the terminal is the child's to answer: we stay to clean up.
class InterruptsLeftToChild {
public:
    InterruptsLeftToChild() {
        struct sigaction ignore = {};
        ignore.sa_handler = SIG_IGN;
        sigaction(SIGINT, &ignore, &interrupt_);
        sigaction(SIGQUIT, &ignore, &quit_);
    }
    ~InterruptsLeftToChild() {
        sigaction(SIGINT, &interrupt_, nullptr);
        sigaction(SIGQUIT, &quit_, nullptr);
    }
    InterruptsLeftToChild(const InterruptsLeftToChild&) = delete;
    InterruptsLeftToChild& operator=(const InterruptsLeftToChild&) = delete;

private:
    struct sigaction interrupt_ = {};
    struct sigaction quit_ = {};
};

pid_t spawn(const std::string& program, const Arguments& arguments, Output output) {
    std::vector<char*> argv{const_cast<char*>(exec_name)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (output == Output::to_error) posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t reset;
    sigemptyset(&reset);
    sigaddset(&reset, SIGINT);
    sigaddset(&reset, SIGQUIT);
    posix_spawnattr_setsigdefault(&attributes, &reset);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

    pid_t child = 0;
    const int error = posix_spawnp(&child, program.c_str(), &files, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (error == ENOENT)
        throw RunError(fmt::format("cannot start {0}: it is neither beside foretrain nor on PATH", exec_name));
    if (error != 0) throw RunError(fmt::format("cannot start {}: {}", program, std::strerror(error)));
    return child;
}

int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) throw RunError(fmt::format("lost {}: {}", exec_name, std::strerror(errno)));
    if (WIFSIGNALED(status))
        throw RunError(
            fmt::format("{} was ended by signal {} ({})", exec_name, WTERMSIG(status), strsignal(WTERMSIG(status))));
    return WEXITSTATUS(status);
}

}  // namespace

int launch_exec(Console& console, const Arguments& arguments, Output output) {
    console.out.flush();
    console.err.flush();
    const std::filesystem::path beside = std::filesystem::path(console.folder) / exec_name;
    const bool is_beside = !console.folder.empty() && access(beside.c_str(), X_OK) == 0;
    const InterruptsLeftToChild interrupts;
    return wait_for(spawn(is_beside ? beside.string() : exec_name, arguments, output));
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "foretrain-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
        throw RunError(fmt::format("cannot make a temporary folder {}: {}", pattern, std::strerror(errno)));
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace foretrain::cli
