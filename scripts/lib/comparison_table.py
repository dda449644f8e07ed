"""The table of scripts/compare_llama_cpp.sh: rates of both programs, round by round, and what must be known of them."""
import os
import shlex
import statistics
import time
from collections import defaultdict, namedtuple
from pathlib import Path

from llama_cpp_rates import CACHES, DRAFTS, LONG, TEMPERATURE, TOP_P, label
from machine import machine, spread

BATCHES = (1, 4, 8)  # sequences
# Share of the processors that others may take before the table says so.
BUSY = 0.05

# A row: what it says, and the figures of llama.cpp and of triforce-bench that stand beside each other in it.
Row = namedtuple("Row", "title theirs ours")
PREFILL, DECODE = Row("prefill", "prefill", "prefill"), Row("decode (`ar`)", "decode", "ar")
LOOKUP = Row("prompt lookup (`lookup`)", "lookup", "lookup")
BATCH_ROWS = tuple(Row(f"decode, {size} sequence{'s' * (size > 1)} (`ar`)", f"batch {size}", f"batch {size}")
                   for size in BATCHES)
PAIR_ROWS = (PREFILL, DECODE, Row("speculative decode (`triforce`)", "speculative", "triforce"), LOOKUP, *BATCH_ROWS)
OWN_ROWS = (PREFILL, DECODE, Row("decode: {own}, and bf16 with drafts in bf16 (`retrieval`)", "own", "retrieval"),
            Row("decode: {own}, and bf16 with drafts in int4 (`retrieval`)", "own", "retrieval int4"),
            Row("speculative decode (`retrieval`)", "speculative", "retrieval"), LOOKUP, *BATCH_ROWS)
FORMATS = {"prefill": "prefill", "decode": "decode", "own": "the file as it is"}
SPECULATION = {"speculative": "speculative decode", "lookup": "prompt lookup"}


class Table:
    """`rows`: those it has, for each of options.depths."""

    def __init__(self, options, rows):
        self.o, self.rows = options, rows
        self.commands = {}  # {what it measures: the command, of the longest prompt}
        # Of each figure and depth, round by round: {flash attention: Rate}, empty where there was none; (rate, accepted).
        self.theirs, self.ours = defaultdict(list), defaultdict(list)
        self.lost = {}  # {where: why it was not measured there}

    def add_theirs(self, figure, depth, rates):
        self.theirs[figure, depth].append({rate.flash: rate for rate in rates})

    def add_lost(self, figure, depth, index, failure):
        self.add_theirs(figure, depth, [])
        self.lost[f"{SPECULATION.get(figure, figure)} after {depth:,} tokens in round {index + 1}"] = str(failure)

    def add_ours(self, depth, rates):
        for figure, rate in rates.items():
            self.ours[figure, depth].append(rate)

    # ---- the text

    def cells(self, own):
        for depth in self.o.depths:
            for row in self.rows:
                ours, theirs = self.ours[row.ours, depth], self.theirs[row.theirs, depth]
                cells = [f"{depth:,}", row.title.format(own=own), "not measured", side(ours), ""]
                kinds = {flash for found in theirs for flash in found}
                known = {flash: [(a, found[flash]) for a, found in zip(ours, theirs) if flash in found]
                         for flash in kinds}
                if known:
                    flash = max(known, key=lambda f: statistics.median([b.value for _, b in known[f]]))
                    attention = f", flash attention {'on' if flash else 'off'}"
                    cells[2] = side([(b.value, b.accepted) for _, b in known[flash]], attention)
                    cells[4] = spread([a[0] / b.value for a, b in known[flash]], "{:.2f}")
                yield cells

    def notes(self, peer, theirs, ours):
        c = ours.contexts[-1]
        yield f"{time.strftime('%Y-%m-%d', time.gmtime())}; {machine()}; {self.o.threads} threads for both"
        built = "for it (`-march=native`)" if self.o.cpu_isa is None else f"for {self.o.cpu_isa}"
        yield (f"triforce-bench {c['version']} ({(c['commit'] or 'no commit')[:9]}), {c['compiler']}, {c['isa']}, "
               f"{c['dtype']}; {peer.version()}, built by the same machine's compiler {built}")
        if peer.given:
            yield f"model: {peer.given.name}; llama.cpp reads it, triforce-bench reads its weights as bf16"
        yield (f"llama.cpp's formats, the fastest of those that were tried (KV caches {', '.join(CACHES)}): "
               + "; ".join(f"{FORMATS[figure]}: weights {theirs.named(setting.weights)}, KV cache {setting.cache}"
                           for figure, setting in theirs.settings.items()))
        rounds = f"median of {self.o.rounds} rounds" if self.o.rounds > 1 else "one round"
        yield (f"tokens per second: {rounds} in which the programs take turns, and the range; ratio: triforce-bench over "
               "llama.cpp of the same round")
        yield (f"prefill: of a prompt of so many tokens, from {LONG:,} on by llama.cpp without a warm-up, which would "
               "double its time; decode: of the tokens after it, sampling left out by llama-bench and "
               "llama-batched-bench and counted by triforce-bench; speculation: the same "
               f"{'text' if self.o.text else 'documents'}, temperature {TEMPERATURE}, top-p {TOP_P}")
        yield ("sequences: tokens of all of them, each with a cache of its own; llama.cpp's have one prompt, copied into "
               "each")
        for figure, name in SPECULATION.items():
            if figure in theirs.speculators:
                yield (f"{name} of llama.cpp: `{label(theirs.speculators[figure])}`, the fastest of "
                       f"{theirs.candidates[figure]} that were tried")
            else:
                yield f"{name} of llama.cpp: none works with this model: {theirs.refused[figure]}"
        yield (f"drafts of triforce-bench, the fastest of {', '.join(map(str, DRAFTS))} tokens: "
               + "; ".join(f"{figure} {gamma}" for figure, gamma in ours.gammas.items()))
        yield "accepted: of the tokens that the target tested (triforce-bench) or that were drafted (llama.cpp)"
        for where, why in self.lost.items():
            yield f"not measured: {where}: {why}"
        busy = max((context.get("load") or {}).get("other") or 0 for context in ours.contexts)
        if busy > BUSY * (os.cpu_count() or 1):
            yield (f"**not a quiet machine**: other programs kept up to {busy:.1f} of {os.cpu_count()} "
                   "processors busy while triforce-bench ran; measure again before quoting these figures")

    def report(self, peer, theirs, ours):
        """`theirs`, `ours`: settings, as llama_cpp_rates.Theirs and triforce_rates.Ours have them."""
        lines = ["# triforce-bench beside llama.cpp", ""]
        lines += ["| tokens before | | llama.cpp, tokens/s | triforce-bench, tokens/s | ratio |",
                  "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(cells)} |" for cells in self.cells(theirs.own)]
        lines += ["", *(f"- {note}" for note in self.notes(peer, theirs, ours)), ""]
        lines += ["Commands of the longest prompt, without folders:", ""]
        for what, command in self.commands.items():
            words = [word.name if isinstance(word, Path) else str(word) for word in command]
            lines.append(f"    {shlex.join(words)}  # {what}")
        return "\n".join(lines) + "\n"


def side(rates, more=""):
    """A program's cell, of (rate, share accepted or None) of each round."""
    accepted = [share for _, share in rates if share is not None]
    share = f"; {100 * statistics.median(accepted):.0f}% accepted" if accepted else ""
    return spread([rate for rate, _ in rates]) + more + share
