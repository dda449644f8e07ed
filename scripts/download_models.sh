#!/usr/bin/env bash
# Fetches the published checkpoints from Hugging Face into data/downloads/models/<name>/; --help says more.
set -euo pipefail
command -v python3 >/dev/null || {
  echo "download_models.sh: error: python3 was not found: install it with the package manager" >&2
  exit 4
}
exec python3 -B "$(dirname -- "${BASH_SOURCE[0]}")/lib/download_models.py" "$@"
