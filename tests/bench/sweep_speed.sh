#!/usr/bin/env bash
# How fast foretrain answers, as whole processes: start-up, the sweep of a 70B model on 512 GPUs, large spaces
# (405B on 16,384 GPUs: every micro-batch and every block of recomputed layers, then also every way to share
# sequences and optimizer state) and an exhaustive one.
# Prints wall seconds (the best of some), plans a second and the peak memory of each.
#
#   tests/bench/sweep_speed.sh [--runs N] [BUILD]
set -euo pipefail

runs=5
[[ ${1:-} == --runs ]] && runs=$2 && shift 2
build=${1:-build}
foretrain=$build/foretrain
[[ -x $foretrain ]] || { echo "no $foretrain: build it first (scripts/test.sh)" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# measure NAME KEY COMMAND...: KEY of the answer's "space" is counted, or nothing if it is "-".
measure() {
    local name=$1 key=$2
    shift 2
    for ((n = 0; n < runs; ++n)); do
        python3 - "$scratch/out" "$@" >>"$scratch/times" <<'PY'
import resource, subprocess, sys, time
out, command = sys.argv[1], sys.argv[2:]
with open(out, "w") as f:
    start = time.perf_counter()
    subprocess.run(command, stdout=f, stderr=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - start
print(wall, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
PY
    done
    python3 - "$name" "$key" "$scratch/times" "$scratch/out" <<'PY'
import json, sys
name, key, times, out = sys.argv[1:]
rows = [line.split() for line in open(times)]
wall = min(float(r[0]) for r in rows)
line = f"{name:34} {wall:8.3f} s   {max(int(r[1]) for r in rows):4} MiB"
if key != "-":
    count = json.load(open(out))["space"][key]
    line += f"   {count:9} {key}, {count / wall:12,.0f} a second"
print(line)
PY
    rm "$scratch/times"
}

measure "start-up (foretrain --version)" - "$foretrain" --version
measure "70B, 512 GPUs" enumerated "$foretrain" sweep --model llama-3.1-70b --cluster dgx-h100 --nodes 64 \
    --global-batch-size 1024 --sequence-length 8192 --format json
large=(sweep --model llama-3.1-405b --cluster dgx-h100 --nodes 2048 --global-batch-size 2048 --sequence-length 8192
    --embedding-and-head-as-layers on --micro-batch-size all --recompute none,selective,full,blocks --format json)
measure "405B, 16384 GPUs" enumerated "$foretrain" "${large[@]}" --context 1,2,4,8,16
measure "405B, more axes" enumerated "$foretrain" "${large[@]}" --context 1,2,4,8,16,32,64 \
    --context-method ring,all-to-all --zero-stage 1 --zero-shard-size 0,2,4,8,16,32,64,128,256,512,1024
measure "405B, every plan estimated" estimated "$foretrain" "${large[@]}" --context 1,2,4,8,16 --exhaustive
