#!/usr/bin/env bash
# Makes data/downloads/<name>.jsonl for the data sets that the published TriForce code names; --help says more.
set -euo pipefail
command -v python3 >/dev/null || {
  echo "download_data.sh: error: python3 was not found: install it with the package manager" >&2
  exit 4
}
exec python3 -B "$(dirname -- "${BASH_SOURCE[0]}")/lib/download_data.py" "$@"
