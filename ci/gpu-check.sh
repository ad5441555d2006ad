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
  local name=$1 limit=$2
  shift 2
  printf '\n=== %s\n' "$name" >&2
  local started=$SECONDS result=0
  "$torchleak" run --python "$python" --runs runs --deadline "$limit" "$@" || result=$?
  printf '=== %s: exit code %s after %s s\n' "$name" "$result" "$((SECONDS - started))" >&2
  if [ "$code" -eq 0 ]; then code=$result; fi
}

"$torchleak" doctor || true
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv || true

check "all small cases on $device, for a person" "$small_limit" --all --device "$device"
check "all small cases on $device, as JSON" "$small_limit" --all --device "$device" --format json > all.json
check "$full_case on $device" "$full_limit" "$full_case" --device "$device"
check "$full_case as torchtitan's lines" "$full_limit" "$full_case" --device "$device" --format titan > titan.log
check "all small cases on the CPU of the same machine" "$small_limit" --all --device cpu

printf '\nresults are in %s\n' "$PWD"
exit "$code"
