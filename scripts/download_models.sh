#!/usr/bin/env bash
# Fetches the published checkpoints from Hugging Face into data/downloads/models/<name>/.
# Every file is checked against the size and, where the hub states one, the SHA-256 of its listing.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
hub=${HF_ENDPOINT:-https://huggingface.co}

names=(llama-7B-128K llama-13B-128K lwm-128K lwm-128K-base llama-68M)
declare -A repository=(
  [llama-7B-128K]=NousResearch/Yarn-Llama-2-7b-128k
  [llama-13B-128K]=NousResearch/Yarn-Llama-2-13b-128k
  [lwm-128K]=LargeWorldModel/LWM-Text-Chat-128K
  [lwm-128K-base]=LargeWorldModel/LWM-Text-128K
  [llama-68M]=JackFram/llama-68m
)
declare -A size=(
  [llama-7B-128K]="13.5 GB" [llama-13B-128K]="26 GB" [lwm-128K]="13.5 GB"
  [lwm-128K-base]="13.5 GB" [llama-68M]="0.3 GB"
)

usage() {
  cat <<END
usage: scripts/download_models.sh [--to FOLDER] [--list] NAME...
  fetches models from $hub into FOLDER/NAME (default data/downloads/models);
  an interrupted download goes on where it stopped when the command is given again
names (about so much as 16-bit weights):
END
  for name in "${names[@]}"; do
    printf '  %-16s %-42s %s\n' "$name" "${repository[$name]}" "${size[$name]}"
  done
  cat <<END
  all              every one of them
environment: HF_TOKEN is sent to the hub if set; HF_ENDPOINT names a mirror
exit codes: 0 done, 2 wrong usage, 3 a file is not what the listing says, 4 no network or no space
END
}

fail() { # exit code, message
  echo "download_models.sh: $2" >&2
  exit "$1"
}

need() {
  command -v "$1" >/dev/null || fail 4 "needs the program '$1': install it with the package manager"
}

# The hub wants redirects followed; the token, if any, is not passed on to other hosts by curl.
get() {
  local auth=()
  [[ -n "${HF_TOKEN:-}" ]] && auth=(-H "Authorization: Bearer $HF_TOKEN")
  curl --fail --location --connect-timeout 20 --retry 3 "${auth[@]}" "$@"
}

# stdin: the hub's listing. stdout: "size sha256-or-dash path", one file a line. Safetensors are taken
# before .bin where both exist.
pick_files() {
  python3 -c '
import json, sys
files = {f["path"]: f for f in json.load(sys.stdin) if f.get("type") == "file"}
wanted = {"config.json", "tokenizer.model", "tokenizer_config.json", "generation_config.json"}
weights = [p for p in files if p.endswith(".safetensors") and "/" not in p]
if not weights:
    weights = [p for p in files if p.startswith("pytorch_model") and p.endswith(".bin")]
index = [p for p in files if p.endswith(".index.json")
         and p.startswith("model." if weights and weights[0].endswith("safetensors") else "pytorch")]
for path in sorted(wanted & files.keys()) + index + sorted(weights):
    f = files[path]
    print(f["size"], f.get("lfs", {}).get("oid", "-"), path)
'
}

bytes_of() { wc -c <"$1" | tr -d ' '; }

fetch_file() { # repository, path, size, sha256 or -, destination
  local part=$5.part
  if [[ -f $5 && $(bytes_of "$5") == "$3" ]]; then
    echo "  $2: already here"
    return
  fi
  echo "  $2 ($(($3 / 1000000)) MB)"
  if [[ -f $part && $(bytes_of "$part") -ge "$3" ]]; then rm -f "$part"; fi
  get --continue-at - --progress-bar -o "$part" "$hub/$1/resolve/main/$2" ||
    fail 4 "fetching $2 of $1 failed; give the command again to go on where it stopped"
  [[ $(bytes_of "$part") == "$3" ]] ||
    fail 3 "$2 of $1: expected $3 bytes, found $(bytes_of "$part"); remove $part and try again"
  if [[ $4 != - ]]; then
    local found
    found=$(sha256sum "$part" | cut -d' ' -f1)
    [[ $found == "$4" ]] || fail 3 "$2 of $1: expected SHA-256 $4, found $found; remove $part"
  fi
  mv "$part" "$5"
}

fetch_model() { # name
  local repo=${repository[$1]} folder=$to/$1 listing
  echo "$1 from $hub/$repo into $folder"
  listing=$(get --silent --show-error "$hub/api/models/$repo/tree/main") ||
    fail 4 "no answer from $hub for $repo: this needs a network (or HF_ENDPOINT, or HF_TOKEN)"
  listing=$(pick_files <<<"$listing") || fail 3 "the listing of $repo is not what was expected"
  grep -q config.json <<<"$listing" || fail 3 "the listing of $repo has no config.json"
  mkdir -p "$folder" || fail 4 "cannot make $folder"
  while read -r bytes sha path; do
    fetch_file "$repo" "$path" "$bytes" "$sha" "$folder/$path" </dev/null
  done <<<"$listing"
  if ! compgen -G "$folder/*.safetensors" >/dev/null; then
    echo "  only .bin weights are published: convert them with"
    echo "  python3 scripts/convert_checkpoint.py $folder"
  fi
}

to=$root/data/downloads/models
chosen=()
while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --list) printf '%s\n' "${names[@]}" && exit 0 ;;
    --to) [[ $# -ge 2 ]] || fail 2 "--to needs a folder" && to=$2 && shift ;;
    all) chosen+=("${names[@]}") ;;
    *)
      [[ -n "${repository[$1]:-}" ]] || fail 2 "unknown model '$1'; known: ${names[*]} all"
      chosen+=("$1")
      ;;
  esac
  shift
done
((${#chosen[@]})) || { usage >&2 && exit 2; }
need curl
need python3
need sha256sum
for name in "${chosen[@]}"; do fetch_model "$name"; done
