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
ATTEMPTS = 5  # in a row without a byte more than any before
MAX_JSON = 64 << 20  # bytes of a listing
MAX_FILE = 1 << 50


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


def run(name, main, interrupted="interrupted; give the command again to go on where it stopped"):
    """Exit code of main(); a failure is one line on stderr."""
    try:
        main()
        return 0
    except Failure as failure:
        code, line = failure.code, str(failure)
    except KeyboardInterrupt:
        code, line = INTERRUPTED, interrupted
    except OSError as error:
        code, line = RESOURCES, f"{error.filename or 'a file'}: {error.strerror or error}"
    print(f"{name}: error: {' '.join(line.split())}", file=sys.stderr)
    return code


def say(text):
    print(text, flush=True)


# Why a request failed, in words, and whether another try may help.
def describe(error):
    if isinstance(error, urllib.error.HTTPError):
        gated = "; a model may ask for HF_TOKEN, and its page for its licence to be accepted"
        return (f"{error.code} {error.reason}{gated if error.code in (401, 403) else ''}",
                error.code == 429 or error.code >= 500)
    if isinstance(error, http.client.IncompleteRead):
        return "the connection broke", True
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason or type(error).__name__), True


def parse(text, fail):
    """The value of a JSON text; fail() makes the exception for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise fail() from error


def is_size(value):
    return type(value) is int and 0 < value <= MAX_FILE


def is_hex(value, digits):
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", value) is not None


def is_url(text):
    """Whether it is the URL of a server."""
    try:
        parts = urllib.parse.urlsplit(text)
        return (re.fullmatch(r"https?://[!-~]+", text) is not None and bool(parts.hostname)
                and (parts.port is None or parts.port > 0) and not parts.query and not parts.fragment)
    except ValueError:
        return False


class Server:
    """One base URL, e.g. https://huggingface.co. `hint` ends the line for a server that cannot be
    reached; a token is sent to this server alone, not to where it redirects."""

    @classmethod
    def of_environment(cls, variable, default, hint, token_variable=None):
        """The server that a variable names, or the default, with the token of another one, if any."""
        base = os.environ.get(variable) or default
        if not is_url(base):
            raise Failure(USAGE, f"{variable}: expected the URL of a server, found {base!a}")
        token = os.environ.get(token_variable) if token_variable else None
        if token and not re.fullmatch(r"[!-~]+", token):
            raise Failure(USAGE, f"{token_variable}: expected printable ASCII without spaces, found other characters")
        return cls(base, hint, token)

    def __init__(self, base, hint, token=None):
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
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT_S)
        except ValueError as error:  # of a redirect
            raise Failure(BAD_INPUT, f"{url}: expected the URL of a file, found another: {error}") from error

    def fail(self, url, error):
        words, _ = describe(error)
        raise Failure(RESOURCES, f"{url}: {words}; {self.hint}")

    def json(self, url):
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self.open(url) as answer:
                    text = answer.read(MAX_JSON + 1)
                if len(text) > MAX_JSON:
                    raise Failure(BAD_INPUT, f"{url}: expected at most {MAX_JSON} bytes, found more")
                return parse(text, lambda: Failure(BAD_INPUT, f"{url}: expected JSON, found something else"))
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
        tries, most = 0, bytes_of(part)  # a server without ranges begins again, and may end earlier
        while (begin := bytes_of(part)) < size:
            try:
                self.read_into(url, part, begin, size)
                if bytes_of(part) < size:
                    raise http.client.IncompleteRead(b"")
            except (OSError, http.client.HTTPException) as error:
                tries = 1 if bytes_of(part) > most else tries + 1
                most = max(most, bytes_of(part))
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

    def read_into(self, url, part, begin, size):
        """Adds to `part`, or begins it anew where the server does; at most `size` bytes in all."""
        with self.open(url, begin) as answer:
            appending = answer.status == 206
            left = size - (begin if appending else 0)
            with open_part(part, "ab" if appending else "wb") as out:
                while block := answer.read(min(BLOCK, left + 1)):
                    if len(block) > left:
                        os.remove(part)
                        raise Failure(BAD_INPUT, f"{url}: expected {size} bytes, found more; nothing was kept")
                    write(out, block)
                    left -= len(block)


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


def read_record(path, is_record):
    """What write_record() wrote, which is_record() says of an object; {} if there is none."""
    def fail():
        return Failure(BAD_INPUT, f"{path}: expected the JSON that this script wrote; remove it to start anew")
    try:
        with open(path, "rb") as file:
            record = parse(file.read(), fail)
    except FileNotFoundError:
        return {}
    if not isinstance(record, dict) or not is_record(record):
        raise fail()
    return record


def write_record(path, record):
    write_whole(path, json.dumps(record, indent=1, sort_keys=True) + "\n")
