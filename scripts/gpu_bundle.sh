#!/usr/bin/env bash
# Packs what scripts/gpu_suite.sh runs into one archive, for a machine with a GPU that has a driver,
# bash, Python 3 and a C library not older than this machine's, and nothing to build with: the
# programs for one architecture, their libraries, the built-in pair. It says which driver and which C
# library it needs: a toolkit of CUDA 12 makes it for older drivers than one of CUDA 13. There:
#   tar xf gpu-bundle-sm_90.tar.gz -C /tmp && /tmp/gpu-bundle/run.sh --out RESULTS
# RESULTS is a folder; run.sh takes the options of gpu_suite.sh and ends within 9 minutes.
#   scripts/gpu_bundle.sh [--arch 80|86|89|90|100|120] [--emulated] [--build DIR] [--out FILE]
# --arch: compute capability without its point, 90 unless said; drivers of later cards compile the
# kernels when they are first used. --emulated: the emulated build, for tests of the bundle itself.
# --build DIR: what was built there. --out FILE: the archive, build/gpu-bundle-ARCH.tar.gz unless said.
# CUDACXX in the environment names the nvcc.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

readonly MAX_BYTES=48000000  # of a bundle for a card
architecture=90 emulated="" build="" out=""
while (($# > 0)); do
  case "$1" in
    --arch | --build | --out)
      (($# >= 2)) || die "$1 needs a value"
      case "$1" in
        --arch) architecture=$2 ;;
        --build) build=$2 ;;
        --out) out=$2 ;;
      esac
      shift 2
      ;;
    --emulated)
      emulated=1
      shift
      ;;
    -h | --help)
      tf_usage
      exit 0
      ;;
    *)
      tf_usage >&2
      exit 2
      ;;
  esac
done
[[ $architecture =~ ^[0-9]{2,3}$ ]] || die "--arch: expected 80, 86, 89, 90, 100 or 120, found $architecture"

name="sm_$architecture"
programs=(triforce-bench triforce-cuda-bench cuda_tests)
if [[ -n $emulated ]]; then
  name=emulated
  if [[ -z $build ]]; then
    build="$TF_ROOT/build-emulated"
    (cd -- "$TF_ROOT" && tf_logged "$build/configure.log" configuring cmake --preset emulated)
    tf_build "$build" "${programs[@]}"
  fi
elif [[ -z $build ]]; then
  build="$TF_ROOT/build/bundle-$name"
  nvcc="${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}"
  [[ -x $nvcc ]] ||
    die "expected nvcc, found none: install the CUDA Toolkit 12 or newer, or name its nvcc in CUDACXX"
  tf_configure "$build" -DCMAKE_BUILD_TYPE=Release -DTRIFORCE_CUDA=ON \
    "-DCMAKE_CUDA_COMPILER=$nvcc" \
    "-DCMAKE_CUDA_ARCHITECTURES=$architecture-real;$((architecture < 90 ? architecture : 90))-virtual"
  tf_build "$build" "${programs[@]}"
fi
build="$(cd -- "$build" && pwd -P)"
# What its CUDA runtime needs at least: CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required
# Driver Version for CUDA Minor Version Compatibility".
toolkit=13  # of the emulator
if [[ -z $emulated ]]; then
  toolkit="$("$(sed -n 's/^CMAKE_CUDA_COMPILER:.*=//p' "$build/CMakeCache.txt")" --version |
    sed -n 's/.*release \([0-9]*\)\..*/\1/p')"
fi
case "$toolkit" in
  12) driver=525 ;;
  13) driver=580 ;;
  *) die "expected a build by CUDA 12 or 13, found CUDA $toolkit" ;;
esac
out="${out:-$TF_ROOT/build/gpu-bundle-$name.tar.gz}"

# What the machine itself has: the C library.
of_the_system() {
  case "$1" in
    linux-vdso.so.* | ld-linux-*.so.* | libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1) ;;
    *) return 1 ;;
  esac
}

scratch="$(mktemp -d)"
trap 'rm -rf -- "$scratch"' EXIT
root="$scratch/gpu-bundle"
# The layout of the project, so that everything is found where it always is.
mkdir -p "$root/build/bin" "$root/build/lib" "$root/data" "$root/scripts/lib"
for program in triforce-bench bin/triforce-cuda-bench bin/cuda_tests; do
  [[ -f $build/$program ]] || die "$build/$program was not built"
  strip -o "$root/build/$program" "$build/$program"
done
ldd "$root/build/triforce-bench" "$root"/build/bin/* >"$scratch/ldd"
while read -r library arrow path _; do
  [[ $arrow == "=>" ]] && ! of_the_system "$library" || continue
  [[ -f $path ]] || die "$library was not found on this machine"
  cp -L -- "$path" "$root/build/lib/$library"
done <"$scratch/ldd"
cp -R -- "$TF_ROOT/data/models" "$root/data/"
cp -- "$TF_ROOT"/scripts/lib/gpu_{suite,goals}.py "$root/scripts/lib/"
cp -- "$TF_ROOT/LICENSE" "$root/"
# Nothing but bash and Python is called: there may be no dirname.
cat >"$root/run.sh" <<EOF
#!/bin/bash
# What scripts/gpu_suite.sh of the project runs, on the programs beside this file.
readonly DRIVER=$driver TOOLKIT=$toolkit
EOF
cat >>"$root/run.sh" <<'EOF'
set -euo pipefail
if command -v nvidia-smi >/dev/null; then
  found="$(nvidia-smi --query-gpu=driver_version --format=csv,noheader || true)"
  major="${found%%.*}"
  if [[ $major =~ ^[0-9]+$ ]] && ((major < DRIVER)); then
    echo "run.sh: expected an NVIDIA driver $DRIVER or newer (CUDA $TOOLKIT), found ${found%%$'\n'*}:" \
      "take a machine with a newer one, or a bundle that an older toolkit made" >&2
    exit 5
  fi
fi
here="$(cd -- "${BASH_SOURCE[0]%/*}" && pwd -P)"
exec python3 "$here/scripts/lib/gpu_suite.py" --build "$here/build" --time-limit 540 "$@"
EOF
chmod +x "$root/run.sh"

for file in "$root/build/triforce-bench" "$root"/build/bin/* "$root"/build/lib/*; do
  readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' >"$scratch/needed"
  while read -r library; do
    of_the_system "$library" || [[ -f $root/build/lib/$library ]] ||
      die "${file##*/} needs $library, which does not travel"
  done <"$scratch/needed"
done

mkdir -p "$(dirname -- "$out")"
tar -C "$scratch" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - gpu-bundle |
  gzip -9n >"$out.part"
bytes="$(stat -c %s "$out.part")"
[[ -n $emulated ]] || ((bytes <= MAX_BYTES)) || die "$out.part has $bytes bytes, more than $MAX_BYTES"
mv -- "$out.part" "$out"
say "$out: $bytes bytes; NVIDIA driver $driver or newer; newest symbol of the C library: $(
  readelf -W --dyn-syms "$root/build/triforce-bench" "$root"/build/bin/* "$root"/build/lib/* |
    grep -o 'GLIBC_2[0-9.]*' | sort -Vu | tail -n 1)"
