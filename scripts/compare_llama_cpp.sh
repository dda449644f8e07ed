#!/usr/bin/env bash
# Measures llama.cpp and triforce-bench in turns on the built-in pair of models; --help says more.
set -euo pipefail
command -v python3 >/dev/null || {
  echo "compare_llama_cpp.sh: error: python3 was not found: install it with the package manager" >&2
  exit 4
}
exec python3 -B "$(dirname -- "${BASH_SOURCE[0]}")/lib/compare_llama_cpp.py" "$@"
