#!/usr/bin/env bash
# Runs the CUDA half of torchleak on a machine with a GPU, from a binary that was built elsewhere.
#
#   ci/gpu-check.sh PATH/TO/torchleak [PATH/TO/python] [FOLDER]
#
# The machine needs no Rust and no network: the binary carries its worker, and the interpreter must
# already have torch. Everything is written to FOLDER (default: gpu-check). The exit code is that of
# the first run that fails, so that a job system sees it. To rehearse it without a GPU:
# DEVICE=cpu FULL_CASE=sac-disable-recompute.
set -euo pipefail

if [ $# -lt 1 ]; then
  sed -n '2,10s/^# \{0,1\}//p' "$0"
  exit 2
fi
torchleak=$(realpath "$1")
python=${2:-python3}
folder=${3:-gpu-check}
device=${DEVICE:-cuda}
full_case=${FULL_CASE:-llama3-8b-2gib}
# The time limits keep the whole check under ten minutes.
small_limit=60
full_limit=240

mkdir -p "$folder"
cd "$folder"
export TORCHLEAK_CACHE_DIR=$PWD/cache

code=0
check() {
  local name=$1
  shift
  printf '\n=== %s\n' "$name" >&2
  local started=$SECONDS result=0
  "$@" || result=$?
  printf '=== %s: exit code %s after %s s\n' "$name" "$result" "$((SECONDS - started))" >&2
  if [ "$code" -eq 0 ]; then code=$result; fi
}

# shellcheck disable=SC2329 # It is a command of `check`.
run() {
  local limit=$1
  shift
  "$torchleak" run --python "$python" --runs runs --deadline "$limit" "$@"
}

# A cycle of each step keeps the output of one product; the verdict must name it.
# shellcheck disable=SC2329 # It is a command of `check`.
watch() {
  cat > watched.py << 'SCRIPT'
import sys
import torch

device = sys.argv[1]
model = torch.nn.Linear(256, 256, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def loss(batch):
    kept = {"output": model(batch)}
    kept["itself"] = kept
    return kept["output"].square().mean()


for _ in range(32):
    loss(torch.ones(1024, 256, device=device)).backward()
    optimizer.step()
    optimizer.zero_grad()
SCRIPT
  "$torchleak" watch --mode compare --runs runs --output watch.json --format json --quiet -- \
    "$python" watched.py "$device" &&
    grep --quiet '"verdict": "reproduced"' watch.json
}

"$torchleak" doctor || true
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv || true

check "all small cases on $device, for a person" run "$small_limit" --all --device "$device"
check "all small cases on $device, as JSON" run "$small_limit" --all --device "$device" --format json > all.json
check "$full_case on $device" run "$full_limit" "$full_case" --device "$device"
check "$full_case as torchtitan's lines" \
  run "$full_limit" "$full_case" --device "$device" --format titan > titan.log
check "all small cases on the CPU of the same machine" run "$small_limit" --all --device cpu
check "a script that is watched on $device" watch
headline=(runs/*-sac-disable-recompute)
check "the bundle of the headline case, whose script is run on $device" \
  "$torchleak" report --python "$python" --output bundle "${headline[0]}"
# The native control is built against the libraries of one torch.
if [ -x "$(dirname "$torchleak")/torchleak-control" ] &&
  "$python" -c 'import sys, torch; sys.exit(not torch.__version__.startswith("2.13.0"))'; then
  check "the headline case on $device beside libtorch alone" \
    run "$small_limit" sac-disable-recompute --device "$device" --control
fi

printf '\nresults are in %s\n' "$PWD"
exit "$code"
