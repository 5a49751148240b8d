#!/usr/bin/env bash
# Formats the C++ and CUDA sources with clang-format 14, the pinned version: others differ in detail.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
usage: scripts/format.sh [--check] [FILE...]

  --check   change nothing; name what would change and exit with 1
  FILE      only these; default: every .h, .cpp and .cu file that git knows

examples:
  scripts/format.sh
  scripts/format.sh --check
  scripts/format.sh sim/simulator.cpp
TEXT
}

mode=(-i)
files=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --check) mode=(--dry-run --Werror) ;;
        --help | -h)
            usage
            exit 0
            ;;
        -*) die "unknown option '$1' (see --help)" ;;
        *) files+=("$(realpath "$1")") ;;
    esac
    shift
done

formatter=clang-format-14
command -v "$formatter" >/dev/null 2>&1 || die "$formatter is not installed (Debian, Ubuntu: apt-get install $formatter)"

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${#files[@]} -eq 0 ]]; then
    mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu')
fi
if [[ ${#files[@]} -eq 0 ]]; then die "no sources found"; fi
# A file may be listed and yet be gone (a deletion not committed).
present=()
for file in "${files[@]}"; do if [[ -f $file ]]; then present+=("$file"); fi; done
"$formatter" "${mode[@]}" "${present[@]}"
