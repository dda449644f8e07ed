#!/usr/bin/env bash
# Installs the system packages that are missing and says so; does nothing when all are there.
#   scripts/setup.sh           what building, running and testing need
#   scripts/setup.sh --checks  also what scripts/check.sh needs: clang and its tools, Open MPI, a compiler
#                              for 64-bit Arm and qemu, libraries for it (build/arm-root), where there
#                              is nvcc, what reads its machine code (build/check-tools), packages of
#                              Python that tests compare with (build/test-python), and Chromium
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

# Package to install, and the command whose presence makes it unnecessary ("-": none).
packages=(
  "g++ c++" "cmake cmake" "ninja-build ninja" "python3 python3" "ca-certificates -"
  "libfmt-dev -" "libcli11-dev -" "libboost-dev -" "libtomlplusplus-dev -"
  "nlohmann-json3-dev -" "libsentencepiece-dev -" "libpcre2-dev -" "libutf8proc-dev -" "libeigen3-dev -"
  "libdnnl-dev -"
  "ocl-icd-opencl-dev -"  # only because the CMake package of libdnnl-dev looks for it
  "libssl-dev -" "libgtest-dev -" "libbenchmark-dev -"
  "libboost-context-dev -"  # fibers of the CUDA emulator, for its tests only
)
check_packages=("clang-14 clang++-14" "libclang-rt-14-dev -" "libomp-14-dev -" "lld-14 ld.lld-14"
  "clang-tidy-14 clang-tidy-14" "clang-format-14 clang-format-14"
  "libopenmpi-dev mpicxx" "openmpi-bin mpiexec")  # ranks that a launcher started
is_arm() { [[ $(uname -m) == aarch64 ]]; }
is_arm || check_packages+=("g++-aarch64-linux-gnu aarch64-linux-gnu-g++" "qemu-user qemu-aarch64")
has_nvcc() { command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; }
! has_nvcc || check_packages+=("python3-pip pip3")  # install_check_tools

own_packages=("${packages[@]}")
case "${1:-}" in
  "") ;;
  --checks) packages+=("${check_packages[@]}") ;;
  *)
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

# sudo asks for a password only where somebody can type it.
may_sudo() {
  command -v sudo >/dev/null || return 1
  sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }
}
as_root=()
# Whether packages may be installed, and how.
find_root() {
  ((EUID != 0)) || return 0
  may_sudo || return 1
  as_root=(sudo)
}
apt() {
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -y -q \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}
lists_present() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

install_packages() {
  # Other systems: name what is needed and let CMake find or fetch it.
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    for tool in cmake c++ python3; do
      command -v "$tool" >/dev/null || missing_tool=1
    done
    if [[ -n ${missing_tool:-} || ! -f $TF_ROOT/build/CMakeCache.txt ]]; then
      say "setup: no apt-get here. Needed: a C++20 compiler (gcc 12 or newer) with OpenMP, cmake 3.24,"
      say "  ninja, python3, fmt 9 to 12, CLI11 2.1, Boost 1.74, toml++ 3.3, nlohmann_json 3.11,"
      say "  SentencePiece, PCRE2, utf8proc, Eigen 3.4, oneDNN 2.6 or newer, or 3, OpenSSL 3, and for"
      say "  the tests GoogleTest 1.12 and Google Benchmark 1.7. For example:"
      say "  dnf install gcc-c++ cmake ninja-build python3 fmt-devel cli11-devel boost-devel \\"
      say "    tomlplusplus-devel json-devel sentencepiece-devel pcre2-devel utf8proc-devel eigen3-devel \\"
      say "    onednn-devel openssl-devel gtest-devel google-benchmark-devel"
      say "  pacman -S gcc cmake ninja python fmt cli11 boost tomlplusplus nlohmann-json sentencepiece \\"
      say "    pcre2 libutf8proc eigen onednn openssl gtest benchmark"
      say "  brew install gcc cmake ninja fmt cli11 boost tomlplusplus nlohmann-json sentencepiece \\"
      say "    pcre2 utf8proc eigen onednn openssl@3 googletest google-benchmark"
      say "  What is not found is downloaded by CMake (cmake/Dependencies.cmake), but not OpenSSL, Boost, PCRE2,"
      say "  utf8proc and Eigen."
    fi
    [[ -z ${missing_tool:-} ]] || die "cmake, a C++ compiler and python3 must be installed first"
    return 0
  fi

  names=()
  for entry in "${packages[@]}"; do
    [[ ${entry#* } == - ]] && names+=("${entry% *}")
  done
  installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "${names[@]}" 2>/dev/null || true) "
  missing=()
  for entry in "${packages[@]}"; do
    package=${entry% *} tool=${entry#* }
    if [[ $tool != - ]]; then
      command -v "$tool" >/dev/null || missing+=("$package")
    elif [[ $installed != *" installed:$package "* ]]; then
      missing+=("$package")
    fi
  done
  ((${#missing[@]} > 0)) || return 0

  if ! find_root; then
    say "setup: missing packages: ${missing[*]}"
    say "setup: neither root nor sudo; going on with what CMake finds or downloads."
    say "setup: an administrator can run: apt-get install ${missing[*]}"
    return 0
  fi
  log="$(mktemp)"
  trap 'rm -f -- "$log"' EXIT
  say "setup: installing ${missing[*]} with ${as_root[*]:+sudo }apt-get"
  updated=
  if ! lists_present; then
    say "setup: no package lists yet, running apt-get update"
    apt update >"$log" 2>&1 || { cat "$log" >&2; die "apt-get update failed"; }
    updated=1
  fi
  if ! apt install --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
    # Lists that are too old name files which are gone.
    if [[ -z $updated ]]; then
      say "setup: that failed, trying once more after apt-get update"
      apt update >"$log" 2>&1 || { cat "$log" >&2; die "apt-get update failed"; }
      apt install --no-install-recommends "${missing[@]}" >"$log" 2>&1 && return 0
    fi
    tail -n 30 "$log" >&2
    die "apt-get could not install ${missing[*]}"
  fi
}

# The libraries of the list for 64-bit Arm, unpacked. The system's own packages stay as they are.
unpack_libraries_for_arm() {
  local root="$TF_ROOT/build/arm-root" work="$TF_ROOT/build/arm-root.part" deb entry names=()
  ! is_arm && command -v apt-get >/dev/null && command -v aarch64-linux-gnu-g++ >/dev/null || return 0
  for entry in "${own_packages[@]}"; do
    [[ $entry != lib*" -" && $entry != nlohmann* ]] || names+=("${entry% *}")
  done
  names+=(ocl-icd-opencl-dev "libstdc++-$(aarch64-linux-gnu-g++ -dumpversion)-dev")
  ! cmp -s "$root/packages" <(printf '%s\n' "${names[@]}") || return 0
  say "setup: unpacking the libraries for 64-bit Arm in build/arm-root"
  rm -rf -- "$root" "$work"
  mkdir -p "$work/tree" "$work"/{state/lists,cache/archives}/partial
  : >"$work/status"
  local options=(-q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$work/state"
    -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" -o Debug::NoLocking=1
    -o "APT::Sandbox::User=$(id -un)")
  if ! { apt-get "${options[@]}" update && apt-get "${options[@]}" install --no-install-recommends \
    --download-only "${names[@]}"; } >"$work/log" 2>&1; then
    tail -n 5 "$work/log" >&2
    say "setup: apt-get found no libraries for 64-bit Arm: builds for it will not be checked"
    return 0
  fi
  for deb in "$work"/cache/archives/*.deb; do dpkg-deb --extract "$deb" "$work/tree"; done
  printf '%s\n' "${names[@]}" >"$work/tree/packages"
  mv -- "$work/tree" "$root"
  rm -rf -- "$work"
}

# pip_install FOLDER FILE: the pinned Python packages of a file, unless they are there.
pip_install() {
  ! cmp -s "$2" "$1/requirements.txt" || return 0
  say "setup: installing the packages of ${2#"$TF_ROOT/"} in ${1#"$TF_ROOT/"}"
  rm -rf -- "$1"
  if ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
    --no-deps --require-hashes --only-binary :all: --target "$1" -r "$2" >&2; then
    say "setup: pip could not install them"
    rm -rf -- "$1"
    return 1
  fi
  cp -- "$2" "$1/requirements.txt"
}

# Python packages that only the checks of machine code need: cuobjdump and nvdisasm, which few
# installations of CUDA have, and the headers of CuTe. Without them those checks say so and are left out.
install_check_tools() {
  has_nvcc || return 0
  pip_install "$TF_ROOT/build/check-tools" "$TF_ROOT/tests/cuda/machine_code/requirements.txt" ||
    say "setup: machine code and fragments will not be checked"
}

# Python packages that only tests of scripts need. Without them those tests are skipped.
install_test_packages() {
  python3 -m pip --version >/dev/null 2>&1 || return 0
  pip_install "$TF_ROOT/build/test-python" "$TF_ROOT/tests/scripts/requirements.txt" ||
    say "setup: tokenizers and GGUF files will not be compared with their libraries"
}

# A browser, in which tests open reports. Some systems have no such package; without one those tests
# are skipped.
install_browser() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
    ! command -v "$name" >/dev/null || return 0
  done
  command -v apt-get >/dev/null && find_root || return 0
  say "setup: installing chromium (80 MB)"
  lists_present || apt update >/dev/null 2>&1 || true
  apt install --no-install-recommends chromium >/dev/null 2>&1 ||
    say "setup: apt-get could not install chromium; reports will not be opened in a browser"
}

have_python_packages() {  # found, not imported, which takes a second
  PYTHONPATH="$1" python3 -c 'import importlib.util as i, sys
sys.exit(not all(map(i.find_spec, ("jsonschema", "matplotlib"))))'
}

# What pictures, reports and tests of results need. Debian's Python has packages of its system, which any
# other python3 on the path does not see.
install_python_packages() {
  local folder="$TF_ROOT/build/python" wanted="$TF_ROOT/scripts/requirements.txt"
  ! have_python_packages "$folder" || return 0
  if [[ $(command -v python3) != /usr/bin/python3 ]] || ! command -v apt-get >/dev/null; then
    pip_install "$folder" "$wanted" && return 0
  else
    packages=("python3-jsonschema -" "python3-matplotlib -")
    install_packages
  fi
  have_python_packages "$folder" ||
    say "setup: python3 has no jsonschema or no matplotlib: no pictures and no reports, and their tests fail"
}

install_packages
install_python_packages
if [[ ${1:-} == --checks ]]; then
  unpack_libraries_for_arm
  install_check_tools
  install_test_packages
  install_browser
fi
