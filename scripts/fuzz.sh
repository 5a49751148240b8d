#!/usr/bin/env bash
# Feeds broken and hostile input to every reader, by libFuzzer. See --help.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
usage: scripts/fuzz.sh [--seconds N | --runs N] [--no-install] [TARGET...]

Builds the fuzzers with clang under AddressSanitizer and UndefinedBehaviorSanitizer (in build-fuzz/) and
runs one after the other. What covers new code is kept in build-fuzz/corpus/, so that the next time
begins where this one ended. Stops at the first finding: a crash, a report of a sanitizer, an input that
takes more than 10 s or 1 GB, an exception that is no UserError, a promise broken. Its input is then in
build-fuzz/findings/, and `build-fuzz/tests/fuzz/fuzz_TARGET INPUT` shows it again.

  --seconds N   for each target (60)
  --runs N      inputs for each target, however long that takes
  --if-present  skip, loudly, where clang has no libFuzzer
  --no-install  install nothing
  TARGET        json, model, hugging_face, cluster, device, plan, run_record, trace, program, kernel_args or
                options; default: all

examples:
  scripts/fuzz.sh
  scripts/fuzz.sh --seconds 3600 plan cluster
  scripts/fuzz.sh --runs 1000000
TEXT
}

limit=(-max_total_time=60)
install=yes
if_present=no
targets=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --seconds | --seconds=* | --runs | --runs=*)
            option=${1%%=*}
            if [[ $1 == "$option" ]]; then
                [[ $# -ge 2 ]] || die "$option: expected a number"
                shift
            fi
            number=${1#"$option"=}
            [[ $number =~ ^[1-9][0-9]{0,11}$ ]] || die "$option: found '$number', expected a whole number from 1"
            if [[ $option == --seconds ]]; then limit=("-max_total_time=$number"); else limit=("-runs=$number"); fi
            ;;
        --if-present) if_present=yes ;;
        --no-install) install=no ;;
        --help | -h)
            usage
            exit 0
            ;;
        -*) die "unknown option '$1' (see --help)" ;;
        *) targets+=("$1") ;;
    esac
    shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
known=()
for file in tests/fuzz/*_fuzz.cpp; do known+=("$(basename "$file" _fuzz.cpp)"); done
for target in "${targets[@]}"; do
    [[ " ${known[*]} " == *" $target "* ]] || die "no target '$target'; expected one of ${known[*]}"
done
if [[ ${#targets[@]} -eq 0 ]]; then targets=("${known[@]}"); fi

# The first clang that links a fuzzer.
find_fuzzing_clang() {
    local compiler probe
    probe=$(mktemp -d)
    printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n' >"$probe/probe.cpp"
    for compiler in clang++ clang++-14; do
        if command -v "$compiler" >/dev/null 2>&1 &&
            "$compiler" -fsanitize=fuzzer,address "$probe/probe.cpp" -o "$probe/probe" >/dev/null 2>&1; then
            printf '%s\n' "$compiler"
            break
        fi
    done
    rm -rf "$probe"
}

if [[ $install == yes ]]; then
    need_packages "${build_packages[@]}"
    want_packages "${fuzz_packages[@]}"
fi
compiler=$(find_fuzzing_clang)
if [[ -z $compiler ]]; then
    if [[ $if_present == yes ]]; then
        say "SKIPPED: the fuzzers (no clang with libFuzzer; Debian, Ubuntu: apt-get install ${fuzz_packages[*]%%:*})"
        exit 0
    fi
    die "no clang with libFuzzer is here (Debian, Ubuntu: apt-get install ${fuzz_packages[*]%%:*})"
fi

cmake --preset fuzz -D CMAKE_CXX_COMPILER="$compiler" >&2
build_targets=(fuzz_seeds)
for target in "${targets[@]}"; do build_targets+=("fuzz_$target"); done
cmake --build build-fuzz --parallel "$(job_count)" --target "${build_targets[@]}" >&2

build="build-fuzz"
rm -rf "$build/seeds"
"$build/tests/fuzz/fuzz_seeds" "$build/seeds"
# Words that the readers know: the texts in their sources.
grep -ohE '"[a-zA-Z][a-zA-Z0-9_.-]{1,40}"' base/*.h base/*.cpp models/*.cpp hardware/*.cpp hardware/*.h plan/*.cpp \
    plan/program/*.cpp cli/plan_options.cpp | sort -u >"$build/words.dict"

mkdir -p "$build/findings"
# A short quarantine and no stacks of allocations: they cost most of the speed. ASAN_OPTIONS with a
# malloc_context_size of its own brings them back, to look at a finding.
export ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=0:${ASAN_OPTIONS:-}
for target in "${targets[@]}"; do
    mkdir -p "$build/corpus/$target"
    status=0
    "$build/tests/fuzz/fuzz_$target" "$build/corpus/$target" "$build/seeds/$target" "${limit[@]}" -dict="$build/words.dict" \
        -artifact_prefix="$build/findings/$target-" -entropic=0 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512 -max_len=8192 \
        -print_final_stats=1 -verbosity=1 >"$build/$target.log" 2>&1 || status=$?
    if [[ $status -ne 0 ]]; then
        tail -n 60 "$build/$target.log" >&2
        die "$target: a finding; its input is in $build/findings/, the whole log in $build/$target.log"
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
    memory=$(sed -n 's/^stat::peak_rss_mb: *//p' "$build/$target.log")
    printf 'fuzz %-13s %9s runs, no finding, at most %s MB\n' "$target" "$runs" "$memory"
done
