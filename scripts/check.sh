#!/usr/bin/env bash
# What CI runs besides the tests. Ends with status 1 if a stage found something.
#   scripts/check.sh [format] [tidy] [cuda] [cuda-rtx] [cuda-blackwell] [emulated] [emulated-asan]
#                    [asan] [fuzz] [arm] [arm-emulated] [tsan] [debian13]
# Without arguments all but emulated-asan, arm-emulated, tsan and debian13.
# format: clang-format on every C++ file. tidy: clang-tidy on every file of src/ and bench/.
# cuda: kernels/ and src/cuda/ by nvcc for sm_80 and sm_90: what their registers spill, what their
# machine code has and lacks, blocks on a multiprocessor and cycles of their loops; skipped, which
# the last line says, where there is no nvcc or nothing to read machine code with. cuda-rtx: the
# same for sm_86 and sm_89. cuda-blackwell: the same for sm_100 and sm_120; skipped by nvcc before
# 12.8, which does not know them.
# emulated: the CUDA sources compiled for the emulator of tests/cuda_emulator, their tests, and the
# program's with --device cuda; the suite for GPUs runs from its bundle alone.
# asan: the tests of a build without CUDA under AddressSanitizer and UndefinedBehaviorSanitizer.
# emulated-asan: the same with the emulated CUDA sources and their tests.
# fuzz: each fuzz target of the build asan over its corpus, then TF_FUZZ_SECONDS (20) of new inputs.
# arm: the program for 64-bit Arm, by a compiler for it; in qemu the tests of src/cpu, operations against
# their oracles, and a run. arm-emulated: the same with the emulated CUDA sources, and a run on them.
# Skipped where setup.sh finds no libraries, and on Arm, where all else runs as well.
# tsan: the tests under ThreadSanitizer (clang, its OpenMP runtime, Archer).
# debian13: the program built and tested in a Debian 13 of its own (build/debian13) with what setup.sh
# installs there and without a network; takes root and debootstrap, 2 GB, and downloads 300 MB.
# The sanitizers leave out tests that are labelled slow or, being of scripts, python.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
cd -- "$TF_ROOT"

stages=("$@")
((${#stages[@]} > 0)) || stages=(format tidy cuda cuda-rtx cuda-blackwell emulated asan fuzz arm)
for stage in "${stages[@]}"; do
  case "$stage" in
    format | tidy | cuda | cuda-rtx | cuda-blackwell | emulated | emulated-asan | asan | fuzz | arm | \
      arm-emulated | tsan | debian13) ;;
    *)
      tf_usage >&2
      exit 2
      ;;
  esac
done

# The project's own files, from git where there is one.
project_files() {
  if [[ -e .git ]]; then
    git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
      [[ ! -f $file ]] || printf '%s\n' "$file"
    done
  else
    local pattern
    for pattern in "$@"; do
      find . -name "$pattern" -not -path './build*' -printf '%P\n'
    done
  fi | LC_ALL=C sort
}

configure_preset() {  # PRESET [FOLDER]
  local folder="${2:-build/$1}"
  mkdir -p "$folder"
  tf_logged "$folder/configure.log" "configuring $1" cmake --preset "$1"
}

check_format() {
  project_files '*.cpp' '*.h' '*.cu' '*.cuh' | tr '\n' '\0' |
    xargs -0 -r clang-format-14 --dry-run -Werror
}

check_tidy() {
  configure_preset tidy || return
  ninja -C build/tidy triforce_build_commit >/dev/null || return  # a header that is generated
  # Every file on its own, so that all cores work and the output of one stays together.
  # shellcheck disable=SC2016
  sed -n "s|^ *\"file\": \"$TF_ROOT/\(.*\)\",\{0,1\}\$|\1|p" build/tidy/compile_commands.json |
    grep -E '^(src|bench)/' | LC_ALL=C sort -u | tr '\n' '\0' |
    xargs -0 -r -n 1 -P "$(tf_jobs)" sh -c '
      out=$(clang-tidy-14 -p build/tidy --quiet --extra-arg=-Wno-unknown-warning-option "$1" 2>&1) && exit 0
      printf "%s\n" "$out" | grep -v "warnings generated\|^Suppressed\|^Use -header-filter"
      exit 1' tidy
}

check_tests() {  # PRESET
  configure_preset "$1" || return
  tf_build "build/$1" || return
  # The machine may not let LeakSanitizer attach; a probe says so instead of every test failing.
  if [[ $1 == *asan ]] && ! leaks_can_be_found; then
    say "$1: LeakSanitizer cannot run here (ptrace is not permitted), leaks are not checked"
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
  fi
  ctest --preset "$1" --label-exclude "slow|python" --parallel "$(tf_jobs)"
}

# g++ accepts in the emulated build what nvcc refuses. No build: every file is compiled once, by the
# report of its registers, and its machine code is read then.
check_cuda() {  # FOLDER ARCHITECTURES
  local nvcc
  nvcc="$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)"
  if [[ ! -x $nvcc ]]; then
    say "cuda: no nvcc on this machine, the CUDA sources were not compiled for devices"
    return 77
  fi
  local known real
  known="$("$nvcc" --list-gpu-code)" || return
  for real in ${2//;/ }; do
    if ! grep -qx "sm_${real%-real}" <<<"$known"; then
      say "$1: this nvcc does not know sm_${real%-real}"
      return 77
    fi
  done
  tf_configure "$TF_ROOT/build/$1" -DCMAKE_BUILD_TYPE=Release -DTRIFORCE_WERROR=ON \
    -DTRIFORCE_CUDA=ON "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=$2" \
    -DTRIFORCE_TESTS=OFF -DTRIFORCE_BENCHMARKS=OFF || return
  cmake "build/$1" >"build/$1/configure.log" || return  # nothing is built that would see new files
  rm -rf -- "build/$1/objects"
  python3 tests/cuda/register_report.py --commands "build/$1/compile_commands.json" \
    --jobs "$(tf_jobs)" --objects "build/$1/objects" || return
  python3 tests/cuda/machine_code/check.py --objects "build/$1/objects" --jobs "$(tf_jobs)" \
    --json "build/$1/loops.json"  # 77: said that there is nothing to read them with
}

# Its folder is as deep as that of the tests: ccache compiles once what both have.
check_emulated() {
  configure_preset emulated build-emulated || return
  tf_build build-emulated triforce_cuda_tests triforce-bench triforce-cuda-bench || return
  ctest --preset emulated --tests-regex '^(cuda_|cli_cuda|gpu_bundle)' --parallel "$(tf_jobs)"
}

check_arm() {  # PRESET
  if [[ ! -d build/arm-root ]]; then
    say "$1: no libraries for 64-bit Arm on this machine, nothing was compiled for it"
    return 77
  fi
  configure_preset "$1" || return
  local tests  # but of rates, which mean nothing in qemu
  mapfile -t tests < <(ninja -C "build/$1" -t targets all |
    sed -nE 's,^bin/(cpu_[a-z_]*_test|selftest_test): .*,\1,p' | grep -v probe | sort -u)
  tf_build "build/$1" triforce-bench "${tests[@]}" || return
  ctest --preset "$1" --tests-regex "^($(IFS="|"; echo "${tests[*]}")|runs_on_.*)\$" --parallel "$(tf_jobs)"
}

leaks_can_be_found() {
  local folder status=0
  folder="$(mktemp -d)"
  echo 'int main() { return 0; }' >"$folder/probe.cpp"
  c++ -fsanitize=address "$folder/probe.cpp" -o "$folder/probe" && "$folder/probe" 2>/dev/null ||
    status=1
  rm -rf -- "$folder"
  return "$status"
}

check_fuzz() {
  configure_preset asan || return
  local targets target name corpus scratch
  mapfile -t targets < <(ninja -C build/asan -t targets all |
    sed -n '/^cmake_/d; s/^\([a-z0-9_]*_fuzz\): phony$/\1/p' | sort -u)
  ((${#targets[@]} > 0)) || { say "fuzz: no target named *_fuzz"; return 1; }
  tf_build build/asan "${targets[@]}" || return
  scratch="$(mktemp -d)"
  local failed=0
  for target in "${targets[@]}"; do
    name=${target%_fuzz}
    corpus="tests/fuzz/corpus/$name"
    mkdir -p "$scratch/$name" build/asan/artifacts
    say "fuzz: $target over $(find "$corpus" -type f | wc -l) files, then ${TF_FUZZ_SECONDS:-20} s"
    # New inputs stay outside the work tree; a failing one is kept in build/asan/artifacts.
    if ! { "build/asan/bin/$target" -runs=0 "$corpus" &&
      "build/asan/bin/$target" -seed=1 -max_total_time="${TF_FUZZ_SECONDS:-20}" -timeout=5 \
        -rss_limit_mb=512 -print_final_stats=1 -artifact_prefix=build/asan/artifacts/ \
        "$scratch/$name" "$corpus"; } >"$scratch/$name.log" 2>&1; then
      tail -n 60 "$scratch/$name.log" >&2
      failed=1
    fi
    grep -h 'stat::number_of_executed_units' "$scratch/$name.log" >&2 || true
  done
  rm -rf -- "$scratch"
  return "$failed"
}

# Newer libraries than ours: fmt 10, oneDNN 3, g++ 14, whose warnings are no errors here.
check_debian13() {
  local root="$TF_ROOT/build/debian13"
  if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
    say "debian13: takes root and debootstrap"
    return 77
  fi
  if [[ ! -d $root/src ]]; then
    rm -rf -- "$root"
    tf_logged "$TF_ROOT/build/debian13.log" "debian13: debootstrap" \
      debootstrap --variant=minbase trixie "$root" || return
    mkdir "$root/src"
  fi
  project_files '*' | tar --create --file=- --files-from=- | tar --extract --file=- -C "$root/src" || return
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  chroot "$root" /src/scripts/setup.sh || return
  # shellcheck disable=SC2016
  env -u CI unshare --net --mount bash -euc 'mount -t proc proc "$1/proc"; exec chroot "$1" bash -euc "$2"' \
    debian13 "$root" 'source /src/scripts/lib/common.sh
      tf_release_build triforce-bench cpu_linear_test
      /src/build/bin/cpu_linear_test --gtest_brief=1
      /src/build/triforce-bench selftest --device cpu'
}

run_stage() {
  case "$1" in
    format) check_format ;;
    tidy) check_tidy ;;
    asan | emulated-asan | tsan) check_tests "$1" ;;
    cuda) check_cuda cuda-check "80-real;90-real" ;;
    cuda-rtx) check_cuda cuda-rtx-check "86-real;89-real" ;;
    cuda-blackwell) check_cuda cuda-blackwell-check "100-real;120-real" ;;
    fuzz) check_fuzz ;;
    emulated) check_emulated ;;
    arm | arm-emulated) check_arm "$1" ;;
    debian13) check_debian13 ;;
  esac
}

scripts/setup.sh --checks
failures=() skipped=()
for stage in "${stages[@]}"; do
  started=$SECONDS status=0
  run_stage "$stage" || status=$?
  case "$status" in
    0) verdict=ok ;;
    77) verdict=skipped skipped+=("$stage") ;;
    *) verdict=FAILED failures+=("$stage") ;;
  esac
  say "check $stage: $verdict ($((SECONDS - started)) s)"
done
((${#skipped[@]} == 0)) || say "not checked on this machine: ${skipped[*]}"
((${#failures[@]} == 0)) || die "failed: ${failures[*]}"
