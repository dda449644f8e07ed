#!/usr/bin/env bash
# Everything this project can say about a machine with a GPU, in under 10 minutes on an H200, what
# matters most first: micro-benchmarks, Llama2-7B with random weights at the longest prefill that
# fits, tests, self-test, the built-in pair, KV offload, compute-sanitizer. Writes one JSON file
# after each step, and ends with a table of every kernel and goal, which also lies beside that file
# as .txt.
#   scripts/gpu_suite.sh [--build DIR] [--device cuda:N] [--out FILE|DIR] [--only STEP,...]
#                        [--time-limit SECONDS] [--small]
# --build DIR: use what was built there instead of building for the GPU that is found. --only: steps
# of device, micro, long_context, tests, selftest, pair, offload, sanitizer. --time-limit: what is
# not done by then is left out. --small: toy sizes, for the emulated device. Exit status 1 if a step
# failed, 77 if there is no such device; goals that were missed are said. A machine without
# compilers takes the archive of scripts/gpu_bundle.sh instead.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

build=""
arguments=()
while (($# > 0)); do
  case "$1" in
    -h | --help)
      sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
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
    say "gpu_suite: error: no usable device: expected a GPU of compute capability 8.0 or higher and nvcc, found none"
    exit 77
  fi
  "$TF_ROOT/scripts/setup.sh"
  tf_release_build
  build="$TF_ROOT/build"
fi
exec python3 "$TF_ROOT/scripts/lib/gpu_suite.py" --build "$build" ${arguments[@]+"${arguments[@]}"}
