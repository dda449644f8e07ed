#!/usr/bin/env bash
# Whether a change made the program worse: runs two builds of it on this machine and compares what
# they measured. The programs, their models and options are the same but for the change.
#   scripts/ci_gate.sh --base PROGRAM --new PROGRAM [--out DIR] [--turns N] [--require-latency] [--small]
# First tokens and counters of all methods, which must be equal (AVX2 and f32, which every machine
# has). Then times, the programs in turns: base, new, new, base, base, new... --turns: so many short
# runs of each (default: 10; below 9 times cannot be decided), whose differences among themselves
# are what a change must be told from. Writes both comparisons to DIR (default: ci_gate) as .json,
# .xml (JUnit) and .md, with the results that were compared; summary.md has both. --require-latency:
# times that cannot be decided count; else they are a warning, under GitHub Actions a ::warning::.
# --small: toy sizes, for tests of this script: they do not find what longer prompts would, and the
# output says so. Exit status: 1 for a regression, 8 where something cannot be decided, that of a
# run that failed, else 0.
set -euo pipefail
# shellcheck source=lib/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

usage_error() {
  say "ci_gate: $1 (--help says more)"
  exit 2
}

base="" new="" out="ci_gate" small="" turns=10
latency=()
while (($# > 0)); do
  case "$1" in
    -h | --help)
      sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --base | --new | --out | --turns)
      (($# >= 2)) || usage_error "$1: expected a value, found nothing"
      case "$1" in
        --base) base=$2 ;;
        --new) new=$2 ;;
        --out) out=$2 ;;
        --turns) turns=$2 ;;
      esac
      shift 2
      ;;
    --require-latency)
      latency+=("$1")
      shift
      ;;
    --small)
      small=1
      shift
      ;;
    *)
      usage_error "unknown option \"$1\""
      ;;
  esac
done
for program in "$base" "$new"; do
  [[ -n $program ]] || usage_error "expected --base PROGRAM and --new PROGRAM, found one or none"
  [[ -f $program && -x $program ]] || usage_error "expected a program, found \"$program\""
done
# One run of each has nothing that it could differ from.
if ! [[ $turns =~ ^[1-9][0-9]{0,3}$ ]] || ((turns < 2 || turns > 1024)); then
  usage_error "--turns: expected an integer in 2..1024, found \"$turns\""
fi
latency+=(--runs "$turns")

exact=(--method "ar,triforce,retrieval,streaming,streaming-hierarchy,draft" --cpu-isa avx2 --dtype f32
  --prefill 2048 --gen-len 96 --budget 256 --prompts 3 --repetitions 1)
timed=(--method "ar,triforce" --prefill 4096 --gen-len 64 --budget 512 --prompts 2 --repetitions 2
  --ignore-eos)
if [[ -n $small ]]; then
  exact=(--method "ar,triforce" --cpu-isa avx2 --dtype f32 --prefill 512 --gen-len 32 --budget 128
    --prompts 2 --repetitions 1)
  timed=(--method "ar,triforce" --prefill 512 --gen-len 16 --budget 128 --prompts 2 --repetitions 2
    --ignore-eos)
fi

# What a pass with these sizes does not say.
toy="Toy sizes (--small): do not gate with these. Prompts of 512 tokens, a budget of 128 and two of six methods do not show what a change does to longer prompts or to other methods."
mkdir -p "$out"
rm -f "$out"/{exact,latency}_{base,new}.{json,jsonl} "$out"/{exact,latency}.{json,xml,md} "$out/summary.md"

# run NAME PROGRAM OPTIONS...
run() {
  local name=$1 program=$2 status=0
  shift 2
  say "ci_gate: $name: $program"
  "$program" run --device cpu --progress none --output-format json "$@" >/dev/null || status=$?
  ((status == 0)) || {
    say "ci_gate: $name: the run ended with exit status $status"
    exit "$status"
  }
}

# compare WHICH BASE NEW OPTIONS...: the status of the comparison, with its table on stdout.
compare() {
  local which=$1 before=$2 after=$3 status=0
  shift 3
  "$new" compare "$before" "$after" --json "$out/$which.json" --junit "$out/$which.xml" "$@" || status=$?
  case $status in
    0 | 1 | 8) "$new" compare "$before" "$after" "$@" --output-format markdown >"$out/$which.md" || true ;;
  esac
  return "$status"
}

# warn WHICH: what a job that passes would hide, where GitHub shows it.
warn() {
  local verdict
  [[ ${GITHUB_ACTIONS:-} == true && -f $out/$1.json ]] || return 0
  verdict=$(sed -n 's/^  "verdict": "\(.*LATENCY UNDECIDED.*\)",$/\1/p' "$out/$1.json")
  [[ -z $verdict ]] || printf '::warning title=ci_gate::%s\n' "${verdict//%/%25}"
}

run "tokens of base" "$base" "${exact[@]}" --json "$out/exact_base.json"
run "tokens of new" "$new" "${exact[@]}" --json "$out/exact_new.json"
exact_status=0
compare exact "$out/exact_base.json" "$out/exact_new.json" --exact --no-latency || exact_status=$?

for ((turn = 1; turn <= turns; ++turn)); do
  # Neither is always the later one.
  order=(base new)
  ((turn % 2 == 1)) || order=(new base)
  for side in "${order[@]}"; do
    run "times of $side, turn $turn of $turns" "${!side}" "${timed[@]}" --jsonl "$out/latency_$side.jsonl"
  done
done
latency_status=0
compare latency "$out/latency_base.jsonl" "$out/latency_new.jsonl" "${latency[@]}" || latency_status=$?
warn latency

[[ -z $small ]] || printf '\n%s\n' "$toy"
{
  [[ -z $small ]] || printf '> **Warning** %s\n\n' "$toy"
  printf '## Tokens and counters\n\n'
  cat "$out/exact.md" 2>/dev/null || printf 'The files cannot be compared.\n'
  printf '\n## Times\n\n'
  cat "$out/latency.md" 2>/dev/null || printf 'The files cannot be compared.\n'
} >"$out/summary.md"

# A regression before anything else, then what keeps from deciding.
for status in 1 "$exact_status" "$latency_status"; do
  ((status != 0)) || continue
  if ((status == exact_status || status == latency_status)); then exit "$status"; fi
done
