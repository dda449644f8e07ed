#!/usr/bin/env bash
# Sets up what is missing, builds build/triforce-bench and runs it with the options given here.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

"$TF_ROOT/scripts/setup.sh"
tf_release_build triforce-bench
exec "$TF_ROOT/build/triforce-bench" "$@"
