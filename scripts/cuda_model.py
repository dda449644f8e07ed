#!/usr/bin/env python3
"""Predicts milliseconds of passes and of TriForce on cards that are not there, term by term.

usage: scripts/cuda_model.py [--program PROGRAM] [--loops FILE]... [--prompt N]

Bytes and the number of kernels of a pass are those of `triforce-bench plan`. Cycles come from --loops,
what tests/cuda/machine_code/check.py wrote by --json (build/cuda-check/loops.json and
build/cuda-rtx-check/loops.json after `scripts/check.sh cuda cuda-rtx`): of a tile of split attention and
of skinny products, where issuing it takes longer than reading it; and of the passes over the vocabulary
by which one block makes probabilities and draws from them, at --temp > 0 with a top-p cut (the
program's default). The other terms are the constants of CARDS and WAITS. Within 5% where bytes
dominate, 30% on each small term.
"""
import json
import pathlib
import re
import subprocess
from dataclasses import dataclass

from plots.command import BadInput, parser, read_text, run

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS_OF_GROUP = 8  # of a kernel's instance: split_kernel<T, 128, 2, false> is for 9 to 16 rows
NARROW_ROWS = 2    # up to which a pass has the fewer kernels of `plan`


@dataclass(frozen=True)
class Early:
    """Programmatic dependent launch: the kernels of a recorded pass but its first begin while the one
    before ends. Assumes that the multiprocessors that its last blocks leave have room for blocks of the
    next, as they do: products and attention fill them two to four times. Microseconds, assumed
    and not measured: they leave a third of the gap, and less than half of a product's ramp."""
    gap: float    # from the last block's end to where the blocks that wait go on
    start: float  # of ramp and small: the start of blocks, which is over by then
    first: float  # of a product's ramp: its first weights, which it requests before it waits


@dataclass(frozen=True)
class Card:
    name: str             # of `plan`
    machine: str          # id there, whose gpu_gbs is what kernels achieve
    loops: str            # of loops files
    # Microseconds.
    gap: float            # between two kernels of a replayed graph, or of a stream
    ramp: float           # until a kernel that reads weights or KV runs at full rate, and its end
    small: float          # a kernel of a few rows of activations: start, two round trips, end
    host: float           # the result to the host, the next pass from it
    upload: float
    # What prefill achieves.
    attention_tflops: float
    product_tflops: float
    early: Early = None   # where kernels begin before those before them have ended


CARDS = (
    Card("A100", "a100-80g", "A100", 1.3, 1.6, 1.4, 20, 3, 180, 245),
    Card("H200", "h200", "H200", 1.2, 1.6, 1.4, 20, 3, 295, 620, Early(0.4, 0.5, 0.4)),
    Card("RTX 4090", "rtx4090", "RTX 4090", 1.0, 1.6, 1.2, 18, 3, 130, 150),
)

# Cycles for which a block of 32 warps does nothing but wait, from the latencies of
# machine_code/issue.py: 23 of an exchange and of a read of shared memory, some 40 of a barrier.
WAITS = {
    "reduction": 400,  # two barriers, a read, two trees of five exchanges, and as many of the other word
    "search": 900,     # four barriers, one warp's sums over eight bins a lane and the choice among them
    "gathered": 700,   # the same among the ids of one bin, of which there are some ten
    "division": 400,   # of doubles, and what follows from it in every thread
    "choice": 500,     # eight sums of chunks a lane, twice, and votes
}
# What kernels do: passes over the vocabulary, and waits. A draw also adds 32 numbers in order: the
# sums of chunks, then the ids of the chosen one, group by group, of which the second or third of four
# has the token on average.
ORDERED = 32 * (1 + 2.5)
PROBS = (("look", "weigh", "gather", "give"),
         ("reduction",) * 3 + ("search", "gathered", "division"))
SAMPLE = (("sum",), ("choice",))
SPARE_SHARED = 8 << 10  # bytes of a block's shared memory besides the row that it holds, at most


@dataclass(frozen=True)
class Work:
    """Passes of the models, of `plan`."""
    weight_bytes: int
    full_bytes: int       # with these, over the whole prompt
    retrieval_bytes: int
    draft_bytes: int
    kernels: dict         # of a pass over the full cache, the retrieval cache, the drafter, each
                          # of up to NARROW_ROWS rows and of more
    layers: int
    draft_layers: int
    prompt: int
    hidden: int
    vocab: int
    parameters: int       # of matrices that every token meets
    gbs: dict             # machine -> achieved bandwidth


def read_work(program, prompt):
    """Work of the 7B model of the paper and its drafter."""
    command = [program, "plan", "--target", "llama-7B-128K", "--draft", "llama-68M", "--prefill",
               str(prompt), "--budget", "4096", "--dtype", "f16", "--method", "ar,triforce", "-o",
               "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as e:
        raise BadInput(f"--program: expected the program, found {program}: {e.strerror}") from e
    if done.returncode != 0:
        raise BadInput(f"{program} plan: {done.stderr.strip()}")
    plan = json.loads(done.stdout)
    target, draft, passes = plan["target"], plan["draft"], plan["pass_bytes"]
    return Work(
        weight_bytes=passes["full"] - prompt * plan["kv_bytes_per_token"],
        full_bytes=passes["full"], retrieval_bytes=passes["retrieval"], draft_bytes=passes["draft"],
        kernels=plan["pass_kernels"], layers=target["layers"], draft_layers=draft["layers"],
        prompt=prompt, hidden=target["hidden"], vocab=target["vocab"],
        parameters=target["n_params"] - 2 * target["vocab"] * target["hidden"],
        gbs={m["id"]: m["machine"]["gpu_gbs"] for m in plan["machines"]})


@dataclass(frozen=True)
class Loops:
    """What loops files say."""
    tiles: dict   # (card, kernel) -> GB/s of tiles that the whole card could issue
    passes: dict  # (card, kernel) -> {pass: its row of the file}

    def cards(self):
        return {card for card, _ in (*self.tiles, *self.passes)}


def read_loops(paths):
    tiles, passes = {}, {}
    for path in paths:
        try:
            found = json.loads(read_text(path))
            for row in found["tiles"]:
                if row["cycles"] is not None:
                    tiles[row["card"], row["kernel"]] = (
                        row["nominal_gbs"] * row["memory_cycles"] / row["cycles"])
            for row in found["passes"]:
                passes.setdefault((row["card"], row["kernel"]), {})[row["pass"]] = {
                    key: row[key] for key in ("ids", "cycles", "clock_hz", "block_shared_bytes")}
        except (ValueError, KeyError, TypeError, ZeroDivisionError) as e:
            raise BadInput(f"{path}: expected what machine_code/check.py --json wrote, found "
                           f"{type(e).__name__}: {e}") from e
    return Loops(tiles, passes)


def alone_us(card, work, loops, kernel, names, waits=()):
    """The time of one block that makes passes over the vocabulary, and waits between them, or one turn
    of a loop that reads no ids; 0 without loops of the card."""
    rows = loops.passes.get((card.loops, kernel), {})
    cycles = sum(WAITS[w] for w in waits)
    for name in names:
        if name not in rows:
            return 0.0
        turns = -(-work.vocab // rows[name]["ids"]) if rows[name]["ids"] else 1
        cycles += turns * rows[name]["cycles"]
    return cycles / rows[names[0]]["clock_hz"] * 1e6


def drawn_us(card, work, loops, kernel):
    """What a kernel that draws does once it has probabilities."""
    order = loops.passes.get((card.loops, kernel), {}).get("order")
    in_order = ORDERED / order["ids"] * order["cycles"] / order["clock_hz"] * 1e6 if order else 0.0
    return alone_us(card, work, loops, kernel, *SAMPLE) + in_order


def probs_kernel(card, work, loops, draws):
    """The name of the instance that is launched: one that holds the row where it fits."""
    name = "probs_kernel<{}, " + ("true>" if draws else "false>")
    rows = loops.passes.get((card.loops, name.format("true")), {})
    room = rows["look"]["block_shared_bytes"] if "look" in rows else 0
    return name.format("true" if work.vocab * 4 + SPARE_SHARED <= room else "false")


def probs_us(card, work, loops, draws=False):
    """Logits to probabilities, a block a row: start and end of the kernel, passes and waits. draws: a
    token is drawn from the only row."""
    kernel = probs_kernel(card, work, loops, draws)
    return (card.gap + card.small + alone_us(card, work, loops, kernel, *PROBS) +
            (drawn_us(card, work, loops, kernel) if draws else 0))


def sample_us(card, work, loops):
    """A draw from probabilities that another kernel made."""
    return card.gap + card.small + drawn_us(card, work, loops, "sample_kernel")


def verify_us(card, work, loops):
    """Proposals against probabilities, with one draw from what is left of them."""
    return card.gap + card.small + drawn_us(card, work, loops, "verify_kernel")


def read_us(card, work, loops, kernel, rows, total_bytes):
    """How long kernels read so many bytes: at what the card achieves, or at what the slowest of
    them can issue. `kernel`: of their names, with {} for the groups of rows."""
    groups = min(4, -(-rows // ROWS_OF_GROUP))
    name = re.compile(kernel.format(groups))
    issued = min((gbs for (of, k), gbs in loops.tiles.items() if of == card.loops and name.fullmatch(k)),
                 default=float("inf"))
    return total_bytes / min(work.gbs[card.machine], issued) / 1e3


def kernels_of(work, which, rows):
    return work.kernels[which]["narrow" if rows <= NARROW_ROWS else "wide"]


def pass_us(card, work, loops, which, rows):
    """A pass of the target over its full cache or its retrieval cache: bytes, ramps, small kernels
    and gaps."""
    total_bytes = {"full": work.full_bytes, "retrieval": work.retrieval_bytes}[which]
    kernels = kernels_of(work, which, rows)
    products = 4 * work.layers + 1       # q k v, output, gate and up, down; logits
    weights = read_us(card, work, loops, "linear_kernel<.*, {}>", rows, work.weight_bytes)
    kv = read_us(card, work, loops, "split_kernel<T, 128, {}, false>", rows,
                 total_bytes - work.weight_bytes)
    return weights + kv + launches_us(card, kernels, products, work.layers)


def launches_us(card, kernels, products, attentions):
    """Gaps, ramps and small kernels of a recorded pass."""
    small = kernels - products - attentions
    us = (products + attentions) * card.ramp + small * card.small + kernels * card.gap
    if card.early is not None:  # all but the first
        us -= (kernels - 1) * (card.gap - card.early.gap + card.early.start)
        us -= products * card.early.first
    return us


def draft_us(card, work, loops):
    """A pass of the drafter over its window: a block of its attention has one tile of keys, and nothing
    to do meanwhile."""
    kernels = kernels_of(work, "draft", 1)
    products = 4 * work.draft_layers + 1
    tile = alone_us(card, work, loops, "split_kernel<T, 64, 1, true>", ("tile",))
    return (work.draft_bytes / (work.gbs[card.machine] * 1e3) + work.draft_layers * tile +
            launches_us(card, kernels, products, work.draft_layers))


def expected_round(gamma, inner_gamma, outer, inner):
    """(tokens, inner rounds, drafted tokens) of an outer round: inner rounds add what they accept
    and one more until `gamma` are there; `outer` and `inner` are acceptance per token."""
    gain = [inner**k * (1 - inner) for k in range(inner_gamma)] + [inner**inner_gamma]
    reaches = [1.0] + [0.0] * (gamma + inner_gamma)  # probability of having m tokens
    rounds = 0.0
    for m in range(gamma):
        rounds += reaches[m]
        for k, p in enumerate(gain):
            reaches[m + k + 1] += reaches[m] * p
    tokens = sum(reaches[m] * sum(outer**k for k in range(m + 1))
                 for m in range(gamma, gamma + inner_gamma + 1))
    return tokens, rounds, rounds * inner_gamma


def times(card, work, loops):
    """Microseconds of single passes, and of steps with what lies between them."""
    plain = pass_us(card, work, loops, "full", 1)
    draft = draft_us(card, work, loops)
    drawn = probs_us(card, work, loops, draws=True) + card.host + card.upload
    return {"ar": plain + drawn,
            "verify": pass_us(card, work, loops, "full", 7),
            "retrieval": pass_us(card, work, loops, "retrieval", 2),
            "draft": draft, "draft step": draft + drawn}


def triforce_us(card, work, loops, gammas, alphas):
    """Of a token."""
    t = times(card, work, loops)
    tokens, rounds, drafted = expected_round(*gammas, *alphas)
    verify = pass_us(card, work, loops, "full", gammas[0] + gammas[1] + 1)
    judged = (probs_us(card, work, loops) + verify_us(card, work, loops) + card.host +
              card.upload)
    retrieval = pass_us(card, work, loops, "retrieval", gammas[1] + 1)
    return (rounds * (retrieval + judged) + drafted * t["draft step"] + verify + judged) / tokens


def prefill_s(card, work):
    """Attention over half a square of the prompt, and the products, at assumed rates."""
    attention = 4 * work.hidden * work.prompt**2 / 2 * work.layers
    products = 2 * work.prompt * work.parameters
    return attention / card.attention_tflops / 1e12 + products / card.product_tflops / 1e12


def table(work, loops, cards=CARDS):
    """Lines of a table for people."""
    def floor_us(card, total_bytes):
        return total_bytes / work.gbs[card.machine] / 1e3
    measured = {card.name: times(card, work, loops) for card in cards}
    counts = ", ".join(str(kernels_of(work, which, rows)) for which, rows in
                       (("full", 1), ("full", 7), ("draft", 1)))
    rows = [("kernels of a pass: full, of 7 rows, drafter", lambda c: counts)]
    for name, key, total_bytes, scale, digits in (
            ("AR step, ms (bytes alone)", "ar", work.full_bytes, 1e3, 2),
            ("verify, 7 rows, ms", "verify", work.full_bytes, 1e3, 2),
            ("retrieval pass, 2 rows, ms", "retrieval", work.retrieval_bytes, 1e3, 2),
            ("drafter pass, us", "draft", work.draft_bytes, 1, 0)):
        rows.append((name, lambda c, k=key, b=total_bytes, s=scale, d=digits:
                     f"{measured[c.name][k] / s:.{d}f} ({floor_us(c, b) / s:.{d}f})"))
    rows.append(("drafter step, us", lambda c: f"{measured[c.name]['draft step']:.0f}"))
    rows.append(("kernels probs and sample, us (apart)", lambda c: (
        f"{probs_us(c, work, loops, draws=True):.0f} "
        f"({probs_us(c, work, loops) + sample_us(c, work, loops):.0f})")))
    rows.append(("kernel verify, us", lambda c: f"{verify_us(c, work, loops):.0f}"))
    for gammas, alphas in (((6, 1), (.976, .6)), ((14, 6), (.976, .6)), ((6, 1), (.9137, .4036))):
        def cell(c, g=gammas, a=alphas):
            us = triforce_us(c, work, loops, g, a)
            return f"{us / 1e3:.2f} ({measured[c.name]['ar'] / us:.2f}x)"
        rows.append((f"TriForce {gammas[0]}/{gammas[1]} at {alphas[0]:g}/{alphas[1]:g}, ms a token",
                     cell))
    rows.append((f"prefill of {work.prompt}, s", lambda c: f"{prefill_s(c, work):.1f}"))
    yield "| as if it fitted, achieved | " + " | ".join(
        f"{c.name}, {work.gbs[c.machine] / 1e3:.2f} TB/s" for c in cards) + " |"
    yield "|---|" + "---|" * len(cards)
    for name, cell in rows:
        yield f"| {name} | " + " | ".join(cell(c) for c in cards) + " |"


def main():
    options = parser("cuda_model", __doc__)
    options.add_argument("--program", default=str(ROOT / "build" / "triforce-bench"),
                         help="triforce-bench (default: that of build/)")
    options.add_argument("--loops", action="append", default=[], metavar="FILE",
                         help="of machine_code/check.py --json; default: bytes at the achieved rate")
    options.add_argument("--prompt", type=int, default=124928, metavar="N",
                         help="tokens (default: %(default)s)")
    args = options.parse_args()
    work, loops = read_work(args.program, args.prompt), read_loops(args.loops)
    for line in table(work, loops):
        print(line)
    missing = [c.name for c in CARDS if c.loops not in loops.cards()]
    if missing:
        print(f"\nNo loops of {', '.join(missing)}: kernels are taken to issue faster than memory "
              "reads, and probabilities and draws to take no time but that of their launches.")


if __name__ == "__main__":
    run("cuda_model", main)
