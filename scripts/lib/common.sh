# Sourced by the scripts of this folder: where the project is, messages, and one quiet build.
# shellcheck shell=bash

# Root of the project, wherever the caller stands.
TF_ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)"

# Progress and errors go to stderr, so that stdout belongs to the program.
say() { printf '%s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Parallel compilers: one per core, but each may need 1.5 GiB.
tf_jobs() {
  local cores bytes limit kib
  cores="$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)"
  kib="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null || true)"
  bytes=$((${kib:-4194304} * 1024))
  limit="$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)"
  if [[ $limit =~ ^[0-9]+$ ]] && ((limit < bytes)); then bytes=$limit; fi
  local by_memory=$((bytes / 1610612736))
  ((by_memory >= 1)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# tf_logged LOG WHAT COMMAND...: runs COMMAND with its output in LOG and a progress line on stderr;
# shows the log from the first error on if it fails.
tf_logged() {
  local log=$1 what=$2
  shift 2
  mkdir -p "$(dirname -- "$log")"
  : >"$log"
  local status=0 started=$SECONDS shown=-20 line
  "$@" 2>&1 | while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    [[ $line =~ ^\[([0-9]+/[0-9]+)\] ]] || continue
    if [[ -t 2 ]]; then
      printf '\r%s %s ' "$what" "${BASH_REMATCH[1]}" >&2
    elif ((SECONDS - started - shown >= 20)); then
      shown=$((SECONDS - started))
      say "$what ${BASH_REMATCH[1]}"
    fi
  done || status=${PIPESTATUS[0]}
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  if ((status != 0)); then
    say "$what failed; the log is $log:"
    awk '/FAILED|CMake Error|error:/ {on = 1} on' "$log" | head -n 120 >&2
    grep -qE 'FAILED|CMake Error|error:' "$log" || tail -n 40 "$log" >&2
    return "$status"
  fi
}

# tf_configure FOLDER CMAKE_ARGS...: only if something that CMake does not watch itself changed.
tf_configure() {
  local folder=$1
  shift
  local stamp="$folder/.tf-configured" want
  want="$(printf '%s\n' "$TF_ROOT" "$@")"
  if [[ -f $folder/CMakeCache.txt && -f $stamp && "$(cat "$stamp")" == "$want" ]] &&
    [[ -f $folder/build.ninja || -f $folder/Makefile ]]; then
    return 0
  fi
  local generator=()
  if [[ -f $folder/CMakeCache.txt ]] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$TF_ROOT" "$folder/CMakeCache.txt"; then
    rm -rf -- "$folder/CMakeCache.txt" "$folder/CMakeFiles"  # the project was moved or copied
  fi
  if [[ ! -f $folder/CMakeCache.txt ]] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  mkdir -p "$folder"
  rm -f -- "$stamp"
  tf_logged "$folder/configure.log" "configuring" \
    cmake -S "$TF_ROOT" -B "$folder" ${generator[@]+"${generator[@]}"} "$@" || return
  printf '%s\n' "$want" >"$stamp"
}

# tf_build FOLDER [TARGET...]: everything without targets.
tf_build() {
  local folder=$1
  shift
  local targets=()
  (($# == 0)) || targets=(--target "$@")
  tf_logged "$folder/build.log" "building" \
    cmake --build "$folder" --parallel "$(tf_jobs)" ${targets[@]+"${targets[@]}"}
}

# CMake's options for the cards of this machine that the kernels run on: built for those alone.
tf_cuda_options() {
  local architectures
  architectures="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    tr -d '. ' | grep -xE '[0-9]+' | awk '$1 >= 80' | sort -nu | sed 's/$/-real/' | paste -sd ';' -)"
  if [[ -z $architectures ]]; then
    printf '%s\n' -DTRIFORCE_CUDA=OFF
    return
  fi
  if ! command -v nvcc >/dev/null && [[ -z ${CUDACXX:-} ]]; then
    if [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
      say "a CUDA device was found but no CUDA Toolkit (nvcc): building for the CPU alone"
      printf '%s\n' -DTRIFORCE_CUDA=OFF
      return
    fi
    printf '%s\n' -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc
  fi
  printf '%s\n' -DTRIFORCE_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architectures"
}

# The Release build in build/ that bench.sh, test.sh and gpu_suite.sh share. Warnings are errors under CI only:
# a user's newer compiler may warn about more than ours does.
tf_release_build() {
  local werror=OFF
  [[ ${CI:-} != true ]] || werror=ON
  local cuda
  mapfile -t cuda < <(tf_cuda_options)
  tf_configure "$TF_ROOT/build" -DCMAKE_BUILD_TYPE=Release "-DTRIFORCE_WERROR=$werror" \
    "${cuda[@]}" || return
  tf_build "$TF_ROOT/build" "$@"
}
