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

# tf_usage: the comment at the top of the script that calls it, without its first line.
tf_usage() { awk 'NR > 1 && !/^#/ {exit} NR > 1 {sub(/^# ?/, ""); print}' "${BASH_SOURCE[1]}"; }

tf_elapsed() { printf '%d:%02d' "$(($1 / 60))" "$(($1 % 60))"; }  # SECONDS

# tf_logged LOG WHAT COMMAND...: runs COMMAND with its output in LOG and a progress line on stderr:
# step of so many and time since the start; on a terminal every second, else every 20 seconds. Shows
# the log from the first error on if it fails.
tf_logged() {
  local log=$1 what=$2
  shift 2
  mkdir -p "$(dirname -- "$log")"
  : >"$log"
  local status=0 started=$SECONDS shown=0 every=20 done="" part="" line ended
  [[ ! -t 2 ]] || every=1
  "$@" 2>&1 | while true; do
    ended=0
    IFS= read -r -t "$every" line || ended=$?
    part+=$line
    if ((ended == 0)); then
      printf '%s\n' "$part" >>"$log"
      # Looking for new files (0/2) and asking CMake again (1/2) are no steps of the work.
      if [[ ! $part =~ ^\[[0-9/]+\]\ Re- && $part =~ ^\[\ *([0-9]+(/[0-9]+|%))\] ]]; then
        done=" [${BASH_REMATCH[1]}]"
      fi
      part=""
    elif ((ended <= 128)); then  # the end of the output, and no time-out
      [[ -z $part ]] || printf '%s\n' "$part" >>"$log"
      break
    fi
    ((SECONDS - started - shown >= every)) || continue
    shown=$((SECONDS - started))
    if [[ -t 2 ]]; then
      printf '\r%s%s, %s ' "$what" "$done" "$(tf_elapsed "$shown")" >&2
    else
      say "$what$done, $(tf_elapsed "$shown")"
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

# tf_alone FOLDER COMMAND...: runs COMMAND while no other script of this kind works in FOLDER.
tf_alone() {
  local folder=$1 lock status=0
  shift
  mkdir -p "$folder"
  if ! command -v flock >/dev/null; then  # not on every system
    "$@"
    return
  fi
  exec {lock}>>"$folder/.tf-lock"
  if ! flock --nonblock "$lock"; then
    say "another build works in $folder (process $(tail -n 1 "$folder/.tf-lock")): waiting for its end"
    flock "$lock"
  fi
  printf '%s\n' "$$" >"$folder/.tf-lock"
  "$@" || status=$?
  exec {lock}>&-
  return "$status"
}

# tf_configure FOLDER CMAKE_ARGS...: only if something that CMake does not watch itself changed.
tf_configure() { tf_alone "$1" tf_configure_alone "$@"; }
tf_configure_alone() {
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
  rm -f -- "$stamp"
  tf_logged "$folder/configure.log" "configuring" \
    cmake -S "$TF_ROOT" -B "$folder" ${generator[@]+"${generator[@]}"} "$@" || return
  printf '%s\n' "$want" >"$stamp"
}

# tf_build FOLDER [TARGET...]: everything without targets.
tf_build() { tf_alone "$1" tf_build_alone "$@"; }
tf_build_alone() {
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
      say "a CUDA device was found but no nvcc: building for the CPU alone; install the CUDA Toolkit 12 or" \
        "newer, or name its nvcc in CUDACXX, or bring an archive of scripts/gpu_bundle.sh"
      printf '%s\n' -DTRIFORCE_CUDA=OFF
      return
    fi
    printf '%s\n' -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc
  fi
  printf '%s\n' -DTRIFORCE_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architectures"
}

# The Release build in build/ that bench.sh, test.sh and gpu_suite.sh share. Under CI alone warnings are
# errors, as a user's newer compiler may warn about more than ours does.
tf_release_build() {
  local werror=OFF cuda
  [[ ${CI:-} != true ]] || werror=ON
  [[ -f $TF_ROOT/build/CMakeCache.txt ]] ||
    say "building in $TF_ROOT/build: some minutes, once only; later only what changed is compiled"
  mapfile -t cuda < <(tf_cuda_options)
  tf_configure "$TF_ROOT/build" -DCMAKE_BUILD_TYPE=Release "-DTRIFORCE_WERROR=$werror" \
    -DTRIFORCE_PCH=ON "${cuda[@]}" || return
  tf_build "$TF_ROOT/build" "$@"
}
