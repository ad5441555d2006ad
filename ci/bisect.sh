#!/usr/bin/env bash
# What `git bisect run` calls at each commit: it builds what is checked out, runs a case on it, and answers in git's
# words: 0 clean, 1 leaks, 125 cannot tell, 128 stop.
#
#   git bisect start BAD GOOD
#   BUILD='python -m pip install --editable . --no-build-isolation' \
#     git bisect run /path/to/ci/bisect.sh /path/to/leak.yaml --python .venv
#
# The arguments are a case and further options of `torchleak run`. Keep the case and this script outside of the checkout,
# or in files that all commits have. Variables: BUILD, a command that makes the commit usable, if it needs one; TORCHLEAK,
# the program (torchleak); RUNS, the folder for run folders (torchleak-runs inside .git, where git sees no changes).
set -euo pipefail

if [ $# -lt 1 ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  # Anything below 128 would be an answer.
  exit 128
fi
runs=${RUNS:-$(git rev-parse --git-dir)/torchleak-runs} || exit 128
# A commit that does not build says nothing of the leak.
if [ -n "${BUILD:-}" ]; then bash -c "$BUILD" || exit 125; fi
exec "${TORCHLEAK:-torchleak}" run "$@" --exit-code bisect --runs "$runs"
