"""What llama.cpp's programs are asked and what they say, for scripts/compare_llama_cpp.sh: tokens per second of
prefills, of decoding alone and in batches, of speculative decoding and of prompt lookup, each by the settings that
are fastest for llama.cpp."""
import json
import re
import shlex
from collections import namedtuple
from pathlib import Path

from children import FAILED
from download import Failure
from llama_cpp import OWN, WEIGHTS

CACHES = ("f16", "bf16")  # formats of llama.cpp's KV cache that are tried: all that are not quantised
DRAFTS = (2, 4, 8)  # tokens of a draft that are tried
NGRAMS = (2, 4)  # tokens that a lookup of llama-speculative-simple compares: it drafts at least as many
ATTEMPTS = 5  # llama.cpp's log may end before its last lines where the program ends first (its issue 22142)
LONG = 2048  # tokens from which a prefill needs no warm-up: it would double the time
TEMPERATURE, TOP_P = "0.6", "0.9"  # of generations, in both programs

# Formats of weights and KV cache; flash attention 1 or 0, the faster first, where both go with them.
Setting = namedtuple("Setting", "weights cache flash")
# A rate in tokens per second, None where there is none, and the share of the drafts that was accepted, if any;
# flash: with flash attention or without.
Rate = namedtuple("Rate", "value accepted flash")
# A program that speculates, and the options that say how.
Speculator = namedtuple("Speculator", "program options")


def label(speculator):
    """As in "llama-lookup --spec-draft-n-max 4": without paths."""
    return shlex.join([speculator.program, *(word for word in map(str, speculator.options) if "/" not in word
                                             and word != "-md")])


def number(row, name):
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} of a row is {value!r}")
    return value


def bench_rates(text):
    """{(model file, flash attention 0 or 1): tokens per second} of what llama-bench -o json prints, and what it calls
    the models, by file."""
    try:
        rows = json.loads(text)
        rates = {(Path(row["model_filename"]).name, number(row, "flash_attn")): number(row, "avg_ts") for row in rows}
        if not rates or not all(rate > 0 for rate in rates.values()):
            raise ValueError("no rate, or one that is not above 0")
        return rates, {Path(row["model_filename"]).name: str(row.get("model_type")) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(FAILED, "llama-bench: expected JSON with a rate in every row, found something else: "
                              f"{error}") from error


def batched_rates(text):
    """{sequences: tokens per second of all of them} of what llama-batched-bench --output-format jsonl prints."""
    try:  # a line without its end is one that the log lost
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
        return {number(row, "pl"): number(row, "speed_tg") for row in rows}
    except (ValueError, AttributeError) as error:
        raise Failure(FAILED, "llama-batched-bench: expected lines of JSON, found something else: "
                              f"{error}") from error


def speculative_rates(program, text):
    """Tokens of the prompt, tokens per second after it, and the share of drafted tokens that was accepted,
    of what a program that speculates says."""
    encoded = re.search(r"encoded +(\d+) tokens in", text)
    decoded = re.search(r"decoded +(\d+) tokens in +[0-9.]+ seconds, speed: +([0-9.]+) t/s", text)
    drafted, accepted = (re.search(rf"{name} += (\d+)", text) for name in ("n_drafted", "n_accept"))
    if not (encoded and decoded and drafted and accepted) or int(decoded[1]) < 1:
        raise Failure(FAILED, f"{program}: expected the tokens that it decoded and how fast, found no such lines")
    return int(encoded[1]), float(decoded[2]), int(accepted[1]) / max(1, int(drafted[1]))


class Theirs:
    """`peer`: LlamaCpp, ready; `measure(what, when, command)`: what a command wrote on stdout and stderr;
    `draft`: the file of the model that drafts, by the format of the target's weights."""

    def __init__(self, peer, measure, draft, options):
        self.peer, self.measure, self.draft, self.o = peer, measure, draft, options
        self.settings = {}  # {"prefill", "decode" or "own": Setting}
        self.speculators = {}  # {"speculative" or "lookup": Speculator}, those that work
        self.candidates = {}  # {the same: how many were tried}
        self.refused = {}  # {"speculative" or "lookup": why none works}
        self.own = OWN  # the format of a quantised file, as llama.cpp calls it

    # ---- commands

    def bench(self, when, figure, weights, cache, flash, depth, repetitions):
        """{flash attention: tokens per second}."""
        model = self.peer.model("target", weights)
        tokens = ["-p", depth, "-n", 0] if figure == "prefill" else ["-p", 0, "-n", self.o.gen_len, "-d", depth]
        warm = [] if figure != "prefill" or depth < LONG else ["--no-warmup"]
        command = [self.peer.program("llama-bench"), "-m", model, *tokens, *warm, "-fa", ",".join(map(str, flash)),
                   "-ctk", cache, "-ctv", cache, "-t", self.o.threads, "-r", repetitions, "-o", "json"]
        what = figure if figure != "own" else "decode of the file's own format"
        rates, types = bench_rates(self.measure(f"llama.cpp, {what}", when, command)[0])
        wanted = {f: (model.name, f) for f in flash}
        if set(wanted.values()) != set(rates):
            raise Failure(FAILED, f"llama-bench: expected a row for each of {sorted(wanted.values())}, found "
                                  f"{sorted(rates)}")
        if weights == OWN:
            found = re.search(r"\b(I?Q\d\w*|MXFP4\w*|BF16|F16|F32)\b", types[model.name])
            self.own = found[1] if found else OWN
        return {f: rates[row] for f, row in wanted.items()}

    def speculate(self, when, figure, speculator, document, depth):
        """Rate after the document of `depth` tokens."""
        weights, cache, flash = self.settings["decode"]
        apart = max(4, depth // 30)  # of the document from so many tokens
        room = depth + apart + self.o.gen_len + 64
        command = [self.peer.program(speculator.program), "-m", self.peer.model("target", weights),
                   *speculator.options, "-f", document, "-n", self.o.gen_len, "-c", room, "-b", room, "-t",
                   self.o.threads, "-fa", "on" if flash[0] else "off", "-ctk", cache, "-ctv", cache, "--temp",
                   TEMPERATURE, "--top-p", TOP_P, "--top-k", 0, "--min-p", 0, "--seed", 42, "--ignore-eos"]
        what = "llama.cpp, speculative decode" if figure == "speculative" else "llama.cpp, prompt lookup"
        for _ in range(ATTEMPTS):
            text = "".join(self.measure(what, when, command))
            if "n_accept" in text:
                break
        if re.search(r"n_drafted += 0\b", text) and figure == "lookup" and when.startswith("trial"):
            raise Failure(FAILED, f"{label(speculator)}: expected drafts, found none")
        tokens, rate, accepted = speculative_rates(speculator.program, text)
        if abs(tokens - depth) > apart:
            raise Failure(FAILED, f"{speculator.program}: expected a prompt of about {depth} tokens, found {tokens}")
        return Rate(rate, accepted, flash[0])

    def batches(self, when, depth, sizes):
        """{sequences: [Rate of all of them together, one for each kind of attention]}."""
        found = {size: [] for size in sizes}
        for flash in self.settings["decode"].flash:
            for size, rate in self.batches_by(when, depth, sizes, flash).items():
                found[size].append(Rate(rate, None, flash))
        return found

    def batches_by(self, when, depth, sizes, flash):
        """{sequences: tokens per second of all of them}."""
        weights, cache, _ = self.settings["decode"]
        room = max(sizes) * (-(-(depth + self.o.gen_len + 64) // 256) * 256)
        command = [self.peer.program("llama-batched-bench"), "-m", self.peer.model("target", weights), "-npp", depth,
                   "-ntg", self.o.gen_len, "-npl", ",".join(map(str, sizes)), "-pps", "-c", room, "-t",
                   self.o.threads, "-fa", "on" if flash else "off", "-ctk", cache, "-ctv", cache,
                   "--output-format", "jsonl"]
        for _ in range(ATTEMPTS):
            rates = batched_rates("".join(self.measure("llama.cpp, batches", when, command)))
            if set(rates) == set(sizes):
                return rates
        raise Failure(FAILED, f"llama-batched-bench: expected rates of {', '.join(map(str, sizes))} sequences, found "
                              f"those of {', '.join(map(str, sorted(rates))) or 'none'}")

    # ---- what is fastest

    def choose(self, document, depth):
        """Sets the settings and the speculators that are fastest after this document of `depth` tokens."""
        own = (OWN,) if self.peer.given else ()
        for figure, weights in (("prefill", WEIGHTS + own), ("decode", WEIGHTS), *((("own", own),) if own else ())):
            self.settings[figure] = self.fastest_formats(figure, weights, depth)
        draft, cache = ("-md", self.draft(self.settings["decode"].weights)), self.settings["decode"].cache
        lengths = [("--spec-draft-n-max", n) for n in DRAFTS]
        simple = "llama-speculative-simple"
        self.fastest_speculator("speculative", document, depth, [
            *(Speculator("llama-speculative", (*draft, *n)) for n in lengths),
            *(Speculator(simple, ("--spec-type", "draft-simple", *draft, *n, "-ctkd", cache, "-ctvd", cache))
              for n in lengths)])
        self.fastest_speculator("lookup", document, depth, [
            *(Speculator("llama-lookup", n) for n in lengths),
            *(Speculator(simple, ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", n,
                                  "--spec-ngram-simple-size-m", m)) for n in NGRAMS for m in DRAFTS if m >= n),
            Speculator(simple, ("--spec-type", "ngram-simple"))])  # by its own numbers, 12 and 48

    def fastest_formats(self, figure, weights, depth):
        """All weights with the first kind of KV cache and attention that works, then the fastest weights with the
        others: what reads weights and what reads caches are different operations."""
        tried, refused = {}, ""
        for cache, flash in ((cache, flash) for cache in CACHES for flash in (1, 0)):
            when = f"trial of {cache}, flash attention {'on' if flash else 'off'}"
            for name in weights if not tried else [max(tried, key=tried.get)[0]]:
                try:
                    tried[name, cache, flash] = self.bench(when, figure, name, cache, [flash], depth, 1)[flash]
                except Failure as failure:  # not every format goes with both kinds of attention, or fits
                    if failure.code != FAILED:
                        raise
                    refused = refused or str(failure)
        if not tried:
            raise Failure(FAILED, refused)
        name, cache, best = max(tried, key=tried.get)
        return Setting(name, cache, sorted({f for w, c, f in tried if (w, c) == (name, cache)}, key=lambda f: f != best))

    def fastest_speculator(self, figure, document, depth, candidates):
        tried, refused = {}, ""
        self.candidates[figure] = len(candidates)
        for candidate in candidates:
            try:
                tried[candidate] = self.speculate(f"trial of {label(candidate)}", figure, candidate, document,
                                                  depth).value
            except Failure as failure:
                if failure.code != FAILED:
                    raise
                refused = str(failure)
        if tried:
            self.speculators[figure] = max(tried, key=tried.get)
        else:
            self.refused[figure] = refused

    def named(self, weights):
        """A format of weights by its name."""
        return self.own if weights == OWN else weights

    # ---- a round

    def rates(self, when, figure, document, depth):
        """[Rate, ...] of a figure, one for each kind of attention that was measured. A speculator that fails raises
        Failure; where none works there are no rates."""
        if figure in self.settings:
            weights, cache, flash = self.settings[figure]
            rates = self.bench(when, figure, weights, cache, flash, depth, 1 if figure == "prefill" else 2)
            return [Rate(rate, None, f) for f, rate in rates.items()]
        if figure in self.speculators:
            return [self.speculate(when, figure, self.speculators[figure], document, depth)]
        return []
