#!/usr/bin/env bash
# Sets up what is missing, builds everything in build/ and runs the tests.
#   scripts/test.sh [--label REGEX] [ctest options, e.g. -R REGEX -V --rerun-failed]
# The first time it installs packages (with apt-get, as root or by sudo; elsewhere it names them) and
# compiles programs and tests in build/, once only. Later only what changed is compiled. Where another
# script builds there, it waits for its end.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

arguments=()
while (($# > 0)); do
  case "$1" in
    -h | --help)
      tf_usage
      exit 0
      ;;
    --label)
      (($# >= 2)) || die "--label needs a regular expression"
      arguments+=(-L "$2")
      shift 2
      ;;
    --label=*)
      arguments+=(-L "${1#*=}")
      shift
      ;;
    *)
      arguments+=("$1")
      shift
      ;;
  esac
done

"$TF_ROOT/scripts/setup.sh"
tf_release_build  # all targets
# Two test programs at a time share the cores: threads that wait shall not spin.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
exec ctest --test-dir "$TF_ROOT/build" --output-on-failure --no-tests=error \
  --parallel "$(tf_jobs)" ${arguments[@]+"${arguments[@]}"}
