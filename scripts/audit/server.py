"""A server of OpenAI's API: one request at a time, and what a reply says of its tokens."""

import contextlib
import http.client
import json
import math
import signal
import urllib.error
import urllib.request
from dataclasses import dataclass

from plots.command import BadInput, NoAnswer

MAX_REPLY = 64 << 20  # bytes
MAX_QUOTED = 200  # characters of what a server says of an error
# Names of counters: llama.cpp's in `timings`, vLLM's in `metrics.speculative_decoding`.
DRAFTED = ("draft_n", "num_draft_tokens")
ACCEPTED = ("draft_n_accepted", "num_accepted_draft_tokens")


class HttpError(NoAnswer):
    """A status that says that the request failed."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """The key and the prompts go to the server that was named, and nowhere else."""

    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(NoRedirects)


@dataclass(frozen=True)
class Token:
    text: str
    exact: tuple = None  # its id or its bytes, where the server says them
    margin: float = None  # between the logarithms of the two greatest probabilities

    def same(self, other):
        if self.exact and other.exact and self.exact[0] == other.exact[0]:
            return self.exact == other.exact
        return self.text == other.text


@dataclass
class Reply:
    text: str
    tokens: list = None  # None: the server does not say all of them
    finish: str = None
    prompt_tokens: int = None
    generated: int = None
    drafted: int = None
    accepted: int = None

    def length(self):
        """Generated tokens; None: not known."""
        return len(self.tokens) if self.tokens is not None else self.generated

    def is_cut(self, gen_len):
        """Whether something else than the model and --gen-len ended it."""
        length = self.length()
        return (self.finish not in (None, "stop", "length") or
                self.finish == "length" and length is not None and length < gen_len)


def count_of(value):
    """A count, or None for what is none."""
    return value if type(value) is int and 0 <= value < 1 << 40 else None


def member(value, name):
    """A member that is an object; an empty one in place of anything else."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def first_count(value, names):
    return next((n for n in (count_of(value.get(name)) for name in names) if n is not None), None)


def margin_of(logarithms):
    """Between the two greatest; None: fewer are known."""
    known = sorted((x for x in logarithms if type(x) in (int, float) and math.isfinite(x)), reverse=True)
    return float(known[0] - known[1]) if len(known) > 1 else None


def chat_token(item):
    """A token as servers say it in `logprobs.content`; None: it is none."""
    if not isinstance(item, dict) or not isinstance(item.get("token"), str):
        return None
    exact, parts = None, item.get("bytes")
    if count_of(item.get("id")) is not None:
        exact = ("id", item["id"])
    elif isinstance(parts, list) and parts and all(count_of(part) is not None for part in parts):
        exact = ("bytes", *parts)
    tops = item.get("top_logprobs")
    tops = [top.get("logprob") for top in tops if isinstance(top, dict)] if isinstance(tops, list) else []
    return Token(item["token"], exact, margin_of(tops))


def tokens_of(logprobs):
    """The tokens that `logprobs` names, in either form; None: none, or some are missing."""
    content, texts, tops = (logprobs.get(name) for name in ("content", "tokens", "top_logprobs"))
    if isinstance(content, list):
        found = [chat_token(item) for item in content]
        return None if None in found else found
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return None
    if not isinstance(tops, list) or len(tops) != len(texts):
        tops = [None] * len(texts)
    return [Token(text, None, margin_of(top.values()) if isinstance(top, dict) else None)
            for text, top in zip(texts, tops)]


def reply_of(value, where):
    """What a reply says; BadInput unless it has a text."""
    choices = value.get("choices") if isinstance(value, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    text = choice.get("text") if isinstance(choice, dict) else None
    if not isinstance(text, str):
        found = f"{value!r:.{MAX_QUOTED}}"
        raise BadInput(f"{where}: expected a reply with choices[0].text, found {found}")
    usage = member(value, "usage")
    speculation = {**member(member(value, "metrics"), "speculative_decoding"), **member(value, "timings")}
    finish = choice.get("finish_reason")
    drafted, accepted = first_count(speculation, DRAFTED), first_count(speculation, ACCEPTED)
    if drafted is None or accepted is None or accepted > drafted:
        drafted = accepted = None
    reply = Reply(text, tokens_of(member(choice, "logprobs")), finish if isinstance(finish, str) else None,
                  count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens")), drafted, accepted)
    whole = reply.tokens is not None and (
        "".join(token.text for token in reply.tokens) == text or len(reply.tokens) == reply.generated)
    if not whole:
        reply.tokens = None
    return reply


@contextlib.contextmanager
def deadline(seconds):
    """TimeoutError after so long, also from a server that sends a byte now and then."""
    def late(*_):
        raise TimeoutError("timed out")
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Server:
    """A base URL, with or without /v1; `fields` go into each request, and `key` into no output."""

    def __init__(self, url, model, fields, logprobs, timeout, key):
        self.root = url.rstrip("/").removesuffix("/v1").rstrip("/")
        self.model, self.fields, self.logprobs, self.timeout, self.key = model, fields, logprobs, timeout, key
        self.answered = False  # whether a request with `logprobs` was answered
        self.has_tokenize = True  # until it is known not to

    def hide(self, value):
        """The value without the key in its texts: a server may send back what it was sent."""
        if isinstance(value, str):
            return value.replace(self.key, "***") if self.key else value
        if isinstance(value, list):
            return [self.hide(part) for part in value]
        if isinstance(value, dict):
            return {self.hide(name): self.hide(part) for name, part in value.items()}
        return value

    def post(self, path, body):
        """The value of the reply."""
        url = self.root + path
        headers = {"Content-Type": "application/json", "User-Agent": "triforce-bench"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
        if self.key:
            request.add_unredirected_header("Authorization", f"Bearer {self.key}")
        try:
            with deadline(self.timeout):
                data = self.read(request, url)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            late = isinstance(reason, TimeoutError)
            expected = f"an answer within {self.timeout:g} s (--timeout)" if late else "an answer"
            found = "none" if late else getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise NoAnswer(f"{url}: expected {expected}, found {self.hide(str(found))[:MAX_QUOTED]}") from error
        if len(data) > MAX_REPLY:
            raise BadInput(f"{url}: expected at most {MAX_REPLY} bytes, found more")
        try:  # a byte that is no UTF-8 stays apart from every other
            return self.hide(json.loads(data.decode("utf-8", "surrogateescape")))
        except (ValueError, RecursionError) as error:
            found = self.hide(data[:1 << 16].decode("utf-8", "replace"))[:MAX_QUOTED]
            raise BadInput(f"{url}: expected JSON, found {found!r}") from error

    def read(self, request, url):
        try:
            with OPENER.open(request, timeout=self.timeout) as answer:
                return answer.read(MAX_REPLY + 1)
        except urllib.error.HTTPError as error:
            with error:
                said = self.hide(error.read(1 << 16).decode("utf-8", "replace"))
            said = f"HTTP {error.code} {self.hide(str(error.reason))} {' '.join(said.split())}".strip()
            raise HttpError(f"{url}: expected an answer, found {said[:MAX_QUOTED]}") from error

    def request(self, prompt, count, logprobs):
        body = {**self.fields, "model": self.model, "prompt": prompt, "max_tokens": count, "temperature": 0, "seed": 0,
                **({"logprobs": logprobs} if logprobs else {})}
        return reply_of(self.post("/v1/completions", body), f"{self.root}/v1/completions")

    def complete(self, prompt, count):
        """Greedy tokens after the prompt. A server that refuses `logprobs` is asked without them from then on."""
        try:
            reply = self.request(prompt, count, self.logprobs)
        except HttpError:
            if self.answered or not self.logprobs:
                raise
            reply = self.request(prompt, count, 0)
            self.logprobs = 0
        self.answered = True
        return reply

    def tokenize(self, text):
        """Tokens of a prompt by /tokenize of llama.cpp and vLLM; None: the server has none."""
        if not self.has_tokenize:
            return None
        try:
            said = self.post("/tokenize", {"model": self.model, "prompt": text, "content": text, "add_special": True})
        except (HttpError, BadInput):
            said = None
        tokens, count = (said.get(name) if isinstance(said, dict) else None for name in ("tokens", "count"))
        found = count_of(count) or (len(tokens) if isinstance(tokens, list) else 0)
        self.has_tokenize = found > 0
        return found or None

    def count(self, text):
        """Tokens of a prompt; a token is generated where the server has no /tokenize."""
        found = self.tokenize(text)
        if found:
            return found
        found = self.request(text, 1, 0).prompt_tokens
        if not found:
            raise BadInput(f"{self.root}/v1/completions: usage.prompt_tokens: expected a count, found {found}")
        return found
