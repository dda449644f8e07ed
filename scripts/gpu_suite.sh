#!/usr/bin/env bash
# Everything this project can say about a machine with a GPU, in under 9 minutes on an H200: tests,
# compute-sanitizer, micro-benchmarks, self-test, the built-in pair, and Llama2-7B with random
# weights at the longest prefill that fits. Writes one JSON file and ends with a short table.
#   scripts/gpu_suite.sh [--build DIR] [--device cuda:N] [--out FILE] [--small]
# --build DIR: use what was built there instead of building for the card that is found. --small: toy
# sizes, for the emulated device. Exit status 1 if a step failed, 77 if there is no such device; goals
# that were missed are said.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

build=""
arguments=()
while (($# > 0)); do
  case "$1" in
    -h | --help)
      sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --build)
      (($# >= 2)) || die "--build needs a folder"
      build=$2
      shift 2
      ;;
    *)
      arguments+=("$1")
      shift
      ;;
  esac
done

command -v python3 >/dev/null || die "python3 was not found"
if [[ -z $build ]]; then
  if ! tf_cuda_options | grep -q TRIFORCE_CUDA=ON; then
    say "gpu_suite: error: no usable device: expected a card of compute capability 8.0 or higher and nvcc, found none"
    exit 77
  fi
  "$TF_ROOT/scripts/setup.sh"
  tf_release_build
  build="$TF_ROOT/build"
fi
exec python3 "$TF_ROOT/scripts/lib/gpu_suite.py" --build "$build" ${arguments[@]+"${arguments[@]}"}
