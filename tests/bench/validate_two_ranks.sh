#!/usr/bin/env bash
# Prediction against measurement for two ranks of this machine, spread in each way: data parallel,
# tensor parallel, pipelined, ZeRO-3. Calibrates first. Want an idle machine: ranks wait for each
# other, so whatever else runs shows up as waiting.
#
#   tests/bench/validate_two_ranks.sh [--keep] [BUILD_FOLDER]      # build/ if not given
#
# --keep uses BUILD_FOLDER/this-machine.json as it is, if it is there.
set -euo pipefail
keep=no
if [[ ${1:-} == --keep ]]; then
    keep=yes
    shift
fi
build=${1:-$(dirname "${BASH_SOURCE[0]}")/../../build}
machine=$build/this-machine.json
if [[ $keep == no || ! -f $machine ]]; then "$build/foretrain" calibrate --output "$machine"; fi
for model in gpt-mini llama-mini; do
    for spread in "--data 2" "--tensor 2" "--pipeline 2" "--data 2 --zero-stage 3"; do
        # shellcheck disable=SC2086
        "$build/foretrain" validate --model "$model" --cluster "$machine" --gpus 2 --global-batch-size 16 \
            --sequence-length 128 --micro-batch-size 2 --precision fp32 $spread --steps 20 2>/dev/null |
            sed -nE '1p; /^(Step time|Memory|Communication) /p'
    done
done
