"""What the download scripts share: files over HTTP that are whole and checked or not there at all,
records of what was fetched, and one line for whatever goes wrong."""
import argparse
import hashlib
import http.client
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

# Exit codes, those of triforce-bench.
USAGE, BAD_INPUT, RESOURCES, INTERRUPTED = 2, 3, 4, 130

BLOCK = 1 << 20
TIMEOUT_S = 60
ATTEMPTS = 5  # in a row without a byte


class Failure(Exception):
    """Ends the program: exit code and one line."""

    def __init__(self, code, line):
        super().__init__(line)
        self.code = code


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line too."""

    def __init__(self, **kwargs):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kwargs)

    def error(self, message):
        raise Failure(USAGE, f"{message}; see --help")


def run(name, main):
    """Exit code of main(); a failure is one line on stderr."""
    try:
        main()
        return 0
    except Failure as failure:
        code, line = failure.code, str(failure)
    except KeyboardInterrupt:
        code, line = INTERRUPTED, "interrupted; give the command again to go on where it stopped"
    except OSError as error:
        code, line = RESOURCES, f"{error.filename or 'a file'}: {error.strerror or error}"
    print(f"{name}: error: {' '.join(line.split())}", file=sys.stderr)
    return code


def say(text):
    print(text, flush=True)


# Why a request failed, in words, and whether another try may help.
def describe(error):
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}", error.code == 429 or error.code >= 500
    if isinstance(error, http.client.IncompleteRead):
        return "the connection broke", True
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason or type(error).__name__), True


class Server:
    """One base URL, e.g. https://huggingface.co. `hint` ends the line for a server that cannot be
    reached; a token is sent to this server alone, not to where it redirects."""

    def __init__(self, base, hint, token=None):
        if not re.match(r"https?://[^/]+", base):
            raise Failure(USAGE, f"expected the URL of a server, found {base!r}")
        self.base = base.rstrip("/")
        self.hint = hint
        self.token = token

    def url(self, *parts, **query):
        path = "/".join(urllib.parse.quote(part) for part in parts)
        return f"{self.base}/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")

    def open(self, url, begin=0):
        request = urllib.request.Request(url, headers={"User-Agent": "triforce-bench"})
        if begin > 0:
            request.add_header("Range", f"bytes={begin}-")
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)

    def fail(self, url, error):
        words, _ = describe(error)
        raise Failure(RESOURCES, f"{url}: {words}; {self.hint}")

    def json(self, url):
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.open(url) as answer:
                    return json.load(answer)
            except ValueError as error:
                raise Failure(BAD_INPUT, f"{url}: expected JSON, found something else") from error
            except (OSError, http.client.HTTPException) as error:
                # A name that does not resolve, or a refusal, will do so again.
                again = isinstance(error, urllib.error.HTTPError) and describe(error)[1]
                if not again or attempt == ATTEMPTS:
                    self.fail(url, error)
                time.sleep(0.2 * attempt)

    def fetch(self, url, path, size, digest, sha256=None):
        """Makes `path`, of `size` bytes with this digest ("sha256:...", "md5:..." or "git:..."), and
        returns its SHA-256, which must be `sha256` if given. Goes on with what an earlier call left in
        path.part; `path` itself appears only when all is right."""
        part = f"{path}.part"
        tries = 0
        while (begin := bytes_of(part)) < size:
            try:
                self.read_into(url, part, begin)
                if bytes_of(part) < size:
                    raise http.client.IncompleteRead(b"")
            except (OSError, http.client.HTTPException) as error:
                tries = 1 if bytes_of(part) > begin else tries + 1
                if not describe(error)[1] or tries == ATTEMPTS:
                    self.fail(url, error)
                time.sleep(0.2 * tries)
        found_size = bytes_of(part)
        found, found_sha256 = digests(part, digest.split(":")[0])
        if found_size != size or found != digest or sha256 not in (None, found_sha256):
            os.remove(part)
            expected = digest if found != digest else f"sha256:{sha256} as at the first download"
            raise Failure(BAD_INPUT, f"{url}: expected {size} bytes, {expected}, found {found_size} "
                                     f"bytes, {found if found != digest else found_sha256}; nothing was kept")
        os.replace(part, path)
        return found_sha256

    def read_into(self, url, part, begin):
        with self.open(url, begin) as answer:
            appending = answer.status == 206
            with open_part(part, "ab" if appending else "wb") as out:
                while block := answer.read(BLOCK):
                    write(out, block)


def open_part(part, mode):
    try:
        return open(part, mode, buffering=0)
    except OSError as error:
        raise Failure(RESOURCES, f"{part}: cannot write: {error.strerror}") from error


def write(out, block):
    try:
        while block:
            block = block[out.write(block):]
    except OSError as error:
        raise Failure(RESOURCES, f"{out.name}: cannot write: {error.strerror}") from error


def bytes_of(path):
    """0 if there is no such file."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def digests(path, kind):
    """("kind:hex", SHA-256 in hex) of a file; kind: sha256, md5, or git: the id of the file as a blob."""
    own = hashlib.sha1() if kind == "git" else hashlib.new(kind)
    if kind == "git":
        own.update(b"blob %d\0" % os.path.getsize(path))
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            own.update(block)
            sha256.update(block)
    return f"{kind}:{own.hexdigest()}", sha256.hexdigest()


def make_folder(folder):
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Failure(RESOURCES, f"{folder}: cannot make the folder: {error.strerror}") from error


def check_space(folder, needed):
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failure(RESOURCES, f"{folder}: expected {needed / 1e9:.1f} GB free, found {free / 1e9:.1f} GB")


def write_whole(path, text):
    with open_part(f"{path}.part", "wb") as out:
        write(out, text.encode("utf-8"))
    os.replace(f"{path}.part", path)


def read_record(path):
    """What write_record() wrote; {} if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Failure(BAD_INPUT, f"{path}: expected the JSON that this script wrote; remove it to start anew") from error
    if not isinstance(record, dict):
        raise Failure(BAD_INPUT, f"{path}: expected a JSON object; remove it to start anew")
    return record


def write_record(path, record):
    write_whole(path, json.dumps(record, indent=1, sort_keys=True) + "\n")
