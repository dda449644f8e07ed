#!/usr/bin/env bash
# Makes data/downloads/<name>.jsonl, one {"text": ...} a line, for the datasets the published TriForce
# code names: gs, 128k and one-shot from PG-19, lwm and demo from NarrativeQA.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bucket=deepmind-gutenberg
storage=https://storage.googleapis.com
# The shortest book that holds 130,048 tokens of a Llama tokenizer, at some 3.5 bytes a token.
least_bytes=${LEAST_BYTES:-460000}

usage() {
  cat <<END
usage: scripts/download_data.sh [--to FOLDER] NAME...
  writes FOLDER/NAME.jsonl (default data/downloads)
names:
  gs         20 books of the PG-19 test set (about 20 MB)
  128k       all books of that set that are long enough (about 40 MB)
  one-shot   one of them
  lwm        20 documents of NarrativeQA with the summary request of the LWM chat model
  demo       one of those
  all        every one of them
What these are: the published code reads PG-19 books from JSON files of its own, which are not
published; gs, 128k and one-shot take the first 20, all, or the first of them. Here they are books of
PG-19's test set in the order of their numbers, those of at least $least_bytes bytes (LEAST_BYTES
changes it), fetched from the bucket $bucket and checked by the MD5 it lists. They are
public-domain books, but not surely the same ones. lwm and demo are the documents of NarrativeQA's
train split at the places the published code names; they are read with the Python package
'datasets' (pip install datasets), or from a file that you bring: --documents FILE, a .jsonl of
that split in order with a "text" field or a "document": {"text"} field.
exit codes: 0 done, 2 wrong usage, 3 a file is not what was expected, 4 no network, or a program is missing
END
}

fail() { # exit code, message
  echo "download_data.sh: $2" >&2
  exit "$1"
}

need() {
  command -v "$1" >/dev/null || fail 4 "needs the program '$1': install it with the package manager"
}

get() { curl --fail --location --silent --show-error --connect-timeout 20 --retry 3 "$@"; }

# stdin: a page of the bucket's listing. stdout: "number size md5" of every book long enough.
pick_books() {
  python3 -c '
import base64, json, re, sys
listing = json.load(sys.stdin)
if "nextPageToken" in listing:
    sys.exit("the listing has more than one page")
books = []
for item in listing["items"]:
    match = re.fullmatch(r"test/(\d+)\.txt", item["name"])
    if match and int(item["size"]) >= int(sys.argv[1]):
        books.append((int(match[1]), item["size"], base64.b64decode(item["md5Hash"]).hex()))
for book in sorted(books):
    print(*book)
' "$least_bytes"
}

fetch_books() { # number of books: fills $to/pg19 and prints the files in order
  local listing number bytes md5 file
  mkdir -p "$to/pg19" || fail 4 "cannot make $to/pg19"
  listing=$(get "$storage/storage/v1/b/$bucket/o?prefix=test/&maxResults=1000") ||
    fail 4 "no answer from $storage: this needs a network. Without one, put your own books into $to/<name>.jsonl"
  listing=$(pick_books <<<"$listing") || fail 3 "the listing of the bucket $bucket is not what was expected"
  [[ -n $listing ]] || fail 3 "no book of the bucket $bucket has $least_bytes bytes"
  while read -r number bytes md5; do
    file=$to/pg19/$number.txt
    if ! md5sum --check --status <<<"$md5  $file" 2>/dev/null; then
      echo "  book $number ($bytes bytes)" >&2
      get --output "$file.part" "$storage/$bucket/test/$number.txt" </dev/null ||
        fail 4 "fetching book $number failed; give the command again to go on"
      md5sum --check --status <<<"$md5  $file.part" ||
        fail 3 "book $number: expected MD5 $md5, found $(md5sum <"$file.part" | cut -d' ' -f1)"
      mv "$file.part" "$file"
    fi
    echo "$file"
  done < <(head -n "$1" <<<"$listing")
}

write_books() { # name, number of books
  local files
  echo "$1 from the PG-19 test set"
  files=$(fetch_books "$2")
  python3 -c '
import json, sys
for path in sys.stdin.read().splitlines():
    print(json.dumps({"text": open(path, encoding="utf-8").read()}))
' <<<"$files" >"$to/$1.jsonl.part"
  mv "$to/$1.jsonl.part" "$to/$1.jsonl"
  echo "  $(wc -l <"$to/$1.jsonl") books in $to/$1.jsonl"
}

write_stories() { # name, places in the train split
  echo "$1 from NarrativeQA"
  mkdir -p "$to" || fail 4 "cannot make $to"
  if [[ -z $documents ]] && ! python3 -c 'import datasets' 2>/dev/null; then
    fail 4 "$1 needs the Python package 'datasets' (pip install datasets) or --documents FILE (see --help)"
  fi
  DOCUMENTS=$documents PLACES=$2 python3 - >"$to/$1.jsonl.part" <<'END' || fail 4 "$1 could not be made: this needs a network, or --documents FILE (see --help)"
import itertools, json, os, sys

places = [int(p) for p in os.environ["PLACES"].split()]
if os.environ["DOCUMENTS"]:
    rows = map(json.loads, open(os.environ["DOCUMENTS"], encoding="utf-8"))
else:
    import datasets
    rows = datasets.load_dataset("deepmind/narrativeqa", split="train", streaming=True)
found = {}
for place, row in enumerate(itertools.islice(rows, max(places) + 1)):
    if place in places:
        found[place] = row["document"]["text"] if "document" in row else row["text"]
if len(found) != len(set(places)):
    sys.exit(f"expected documents at {places}, found {sorted(found)}")
for place in places:
    # The published code asks for a summary after the text; a prompt is cut from the front to the
    # wanted length, so the request stands before it here.
    print(json.dumps({"text": "You are a helpful assistant. USER: Please read a part of the book "
                      "below, and then give me the summary.\n[start of the book]\n"
                      + found[place][3:1024 * 500]}))
END
  mv "$to/$1.jsonl.part" "$to/$1.jsonl"
  echo "  $(wc -l <"$to/$1.jsonl") documents in $to/$1.jsonl"
}

to=$root/data/downloads
documents=
chosen=()
while (($#)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --to | --documents)
      [[ $# -ge 2 ]] || fail 2 "$1 needs a value"
      [[ $1 == --to ]] && to=$2 || documents=$2
      shift
      ;;
    all) chosen+=(gs 128k one-shot lwm demo) ;;
    gs | 128k | one-shot | lwm | demo) chosen+=("$1") ;;
    *) fail 2 "unknown dataset '$1'; known: gs 128k one-shot lwm demo all (synthetic needs no files)" ;;
  esac
  shift
done
((${#chosen[@]})) || { usage >&2 && exit 2; }
[[ -z $documents || -f $documents ]] || fail 3 "--documents: no file $documents"
need python3
for name in "${chosen[@]}"; do
  case $name in
    gs) need curl && write_books gs 20 ;;
    128k) need curl && write_books 128k 1000 ;;
    one-shot) need curl && write_books one-shot 1 ;;
    lwm) write_stories lwm "0 50 300 800 950 1100 2150 2450 2550 2750 3350 3400 3600 3900 4000 4100 4200 4400 4500 4550" ;;
    demo) write_stories demo 300 ;;
  esac
done
