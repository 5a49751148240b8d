#include "cli/launch.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
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

volatile sig_atomic_t running_child = 0;

void pass_to_child(int signal) {
    if (running_child > 0) kill(static_cast<pid_t>(running_child), signal);
}

// While a child runs, what should end us is the child's to answer: we stay to clean up. An interrupt
// from the terminal reaches it by itself; a signal to us alone (a job's time limit) is passed on.
class SignalsLeftToChild {
public:
    SignalsLeftToChild() {
        sigset_t passed;
        sigemptyset(&passed);
        sigaddset(&passed, SIGTERM);
        sigaddset(&passed, SIGHUP);
        sigprocmask(SIG_BLOCK, &passed, &mask_);
        struct sigaction ignore = {}, pass = {};
        ignore.sa_handler = SIG_IGN;
        pass.sa_handler = pass_to_child;
        pass.sa_flags = SA_RESTART;
        for (std::size_t i = 0; i < before_.size(); ++i) {
            sigaction(signals[i], nullptr, &before_[i]);
            const bool of_terminal = signals[i] == SIGINT || signals[i] == SIGQUIT;
            if (of_terminal || before_[i].sa_handler != SIG_IGN)  // nohup's stays, also for the child
                sigaction(signals[i], of_terminal ? &ignore : &pass, nullptr);
        }
    }
    // Held back until there is a child, they reach it now.
    void let_through_to(pid_t child) {
        running_child = child;
        sigprocmask(SIG_SETMASK, &mask_, nullptr);
    }
    const sigset_t& mask() const { return mask_; }
    ~SignalsLeftToChild() {
        running_child = 0;
        for (std::size_t i = 0; i < before_.size(); ++i) sigaction(signals[i], &before_[i], nullptr);
        sigprocmask(SIG_SETMASK, &mask_, nullptr);
    }
    SignalsLeftToChild(const SignalsLeftToChild&) = delete;
    SignalsLeftToChild& operator=(const SignalsLeftToChild&) = delete;

private:
    static constexpr std::array signals{SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    std::array<struct sigaction, signals.size()> before_{};
    sigset_t mask_{};
};

pid_t spawn(const std::string& program, const Arguments& arguments, Output output, const sigset_t& mask) {
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
    posix_spawnattr_setsigmask(&attributes, &mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

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
    SignalsLeftToChild signals;
    const pid_t child = spawn(is_beside ? beside.string() : exec_name, arguments, output, signals.mask());
    signals.let_through_to(child);
    return wait_for(child);
}

TemporaryFolder::TemporaryFolder() {
    std::error_code unusable;
    const std::filesystem::path root = std::filesystem::temp_directory_path(unusable);
    if (unusable)
        throw UserError({.file = "environment",
                         .field = "TMPDIR",
                         .found = unusable.message(),
                         .expected = "a folder for temporary files"});
    std::string pattern = (root / "foretrain-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
        throw RunError(fmt::format("cannot make a temporary folder {}: {}", pattern, std::strerror(errno)));
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace foretrain::cli
