#!/usr/bin/env bash
# Sets up what is missing, builds build/triforce-bench and runs it with the options given here.
#   ./scripts/bench.sh [OPTIONS OF THE PROGRAM]
# The first time it installs packages (with apt-get, as root or by sudo; elsewhere it names them) and
# compiles the program in build/: some minutes, once only. Later only what changed is compiled. Where
# another script builds there, it waits for its end.
# --help builds nothing: it is answered by the program that was built last.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

program="$TF_ROOT/build/triforce-bench"
for argument in "$@"; do
  [[ $argument == -h || $argument == --help ]] || continue
  tf_usage
  echo
  [[ ! -x $program ]] || exec "$program" "$@"
  echo "$program is not built yet. ./scripts/bench.sh builds it and runs it without options;"
  echo "./scripts/bench.sh list-devices builds it and looks at this machine alone."
  exit 0
done

"$TF_ROOT/scripts/setup.sh"
tf_release_build triforce-bench
exec "$program" "$@"
