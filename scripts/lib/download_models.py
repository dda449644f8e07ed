"""Fetches the published checkpoints from Hugging Face; scripts/download_models.sh runs it."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import convert_checkpoint  # noqa: E402
from lib.download import (BAD_INPUT, Failure, Parser, Server, bytes_of, check_space, digests,  # noqa: E402
                          is_hex, is_size, make_folder, read_record, run, say, write_record)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(ROOT, "data", "presets.json"), encoding="utf-8") as presets:
    MODELS = {preset["name"]: preset for preset in json.load(presets)["presets"]}
REPOSITORY = r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*"
SMALL = {"config.json", "tokenizer.model", "tokenizer.json", "tokenizer_config.json",
         "generation_config.json"}
RECORD = "download.json"


def help_text():
    names = "\n".join(f"  {name:16} {preset['repository']:46} {preset['gb']:4} GB"
                      + (" gated" if preset.get("gated") else "") for name, preset in MODELS.items())
    return f"""names:
{names}
  OWNER/NAME       any other repository of the hub, into FOLDER/NAME
gated: the hub asks to accept a licence there first, and for HF_TOKEN
An interrupted download goes on where it stopped when the command is given again; a model that is
there already needs no network. Every file is checked against the SHA-256 (or git's own id, for small
files) that the hub states. FOLDER/NAME/{RECORD} keeps the revision and the SHA-256 of every file: what is
fetched again later must be the same. Remove it to take what the hub has now.
Weights published as .bin only are converted to safetensors (scripts/convert_checkpoint.py).
environment: HF_ENDPOINT names another hub (a mirror); HF_TOKEN is sent to the hub if set
exit codes: 0 done, 2 wrong usage, 3 a file is not what was expected, 4 no network or no space"""


def size_and_digest(item, repo):
    """(size, digest) of a file, by its item of the hub's listing."""
    lfs = item.get("lfs")
    oid, digits, kind = (lfs.get("oid"), 64, "sha256") if isinstance(lfs, dict) else (item.get("oid"), 40, "git")
    if not is_size(item.get("size")) or lfs is not None and not isinstance(lfs, dict) or not is_hex(oid, digits):
        raise Failure(BAD_INPUT, f"the listing of {repo}: {item['path']}: expected a size and a digest, "
                                 f"found {ascii(item):.200}")
    return item["size"], f"{kind}:{oid}"


def wanted_files(listing, repo):
    """path -> (size, digest), in the order to fetch them. Safetensors are taken before .bin."""
    items = listing if isinstance(listing, list) else [listing]
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("path"), str):
            raise Failure(BAD_INPUT, f"the listing of {repo}: expected files with their paths, found {ascii(item):.200}")
    files = {item["path"]: item for item in items if item.get("type") == "file"}
    for stem, end in (("model", "safetensors"), ("pytorch_model", "bin")):
        weights = sorted(p for p in files if re.fullmatch(rf"{stem}(-\d+-of-\d+)?\.{end}", p))
        if weights:
            break
    else:
        raise Failure(BAD_INPUT, f"{repo} has neither model*.safetensors nor pytorch_model*.bin")
    if "config.json" not in files:
        raise Failure(BAD_INPUT, f"{repo} has no config.json")
    index = [f"{stem}.{end}.index.json"] if len(weights) > 1 else []
    if set(index) - files.keys():
        raise Failure(BAD_INPUT, f"{repo} has {len(weights)} {end} shards, but no {index[0]}")
    wanted = sorted(SMALL & files.keys()) + index + weights
    return {path: size_and_digest(files[path], repo) for path in wanted}


def is_record(record):
    """Whether it is what fetch() writes: the files it names lie in the model's folder."""
    files = record.get("files")
    return (isinstance(record.get("repository"), str) and is_hex(record.get("revision"), 40)
            and isinstance(record.get("complete"), bool) and isinstance(files, dict)
            and all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", path) and isinstance(entry, dict)
                    and is_size(entry.get("size")) and is_hex(entry.get("sha256"), 64)
                    for path, entry in files.items()))


class Model:
    def __init__(self, name, hub, folder):
        self.repo = MODELS[name]["repository"] if name in MODELS else name
        self.hub, self.folder = hub, folder
        self.record_path = os.path.join(folder, RECORD)
        self.record = read_record(self.record_path, is_record)
        self.record.setdefault("files", {})
        if self.record.setdefault("repository", self.repo) != self.repo:
            raise Failure(BAD_INPUT, f"{self.record_path}: not a record of {self.repo}; remove it to start anew")

    def path(self, name):
        return os.path.join(self.folder, name)

    def complete(self):
        return self.record.get("complete") is True and all(
            bytes_of(self.path(path)) == entry["size"] for path, entry in self.record["files"].items())

    def fetch(self):
        revision = self.record.get("revision")
        if not revision:
            answer = self.hub.json(self.hub.url("api/models", self.repo, "revision/main"))
            revision = answer.get("sha") if isinstance(answer, dict) else None
            if not is_hex(revision, 40):
                raise Failure(BAD_INPUT, f"{self.repo}: expected the hub to name a revision, found {ascii(revision):.200}")
        listing = self.hub.json(self.hub.url("api/models", self.repo, "tree", revision))
        files = wanted_files(listing, self.repo)
        make_folder(self.folder)
        check_space(self.folder, sum(size - min(size, bytes_of(self.path(p)) + bytes_of(self.path(p) + ".part"))
                                     for p, (size, _) in files.items()))
        self.record.update(revision=revision, complete=False)
        for path, (size, digest) in files.items():
            self.fetch_file(revision, path, size, digest)
        self.record["files"] = {path: self.record["files"][path] for path in files}
        self.record["complete"] = True
        write_record(self.record_path, self.record)

    def fetch_file(self, revision, path, size, digest):
        known = self.record["files"].get(path, {}).get("sha256")
        sha256 = None
        if bytes_of(self.path(path)) == size:
            found, sha256 = digests(self.path(path), digest.split(":")[0])
            if found != digest or known not in (None, sha256):
                sha256 = None
        if sha256:
            say(f"  {path}: already here")
        else:
            say(f"  {path} ({size / 1e6:.1f} MB)")
            url = self.hub.url(self.repo, "resolve", revision, path)
            sha256 = self.hub.fetch(url, self.path(path), size, digest, known)
        self.record["files"][path] = {"size": size, "sha256": sha256}
        write_record(self.record_path, self.record)

    def verify(self):
        for path, entry in self.record["files"].items():
            try:
                _, sha256 = digests(self.path(path), "sha256")
            except FileNotFoundError as error:
                raise Failure(BAD_INPUT, f"{self.path(path)}: expected the file that {RECORD} names, "
                                         "found none") from error
            if sha256 != entry["sha256"]:
                raise Failure(BAD_INPUT, f"{self.path(path)}: expected SHA-256 {entry['sha256']}, found {sha256}; "
                                         "remove it and fetch it again")

    def convert(self):
        if any(p.endswith(".safetensors") for p in self.record["files"]):
            return
        if any(os.path.exists(self.path(f"model.safetensors{end}")) for end in ("", ".index.json")):
            return
        say("  only .bin weights are published: converting")
        convert_checkpoint.convert(convert_checkpoint.Path(self.folder), convert_checkpoint.Path(self.folder))


def main():
    parser = Parser(prog="scripts/download_models.sh", epilog=help_text(),
                    description="Fetches models from Hugging Face into FOLDER/NAME.")
    parser.add_argument("--to", metavar="FOLDER", default=os.path.join(ROOT, "data/downloads/models"),
                        help="default: data/downloads/models, where --target and --draft look")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--verify", action="store_true", help="also read every file again and compare its SHA-256")
    parser.add_argument("names", metavar="NAME", nargs="*", help="see below, or OWNER/NAME")
    options = parser.parse_args()
    if options.list:
        return say("\n".join(MODELS))
    unknown = [name for name in options.names if name not in MODELS and not re.fullmatch(REPOSITORY, name)]
    if unknown or not options.names:
        parser.error(f"expected OWNER/NAME, or names out of {' '.join(MODELS)}, "
                     f"found {' '.join(unknown) or 'none'}")
    hub = Server.of_environment("HF_ENDPOINT", "https://huggingface.co",
                                "this needs a network (HF_ENDPOINT names a mirror, HF_TOKEN a token); give the "
                                "command again to go on where it stopped", "HF_TOKEN")
    for name in dict.fromkeys(options.names):
        folder = os.path.join(options.to, name.rpartition("/")[2])
        model = Model(name, hub, folder)
        if model.complete():
            say(f"{name}: already in {folder}, revision {model.record['revision']}")
        else:
            say(f"{name} from {hub.base}/{model.repo} into {folder}")
            model.fetch()
        if options.verify:
            model.verify()
        model.convert()


if __name__ == "__main__":
    sys.exit(run("download_models.sh", main))
