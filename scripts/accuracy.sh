#!/usr/bin/env bash
# Writes the figures of docs/accuracy.md, and docs/accuracy.svg: how far predictions are from what others measured.
# What stands above the mark in that page is written by hand.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
usage: scripts/accuracy.sh [--build FOLDER] [--no-fit] REFERENCE

Predicts the measured runs of the folder REFERENCE (published_runs.jsonl, megatron_memory.jsonl,
gemm_grid.csv, collectives.jsonl) with the foretrain of FOLDER (build) and writes docs/accuracy.md
with docs/accuracy.svg. --no-fit leaves out the folds, which take minutes.

example:
  scripts/accuracy.sh "$FORETRAIN_REFERENCE"
TEXT
}

folds=yes
binaries=build
reference=
while [[ $# -gt 0 ]]; do
    case $1 in
        --build)
            [[ $# -ge 2 ]] || die "--build: expected a folder"
            binaries=$2
            shift
            ;;
        --no-fit) folds=no ;;
        --help | -h)
            usage
            exit 0
            ;;
        -*) die "unknown option '$1' (see --help)" ;;
        *) reference=$1 ;;
    esac
    shift
done
[[ -f $reference/published_runs.jsonl ]] || die "no published_runs.jsonl in '$reference' (see --help)"
foretrain=$binaries/foretrain
[[ -x $foretrain ]] || die "no $foretrain: build first (scripts/test.sh builds it)"

# A command as it would be typed, and what it prints.
shown() {
    printf '```\n$ %s\n' "$1"
    shift
    "$@" 2>/dev/null || true
    printf '```\n\n'
}

products() {
    local row
    for row in A100-SXM-80:dgx-a100 H100-SXM:dgx-h100 H200:dgx-h200 B200:dgx-b200 GB200:gb200-nvl72; do
        echo "${row%%:*}"
        "$foretrain" calibrate --from-table "$reference/gemm_grid.csv" --rows "${row%%:*}" --cluster "${row##*:}" |
            sed -n '1,/^$/p'
    done
}

links() {
    local row
    for row in aic-a100:dgx-a100 aic-h100:dgx-h100 aic-h200:dgx-h200 aic-b200:dgx-b200 aic-gb200:gb200-nvl72; do
        echo "${row%%:*}"
        "$foretrain" calibrate --from-table "$reference/collectives.jsonl" --rows "${row%%:*}" --cluster "${row##*:}" |
            sed -n '1,/^$/p'
    done
}

page() {
    sed '/^<!-- figures/q' docs/accuracy.md
    echo
    echo "## Step time of published runs"
    echo
    echo '![predicted against measured](accuracy.svg)'
    echo
    shown "foretrain backtest published_runs.jsonl --summary --scatter docs/accuracy.svg" \
        "$foretrain" backtest "$reference/published_runs.jsonl" --summary --scatter docs/accuracy.svg
    if [[ $folds == yes ]]; then
        echo "## On runs that were not fitted to"
        echo
        shown "foretrain fit published_runs.jsonl --folds 5 --leave-one-source-out --given 1" \
            "$foretrain" fit "$reference/published_runs.jsonl" --folds 5 --leave-one-source-out --given 1
    fi
    echo "## Memory that Megatron-LM's own checks recorded"
    echo
    echo "Steps of these runs are of models so small, with checks so many, that no profile describes their time; what"
    echo "counts here is the memory."
    echo
    shown "foretrain backtest megatron_memory.jsonl --summary" \
        "$foretrain" backtest "$reference/megatron_memory.jsonl" --summary
    echo "## Matrix products"
    echo
    shown "foretrain calibrate --from-table gemm_grid.csv --rows GPU --cluster PRESET" products
    echo "## Collectives in a node"
    echo
    shown "foretrain calibrate --from-table collectives.jsonl --rows TABLES --cluster PRESET" links
}

page >docs/accuracy.md.new
mv docs/accuracy.md.new docs/accuracy.md
echo "wrote docs/accuracy.md and docs/accuracy.svg"
