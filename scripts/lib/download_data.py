"""Makes the data sets that the published TriForce code names; scripts/download_data.sh runs it."""
import base64
import functools
import hashlib
import itertools
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from lib.download import (BAD_INPUT, RESOURCES, Failure, Parser, Server, bytes_of, digests, is_hex,  # noqa: E402
                          is_size, make_folder, parse, read_record, run, say, write_record, write_whole)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUCKET = "deepmind-gutenberg"
RECORD = "downloads.json"
BOOKS = {"gs": 20, "128k": None, "one-shot": 1}  # how many; None: all
# Places in the train split of NarrativeQA.
STORIES = {"lwm": [0, 50, 300, 800, 950, 1100, 2150, 2450, 2550, 2750, 3350, 3400, 3600, 3900, 4000, 4100, 4200,
                   4400, 4500, 4550],
           "demo": [300]}
# The request of the published code, a book in its middle.
PREFIX = ("You are a helpful assistant. USER: Please read a part of the book below, and then give me the summary.\n"
          "[start of the book]\n")
SUFFIX = ("\n[end of the book]\n\nNow you have read it. Please summarize it for me. First, tell me the title and the "
          "author, and then tell the story in 500 words.\n\nASSISTANT: ")
STORY = slice(3, 1024 * 500)  # characters: without a byte order mark that was read as three

HELP = f"""names:
  gs         20 books of the PG-19 test set (about 20 MB)
  128k       all books of that set that are long enough (about 40 MB)
  one-shot   one of them
  lwm        20 documents of NarrativeQA within the summary request of the LWM chat model
  demo       one of those
  all        every one of them
A file that is there already is left alone and needs no network; remove it to make it again.
FOLDER/{RECORD} keeps the SHA-256 of every file and what it was made of.
What these are: the published code reads PG-19 books from JSON files of its own, which are not
published; gs, 128k and one-shot take the first 20, all, or the first of them. Here they are books of
PG-19's test set in the order of their numbers, those of at least --min-bytes bytes, fetched from the
bucket {BUCKET} and checked by the MD5 that it lists. They are public-domain books, but not
surely the same ones. lwm and demo are the documents of NarrativeQA's train split at the places that
the published code names; they are read with the Python package 'datasets' (pip install datasets),
or from --documents FILE, a .jsonl of that split in order with a field "text" or "document": {{"text"}}.
The program cuts the book so that the whole request has --prefill tokens.
environment: STORAGE_EMULATOR_HOST names another server than https://storage.googleapis.com
exit codes: 0 done, 2 wrong usage, 3 a file is not what was expected, 4 no network or no space, or a
package is missing"""


def is_record(record):
    """Whether it is what make() writes: of each data set its bytes, their SHA-256 and its sources."""
    return bool(record) and all(
        isinstance(entry, dict) and is_size(entry.get("bytes")) and is_hex(entry.get("sha256"), 64)
        and isinstance(entry.get("made_of"), list) for entry in record.values())


def listed_book(item):
    """(number, size, md5) of an item of the bucket's listing, None of one that is no book."""
    match = re.fullmatch(r"test/([0-9]{1,9})\.txt", item["name"])
    if not match:
        return None
    size, md5 = int(item["size"]), base64.b64decode(item["md5Hash"], validate=True)
    if not is_size(size) or len(md5) != 16:
        raise ValueError(f"{item['name']} of {size} bytes")
    return int(match[1]), size, md5.hex()


class Data:
    def __init__(self, options):
        self.folder, self.documents, self.min_bytes = options.to, options.documents, options.min_bytes
        self.storage = Server.of_environment(
            "STORAGE_EMULATOR_HOST", "https://storage.googleapis.com",
            f"this needs a network; without one, put your own books into {self.folder}/NAME.jsonl, one "
            "{\"text\": ...} a line")
        self.record_path = os.path.join(self.folder, RECORD)
        self.record = read_record(self.record_path, is_record)

    def make(self, name):
        path = os.path.join(self.folder, f"{name}.jsonl")
        known = self.record.get(name)
        if known and bytes_of(path) == known["bytes"]:
            return say(f"{name}: already in {path}")
        if not known and os.path.exists(path):
            return say(f"{name}: {path} is there and was not made by this script: left alone")
        make_folder(self.folder)
        say(f"{name} from {'the PG-19 test set' if name in BOOKS else 'NarrativeQA'}")
        documents, sources = self.books(BOOKS[name]) if name in BOOKS else self.stories(STORIES[name])
        text = "".join(json.dumps(d, ensure_ascii=False) + "\n" for d in documents)
        write_whole(path, text)
        data = text.encode("utf-8")
        self.record[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "made_of": sources}
        write_record(self.record_path, self.record)
        say(f"  {len(documents)} documents in {path}")

    def listing(self):
        """(number, size, md5) of every book that is long enough, by number."""
        url = self.storage.url("storage/v1/b", BUCKET, "o", prefix="test/", maxResults=1000)
        answer = self.storage.json(url)
        try:
            if "nextPageToken" in answer:
                raise ValueError("more than one page")
            listed = [listed_book(item) for item in answer["items"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Failure(BAD_INPUT, f"the listing of the bucket {BUCKET} is not what was expected: "
                                     f"{error!a:.200}") from error
        books = [book for book in listed if book and book[1] >= self.min_bytes]
        if not books:
            raise Failure(BAD_INPUT, f"the bucket {BUCKET} has no book of {self.min_bytes} bytes")
        return sorted(books)

    def books(self, count):
        folder = os.path.join(self.folder, "pg19")
        make_folder(folder)
        documents, sources = [], []
        for number, size, md5 in self.listing()[:count]:
            path = os.path.join(folder, f"{number}.txt")
            if bytes_of(path) != size or digests(path, "md5")[0] != f"md5:{md5}":
                say(f"  book {number} ({size} bytes)")
                self.storage.fetch(self.storage.url(BUCKET, f"test/{number}.txt"), path, size, f"md5:{md5}")
            with open(path, "rb") as file:
                try:
                    documents.append({"text": file.read().decode("utf-8")})
                except UnicodeDecodeError as error:
                    raise Failure(BAD_INPUT, f"{path}: expected UTF-8: {error}") from error
            sources.append(f"test/{number}.txt md5:{md5}")
        return documents, sources

    def rows(self):
        if self.documents:
            with open(self.documents, "rb") as file:
                for number, line in enumerate(file, 1):
                    yield parse(line, functools.partial(Failure, BAD_INPUT,
                                                        f"{self.documents}:{number}: expected JSON in UTF-8"))
            return
        try:
            import datasets
        except ImportError as error:
            raise Failure(RESOURCES, "lwm and demo need the Python package 'datasets' (pip install datasets), or "
                                     "--documents FILE (see --help)") from error
        try:
            yield from datasets.load_dataset("deepmind/narrativeqa", split="train", streaming=True)
        except Exception as error:  # the package has many kinds of its own
            raise Failure(RESOURCES, f"deepmind/narrativeqa: {error}; this needs a network, or --documents FILE "
                                     "(see --help)") from error

    def stories(self, places):
        found = {}
        for place, row in enumerate(itertools.islice(self.rows(), max(places) + 1)):
            if place in places:
                inner = row.get("document", row) if isinstance(row, dict) else None
                if not isinstance(inner, dict) or not isinstance(inner.get("text"), str):
                    raise Failure(BAD_INPUT, f"document {place}: expected a field \"text\" or \"document\": {{\"text\"}}")
                text = inner["text"][STORY]
                if not text.strip() or re.search("[\ud800-\udfff]", text):
                    raise Failure(BAD_INPUT, f"document {place}: expected a text beyond its first {STORY.start} "
                                             "characters, found " + ("surrogates" if text.strip() else "none"))
                found[place] = text
        if len(found) != len(places):
            raise Failure(BAD_INPUT, f"expected documents at {places}, found those at {sorted(found)}")
        return ([{"prefix": PREFIX, "text": found[place], "suffix": SUFFIX} for place in places],
                [f"deepmind/narrativeqa train {place}" for place in places])


def main():
    known = [*BOOKS, *STORIES]
    parser = Parser(prog="scripts/download_data.sh", epilog=HELP,
                    description="Writes FOLDER/NAME.jsonl for --dataset NAME.")
    parser.add_argument("--to", metavar="FOLDER", default=os.path.join(ROOT, "data/downloads"),
                        help="default: data/downloads, where --dataset looks")
    parser.add_argument("--documents", metavar="FILE", help="NarrativeQA's train split, for lwm and demo")
    # The shortest book that holds 130,048 tokens of a Llama tokenizer, at some 3.5 bytes a token.
    parser.add_argument("--min-bytes", metavar="N", type=int, default=460000, help="of a book; default: 460000")
    parser.add_argument("names", metavar="NAME", nargs="*")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in (*known, "all")]
    if unknown or not options.names:
        parser.error(f"expected names out of {' '.join(known)} all (synthetic needs no files), "
                     f"found {' '.join(unknown) or 'none'}")
    if options.min_bytes < 1:
        parser.error(f"--min-bytes: expected a number of bytes, found {options.min_bytes}")
    if options.documents and not os.path.isfile(options.documents):
        raise Failure(BAD_INPUT, f"--documents: no file {options.documents}")
    data = Data(options)
    for name in known if "all" in options.names else dict.fromkeys(options.names):
        data.make(name)


if __name__ == "__main__":
    sys.exit(run("download_data.sh", main))
