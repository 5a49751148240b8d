#!/usr/bin/env bash
# Shows what foretrain does, from a fresh clone: predict, calibrate, sweep, run, validate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
    cat <<'TEXT'
usage: scripts/demo.sh [--model FILE] [--no-install]

Installs what is missing (Debian, Ubuntu), builds Release in build/, then sweeps the plans of
Llama-3.1-8B on two DGX H100, calibrates this machine, sweeps a small model on it, runs the best
plan and compares the run with the prediction. Stops at the first command that fails.

  --model FILE   the Hugging Face config.json to sweep; default: Llama-3.1-8B's from the folder
                 that FORETRAIN_REFERENCE names, or else one written from the published figures
  --no-install   install nothing
  --help         this text

examples:
  scripts/demo.sh
  scripts/demo.sh --model path/to/config.json
TEXT
}

model=
install=yes
while [[ $# -gt 0 ]]; do
    case $1 in
        --model | --model=*)
            if [[ $1 == --model ]]; then
                [[ $# -ge 2 ]] || die "--model: expected a file"
                shift
            fi
            model=${1#--model=}
            [[ -f $model ]] || die "--model: no file '$model'"
            model=$(realpath "$model")
            ;;
        --no-install) install=no ;;
        --help | -h)
            usage
            exit 0
            ;;
        *) die "unknown option '$1' (see --help)" ;;
    esac
    shift
done

# The published model file of the reference data, if there is one.
reference_model() {
    local folder=${FORETRAIN_REFERENCE:-}/user_files/hf_config
    if [[ -z ${FORETRAIN_REFERENCE:-} || ! -d $folder ]]; then return 0; fi
    find "$(cd "$folder" && pwd)" -name '*Llama-3.1-8B*config.json' | sort | sed -n 1p
}

# Llama 3.1 8B as its authors publish it: the config.json of meta-llama/Llama-3.1-8B on Hugging Face;
# the same sizes stand in table 3 of "The Llama 3 Herd of Models", arXiv:2407.21783.
write_model() {
    mkdir -p "$(dirname "$1")"
    cat >"$1" <<'JSON'
{
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 128000,
  "eos_token_id": 128001,
  "hidden_act": "silu",
  "hidden_size": 4096,
  "initializer_range": 0.02,
  "intermediate_size": 14336,
  "max_position_embeddings": 131072,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "vocab_size": 128256
}
JSON
}

# show WHAT COMMAND...: one line that says what is shown and the command, then its output.
show() {
    local what=$1 status=0
    shift
    printf '\n== %s: %s\n\n' "$what" "$*"
    "$@" || status=$?
    if [[ $status -ne 0 ]]; then
        say "demo: failed with exit code $status: $*"
        exit "$status"
    fi
}

if [[ -z $model ]]; then model=$(reference_model); fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ $install == yes ]]; then need_packages "${build_packages[@]}"; fi
cmake --preset release >&2
cmake --build --preset release --parallel "$(job_count)" --target foretrain foretrain-exec >&2

if [[ -z $model ]]; then
    model=build/demo/llama-3.1-8b/config.json
    write_model "$model"
fi

foretrain=build/foretrain
show "The best plans of Llama-3.1-8B on two DGX H100" \
    "$foretrain" sweep --model "$model" --cluster dgx-h100 --nodes 2 \
    --global-batch-size 128 --sequence-length 8192
show "What this machine can do, measured" \
    "$foretrain" calibrate --output build/this-machine.json
show "The best plans of a small model on two ranks of this machine" \
    "$foretrain" sweep --model gpt-mini --cluster build/this-machine.json --gpus 2 \
    --global-batch-size 16 --sequence-length 128 --precision fp32 --save-plan build/best.json
show "The best plan, executed" \
    "$foretrain" run --plan build/best.json --steps 20
show "The same plan, executed and compared with its prediction" \
    "$foretrain" validate --plan build/best.json --steps 20
