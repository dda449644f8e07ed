#!/usr/bin/env bash
# A sweep by an array of Slurm jobs: each measures its share of the cases, and one command puts them
# together.
#   sbatch --array=1-8 scripts/sweep_slurm.sh RECIPE DIR [-- OPTIONS OF THE SWEEP]
#   scripts/sweep_slurm.sh --merge RECIPE DIR [-- THE SAME OPTIONS] [--json all.json]
# Task K of 1-N measures `sweep RECIPE --shard K/N` and writes DIR/K-of-N.journal and .json. A task
# that was ended goes on where it was when it is submitted again: --array=3 --shards 8 is the third
# of 8. The nodes must have the same processor and GPU; sbatch's own options (--gpus, --time) stand
# before the script. --program FILE: the program, by default build/triforce-bench where sbatch was
# called. Exit status: the program's, 2 for a mistake in this command line.
set -euo pipefail

usage_error() {
  printf 'sweep_slurm: %s (--help says more)\n' "$1" >&2
  exit 2
}
is_count() { [[ $1 =~ ^[1-9][0-9]{0,4}$ ]]; }

program="${SLURM_SUBMIT_DIR:-.}/build/triforce-bench" merge="" shards="" words=()
while (($# > 0)); do
  case "$1" in
    -h | --help)
      sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --merge)
      merge=1
      shift
      ;;
    --program | --shards)
      (($# >= 2)) || usage_error "$1: expected a value, found nothing"
      if [[ $1 == --program ]]; then program=$2; else shards=$2; fi
      shift 2
      ;;
    --)
      shift
      break
      ;;
    -*) usage_error "unknown option \"$1\"" ;;
    *)
      words+=("$1")
      shift
      ;;
  esac
done
((${#words[@]} == 2)) || usage_error "expected RECIPE and DIR, found ${#words[@]} words"
recipe=${words[0]} dir=${words[1]}
[[ -f $program && -x $program ]] || usage_error "--program: expected a program, found \"$program\""

if [[ -n $merge ]]; then
  shopt -s nullglob
  journals=("$dir"/*.journal)
  ((${#journals[@]} > 0)) || usage_error "expected journals in $dir, found none"
  list=$(IFS=, && printf '%s' "${journals[*]//,/\\,}")
  exec "$program" sweep "$recipe" "$@" --merge "$list"
fi

task=${SLURM_ARRAY_TASK_ID:-} first=${SLURM_ARRAY_TASK_MIN:-} last=${SLURM_ARRAY_TASK_MAX:-}
[[ -n $task ]] || usage_error "expected an array job (sbatch --array=1-N), found none"
if [[ -z $shards ]]; then
  # Of part of an array nobody knows how large the whole was.
  [[ $first == 1 && ${SLURM_ARRAY_TASK_COUNT:-} == "$last" ]] ||
    usage_error "--shards: expected it where the array is not 1-N, found tasks $first to $last"
  shards=$last
fi
is_count "$shards" || usage_error "--shards: expected a number above 0, found \"$shards\""
if ! is_count "$task" || ((task > shards)); then
  usage_error "expected a task of 1 to $shards, found \"$task\""
fi
mkdir -p -- "$dir"
share="$dir/$task-of-$shards"
exec "$program" sweep "$recipe" "$@" --shard "$task/$shards" --resume "$share.journal" \
  --json "$share.json"
