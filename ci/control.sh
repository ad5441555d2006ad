#!/usr/bin/env bash
# Builds the native control (harness/control) with the libraries of torch 2.13.0, and tests it against the Python arms.
# The environment with torch is made if it is not there yet. The first build takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(cargo run --quiet --locked -- env add --torch 2.13.0)
libraries=$("$python" -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])')/lib
# torch-sys asks the first `python3` on PATH where torch is, or `python` in an active virtual environment.
PATH=$(dirname "$python"):$PATH
export PATH LIBTORCH_USE_PYTORCH=1
unset VIRTUAL_ENV

cargo clippy --package torchleak-control --all-targets --locked -- --deny warnings
cargo build --package torchleak-control --locked
LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" cargo test --package torchleak-control --locked
# The build lies beside target/debug/torchleak, where `run --control` finds it.
cargo test --locked --test control
