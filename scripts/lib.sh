# shellcheck shell=bash
# Shared by the scripts in this folder: messages, and installing what a build needs on Debian and
# Ubuntu. Only what is missing is installed, and nothing is asked.
#
#   . "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#   need_packages "${build_packages[@]}"

# What building and testing needs. `package:command` counts as present when the command is found
# (a compiler or CMake may come from elsewhere); a library counts when its package is installed.
# shellcheck disable=SC2034  # used by the scripts that read this file
build_packages=(
    g++:c++
    cmake:cmake
    ninja-build:ninja
    libfmt-dev
    nlohmann-json3-dev
    libeigen3-dev
    libboost-program-options-dev
    libgtest-dev
)
# Nice to have: the build leaves out what needs them.
# shellcheck disable=SC2034
optional_packages=(libbenchmark-dev)
# What the fuzzers need: clang and its runtime with libFuzzer.
# shellcheck disable=SC2034
fuzz_packages=(clang:clang++ libclang-rt-dev)

say() { printf '%s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 2
}

job_count() { nproc 2>/dev/null || echo 2; }

# The names among the arguments that are missing, one a line.
missing_packages() {
    local entry package command status
    for entry in "$@"; do
        package=${entry%%:*}
        command=${entry#*:}
        if [[ $command != "$entry" ]] && command -v "$command" >/dev/null 2>&1; then continue; fi
        status=$(dpkg-query -W -f '${Status} ' "$package" 2>/dev/null) || true
        if [[ $status == *'install ok installed'* ]]; then continue; fi
        printf '%s\n' "$package"
    done
}

# Runs apt-get as root: directly, or by sudo (which may ask for a password only at a terminal).
apt_get() {
    local as_root=()
    if [[ $(id -u) -ne 0 ]]; then
        command -v sudo >/dev/null 2>&1 || return 1
        as_root=(sudo)
        [[ -t 0 ]] || as_root+=(-n)
        as_root+=(env)
    else
        as_root=(env)
    fi
    "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" >&2
}

install_packages() {
    # Outdated lists may still do, so the answer of `update` is not what decides.
    apt_get update || true
    apt_get install -y --no-install-recommends "$@"
}

# Installs the missing ones among the arguments; ends the script with the command to type if it cannot.
need_packages() {
    local missing=()
    if ! command -v apt-get >/dev/null 2>&1; then
        say "note: this is not Debian or Ubuntu; please see to it that these are installed: ${*%%:*}"
        return 0
    fi
    mapfile -t missing < <(missing_packages "$@")
    if [[ ${#missing[@]} -eq 0 ]]; then return 0; fi
    say "installing ${missing[*]}"
    install_packages "${missing[@]}" || die "could not install what is missing. As root, please run:
    apt-get update && apt-get install ${missing[*]}"
}

# The same, but goes on without them.
want_packages() {
    local missing=()
    command -v apt-get >/dev/null 2>&1 || return 0
    mapfile -t missing < <(missing_packages "$@")
    if [[ ${#missing[@]} -eq 0 ]]; then return 0; fi
    say "installing ${missing[*]} (optional)"
    install_packages "${missing[@]}" || say "note: going on without ${missing[*]}"
}
