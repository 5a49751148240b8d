#!/usr/bin/env bash
# Builds foretrain and runs its tests. See --help.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
usage: scripts/test.sh [--fast] [--sanitize WHICH] [--no-install] [-- CTEST OPTIONS]

Installs what is missing (Debian, Ubuntu), configures, builds and runs the tests in parallel. Then, if all
tests were asked for, it feeds every reader hostile input for a minute in all (scripts/fuzz.sh; skipped,
and said so, where clang has no libFuzzer).

  --fast            only the tests labelled `fast`
  --sanitize WHICH  build with sanitizers: `address,undefined` (in build-asan/) or `thread` (in build-tsan/)
  --no-install      install nothing
  --help            this text
  -- ...            handed to ctest as it is

Tests that compare with measured reference data read the folder that FORETRAIN_REFERENCE names,
and are reported as skipped where it is not set.

examples:
  scripts/test.sh                                     everything, Release, in build/
  scripts/test.sh --fast                              under a minute once it is built
  scripts/test.sh --sanitize address,undefined --fast
  scripts/test.sh --sanitize thread -- -R Exec
  FORETRAIN_REFERENCE=path/to/reference scripts/test.sh
TEXT
}

preset=release
install=yes
everything=yes
ctest_options=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --fast)
            ctest_options+=(-L '^fast$')
            everything=no
            ;;
        --sanitize | --sanitize=*)
            if [[ $1 == --sanitize ]]; then
                [[ $# -ge 2 ]] || die "--sanitize: expected address,undefined or thread"
                shift
            fi
            everything=no
            case ${1#--sanitize=} in
                address,undefined) preset=asan ;;
                thread) preset=tsan ;;
                *) die "--sanitize: found '${1#--sanitize=}', expected address,undefined or thread" ;;
            esac
            ;;
        --no-install) install=no ;;
        --help | -h)
            usage
            exit 0
            ;;
        --)
            shift
            ctest_options+=("$@")
            everything=no
            break
            ;;
        *) die "unknown option '$1' (see --help)" ;;
    esac
    shift
done

# The tests are started in the build folder, so a relative path would be lost.
if [[ -n ${FORETRAIN_REFERENCE:-} && -d $FORETRAIN_REFERENCE ]]; then
    FORETRAIN_REFERENCE=$(cd "$FORETRAIN_REFERENCE" && pwd)
    export FORETRAIN_REFERENCE
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ $install == yes ]]; then
    need_packages "${build_packages[@]}"
    want_packages "${optional_packages[@]}" "${fuzz_packages[@]}"
fi

cmake --preset "$preset"
cmake --build --preset "$preset" --parallel "$(job_count)"
ctest --preset "$preset" --output-on-failure --no-tests=error --parallel "$(job_count)" "${ctest_options[@]}"
if [[ $everything == yes ]]; then scripts/fuzz.sh --seconds 6 --if-present --no-install; fi
