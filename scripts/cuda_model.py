#!/usr/bin/env python3
"""Predicts milliseconds of passes and of TriForce on cards that are not there, term by term.

usage: scripts/cuda_model.py [--program PROGRAM] [--loops FILE]... [--prompt N]

Bytes and the number of kernels of a pass are those of `triforce-bench plan`. Cycles of a tile of split
attention and of skinny products come from --loops, what tests/cuda/machine_code/check.py wrote by
--json (build/cuda-check/loops.json and build/cuda-rtx-check/loops.json after `scripts/check.sh cuda
cuda-rtx`): where issuing a tile takes longer than reading it, that is how long its bytes take. The other
terms are the constants of CARDS. Within 5% where bytes dominate, 30% on each small term.
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
class Card:
    name: str             # of `plan`
    machine: str          # id there, whose gpu_gbs is what kernels achieve
    loops: str            # of loops files
    # Microseconds.
    gap: float            # between two kernels of a replayed graph
    ramp: float           # until a kernel that reads weights or KV runs at full rate, and its end
    small: float          # a kernel of a few rows of activations: start, two round trips, end
    rotate: float         # keys of a layer of the drafter's window, rotated where they lie
    laws: float           # logits to a law; these three are of kernels with twice the passes over
    sample: float         # the vocabulary, and so too high
    judge: float
    host: float           # the result to the host, the next pass from it
    upload: float
    # What prefill achieves.
    attention_tflops: float
    product_tflops: float


CARDS = (
    Card("A100", "a100-80g", "A100", 1.3, 1.6, 1.4, 12, 59, 18, 21, 20, 3, 180, 245),
    Card("H200", "h200", "H200", 1.2, 1.6, 1.4, 12, 44, 14, 17, 20, 3, 295, 620),
    Card("RTX 4090", "rtx4090", "RTX 4090", 1.0, 1.6, 1.2, 9, 80, 32, 36, 18, 3, 130, 150),
)


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
        prompt=prompt, hidden=target["hidden"],
        parameters=target["n_params"] - 2 * target["vocab"] * target["hidden"],
        gbs={m["id"]: m["machine"]["gpu_gbs"] for m in plan["machines"]})


def read_loops(paths):
    """{(card, kernel): GB/s of tiles that the whole card could issue}."""
    loops = {}
    for path in paths:
        try:
            for row in json.loads(read_text(path)):
                if row["cycles"] is not None:
                    loops[row["card"], row["kernel"]] = (
                        row["nominal_gbs"] * row["memory_cycles"] / row["cycles"])
        except (ValueError, KeyError, TypeError, ZeroDivisionError) as e:
            raise BadInput(f"{path}: expected what machine_code/check.py --json wrote, found "
                           f"{type(e).__name__}: {e}") from e
    return loops


def read_us(card, work, loops, kernel, rows, total_bytes):
    """How long kernels read so many bytes: at what the card achieves, or at what the slowest of
    them can issue. `kernel`: of their names, with {} for the groups of rows."""
    groups = min(4, -(-rows // ROWS_OF_GROUP))
    name = re.compile(kernel.format(groups))
    issued = min((gbs for (of, k), gbs in loops.items() if of == card.loops and name.fullmatch(k)),
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
    wide = products + work.layers        # and attention
    weights = read_us(card, work, loops, "linear_kernel<.*, {}>", rows, work.weight_bytes)
    kv = read_us(card, work, loops, "split_kernel<T, 128, {}, false>", rows,
                 total_bytes - work.weight_bytes)
    return weights + kv + wide * card.ramp + (kernels - wide) * card.small + kernels * card.gap


def draft_us(card, work):
    """A pass of the drafter over its window."""
    kernels = kernels_of(work, "draft", 1)
    wide = 5 * work.draft_layers + 1
    return (work.draft_bytes / (work.gbs[card.machine] * 1e3) + wide * card.ramp +
            (kernels - wide) * card.small + kernels * card.gap + work.draft_layers * card.rotate)


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
    draft = draft_us(card, work)
    return {"ar": plain + card.laws + card.sample + card.host + card.upload,
            "verify": pass_us(card, work, loops, "full", 7),
            "retrieval": pass_us(card, work, loops, "retrieval", 2),
            "draft": draft, "draft step": draft + card.laws + card.sample + card.host + card.upload}


def triforce_us(card, work, loops, gammas, alphas):
    """Of a token."""
    t = times(card, work, loops)
    tokens, rounds, drafted = expected_round(*gammas, *alphas)
    verify = pass_us(card, work, loops, "full", gammas[0] + gammas[1] + 1)
    judged = card.laws + card.judge + card.host + card.upload
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
    missing = [c.name for c in CARDS if not any(card == c.loops for card, _ in loops)]
    if missing:
        print(f"\nNo loops of {', '.join(missing)}: kernels are taken to issue faster than memory "
              "reads.")


if __name__ == "__main__":
    run("cuda_model", main)
