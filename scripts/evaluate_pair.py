#!/usr/bin/env python3
"""Measures a target and drafter trained by train_pair.py and says which of the paper's directions hold.

    evaluate_pair.py --target DIR/target --draft DIR/draft --books BOOKS --out DIR \\
        --synthesize build/triforce-synthesize --bench build/triforce-bench

Prints Markdown, for synthetic documents of seeds that no training uses and for held-out books:
  losses       nats per token by position, and by the distance back to what a token copies
  needles      of a fact put into a text at five depths and asked for at its end, the share of the
               answer's tokens that the target would give
  after        what the target over a small cache that was filled at a place proposes, and the target over
               all tokens would accept (T 0.6), by how many tokens ago that was; the texts' own tokens
  ties         of how many of these tokens the two best logits are near each other, and what is accepted cold
               and warm
  acceptance   the program's own sweep of pair/acceptance.toml: acceptance by cache, budget and temperature,
               and which of the paper's directions hold
--parts chooses among them. Needs torch, numpy, safetensors and sentencepiece.
"""

import functools
import json
import pathlib
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

import train_pair
from pair.distill import TOP_P, RecentTeacher, RetrievalTeacher, probs_of
from pair.model import BOS, CHUNK, Llama, rope_tables
from pair.options import add, check, count, counts, model_folder, program, some_of
from pair.steps import DISTANCES, bf16_products
from pair.texts import Texts, copy_distances, output_of
from plots.command import parser, run

PARTS, KINDS = ("losses", "needles", "after", "ties", "acceptance"), ("synthetic", "books")
DEPTHS = (0.02, 0.25, 0.5, 0.75, 0.95)
FOLLOW, AFTER = 256, (0, 16, 64, 128)  # tokens after a place, and where classes of them begin
AFTER_TEMPERATURE = 0.6
LEADS, TEMPERATURES = (0.25, 0.5, 1), (0, 0.6, 1)  # of near ties
ACCEPTANCE = pathlib.Path(__file__).parent / "pair" / "acceptance.toml"
NEWLINE = 13  # <0x0A>
# Of the facts that are asked for, in the words of synthetic documents.
SELLERS = ("Alice Hill", "Clara Stone", "Edith Wood", "Helen Mason", "Martha Webb")
BUYERS = ("Arthur Hunt", "Frank Turner", "George Knight", "Henry Carter", "Robert Baker")
GOODS = ("a silver watch", "an old brown horse", "a long red cloak", "a small brass lamp",
         "a round oak table")
SUMS = ("nine shillings", "forty pounds", "twelve guineas", "six crowns", "thirty francs")


def table(names, rows):
    lines = [names, ["---"] * len(names)] + [[str(c) for c in row] for row in rows]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines), end="\n\n", flush=True)


def accepted(logits, verifier, temperature, top_p=1.0):
    """Logits [..., vocab] of a proposer and a verifier -> share of the proposals that it accepts [...]."""
    proposed, verified = (probs_of(of, temperature, top_p) for of in (logits, verifier))
    return torch.minimum(proposed, verified).sum(-1)


def direction_cells(direction):
    """Of a direction of a sweep: what both sides accepted; the difference, its interval and, where it does not
    hold, the verdict."""
    def short(number, sign=""):
        return f"{number:{sign}.3f}".replace("0.", ".")
    sides = ", ".join(short(direction[side]["value"]) for side in ("side", "than"))
    effect, low, high = (short(direction[name], "+") for name in ("effect", "ci95_low", "ci95_high"))
    verdict = "" if direction["verdict"] == "holds" else f", {direction['verdict']}"
    return [sides, f"{effect} ({low} to {high}){verdict}"]


class Measure:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.target = Llama.load(args.target).to(self.device).eval()
        self.texts = Texts(args, pathlib.Path(args.target) / "tokenizer.model", held_out=True, seed=11)
        self.tables = [t.to(self.device) for t in rope_tables(self.target.shape, args.longest + 1)]

    def rows(self, kind, count, length):
        if kind == "synthetic":
            self.texts.next_document = 0
            return self.texts.documents(count, length)
        self.texts.random = np.random.default_rng(11)
        return [self.texts.book(length) for _ in range(count)]

    @torch.no_grad()
    def logits(self, ids):  # [length] -> [length, vocab] on the CPU
        n = len(ids)
        with bf16_products(self.device):
            ids = torch.from_numpy(ids)[None].to(self.device)
            return self.target(ids, *(t[:n] for t in self.tables))[0].float().cpu()

    # ---- losses ----

    def losses(self, kind):
        """Losses and copy distances [texts, longest] of the labels of some texts."""
        losses, distances = [], []
        for row in self.rows(kind, self.args.texts, self.args.longest + 1):
            logits = self.logits(row[:-1])
            losses.append(F.cross_entropy(logits, torch.from_numpy(row[1:]), reduction="none").numpy())
            distances.append(copy_distances(row[:-1], np.arange(len(row) - 1)))
        return np.stack(losses), np.stack(distances)

    def print_losses(self, kinds):
        longest = self.args.longest
        found = {kind: self.losses(kind) for kind in kinds}
        edges = [e for e in (0, 1024, 2048, 4096, 6144, 8192, 10240, 12288, 14336) if e < longest]
        ends = edges[1:] + [longest]
        quarter = longest - longest // 4
        print(f"Loss by position, nats per token, {self.args.texts} texts\n")
        table(["text", *(f"{a}..{b}" for a, b in zip(edges, ends)), "all", f"last quarter of {longest}",
               "last quarter of 4096"],
              [[kind, *(f"{loss[:, a:b].mean():.3f}" for a, b in zip(edges, ends)),
                f"{loss.mean():.3f}", f"{loss[:, quarter:].mean():.3f}",
                f"{loss[:, 3072:4096].mean():.3f}"] for kind, (loss, _) in found.items()])
        print("Loss by the distance back to what a token copies\n")
        rows = []
        for kind, (loss, distance) in found.items():
            classes = np.searchsorted(DISTANCES, distance, side="right")
            cells = [loss[classes == c] for c in range(len(DISTANCES) + 1)]
            rows.append([kind, *(f"{c.mean():.3f}" if c.size else "-" for c in cells)])
        table(["text", "no copy", *(f"{low} and more" for low in DISTANCES)], rows)

    # ---- needles ----

    def encode_line(self, text):
        """Ids of `text` as they are within a document, at the beginning of a line."""
        ids = self.texts.sp.encode("\n" + text)
        return ids[ids.index(NEWLINE) + 1:]

    def needles(self, random):
        """One per depth: (fact, question, answer) as ids."""
        shuffled = [random.permutation(words) for words in (SELLERS, BUYERS, GOODS, SUMS)]
        return [[self.encode_line(text) for text in (
                    f"{seller} sold {goods} to {buyer} for {price}.\n",
                    f'"How much did {buyer} pay {seller}, and for what?"\n',
                    f'"{price.capitalize()}, and it was for {goods}."\n')]
                for seller, buyer, goods, price in zip(*shuffled)]

    def copied(self, row, random):
        """Per depth the share of the answer's tokens that are right."""
        needles = self.needles(random)
        size = self.args.longest - sum(len(part) for needle in needles for part in needle)
        ids, at = [BOS], 1
        for depth, (fact, _, _) in zip(DEPTHS, needles):
            end = int(size * depth)
            ids += [*row[at:end], NEWLINE, *fact]
            at = end
        ids += [*row[at:size], NEWLINE]
        spans = {}
        for i in random.permutation(len(needles)):
            ids += needles[i][1]
            spans[i] = (len(ids), len(ids) + len(needles[i][2]))
            ids += needles[i][2]
        ids = np.array(ids[:self.args.longest + 1], dtype=np.int64)
        right = self.logits(ids[:-1]).argmax(-1).numpy() == ids[1:]
        return [right[a - 1:b - 1].mean() for a, b in (spans[i] for i in range(len(needles)))]

    def print_needles(self, kinds):
        random = np.random.default_rng(5)
        rows = []
        for kind in kinds:
            texts = self.rows(kind, self.args.texts, self.args.longest + 1)
            shares = np.mean([self.copied(row, random) for row in texts], 0)
            rows.append([kind, *(f"{s:.3f}" for s in shares)])
        print("Share of an answer's tokens right, by the depth of the fact in "
              f"{self.args.longest} tokens\n")
        table(["text", *(f"{d:.0%}" for d in DEPTHS)], rows)

    # ---- after, ties ----

    @torch.no_grad()
    def over_caches(self, kind, prompt, teachers):
        """Of each of some texts the logits [places, FOLLOW, vocab] of the tokens after places in its last
        half: the target's over all tokens, and a list of those over the teachers' caches."""
        places = torch.arange(prompt // 2, prompt - FOLLOW + 1, FOLLOW)
        for row in self.rows(kind, self.args.texts, prompt):
            full = self.logits(row)[places[:, None] + torch.arange(FOLLOW)]
            with bf16_products(self.device):
                ids = torch.from_numpy(row).to(self.device)
                yield full, [teacher(ids, places).float().cpu() for teacher in teachers]

    def print_after(self, kinds):
        ends = [*AFTER[1:], FOLLOW]
        rows = []
        for kind in kinds:
            for prompt in self.args.prompt:
                for budget in self.args.budget:
                    caches = {"mean-key": RetrievalTeacher, "recent": RecentTeacher}
                    teachers = [teacher(self.target, prompt, budget, follow=FOLLOW)
                                for teacher in caches.values()]
                    shares = torch.stack([
                        torch.stack([accepted(small, full, AFTER_TEMPERATURE).mean(0) for small in over])
                        for full, over in self.over_caches(kind, prompt, teachers)]).mean(0)
                    rows += [[kind, prompt, budget, name,
                              *(f"{s[a:b].mean():.3f}" for a, b in zip(AFTER, ends)), f"{s.mean():.3f}"]
                             for name, s in zip(caches, shares)]
        print(f"Share accepted at T {AFTER_TEMPERATURE} by the tokens since the cache was filled, "
              f"{self.args.texts} texts\n")
        table(["text", "tokens", "budget", "cache", *(f"{a} to {b - 1}" for a, b in zip(AFTER, ends)),
               "all"], rows)

    def print_ties(self, kinds):
        rows = []
        for kind in kinds:
            for prompt in self.args.prompt:
                for budget in self.args.budget:
                    teacher = RetrievalTeacher(self.target, prompt, budget, follow=FOLLOW)
                    shares = []
                    for full, (small,) in self.over_caches(kind, prompt, [teacher]):
                        best, second = full.topk(2).values.unbind(-1)
                        shares.append([*((best - second < lead).float().mean() for lead in LEADS),
                                       *(accepted(small, full, t, TOP_P).mean() for t in TEMPERATURES)])
                    rows.append([kind, prompt, budget, *(f"{s:.3f}" for s in np.mean(shares, 0))])
        print(f"Share of tokens whose two best logits are near each other, and share accepted, top-p {TOP_P}, "
              f"of {FOLLOW} tokens after a cache was filled by mean keys, {self.args.texts} texts\n")
        table(["text", "tokens", "budget", *(f"less than {lead} apart" for lead in LEADS),
               *(f"T {t}" for t in TEMPERATURES)], rows)

    # ---- acceptance ----

    def sweep(self, kind, prompt):
        """The document of the sweep of pair/acceptance.toml on prompts of `prompt` tokens."""
        args = self.args
        with tempfile.TemporaryDirectory() as folder:
            dataset = "synthetic"
            if kind == "books":
                dataset = f"{folder}/books.ids"
                rows = self.rows(kind, args.prompts, prompt)
                pathlib.Path(dataset).write_text(
                    "".join(" ".join(map(str, row.tolist())) + "\n" for row in rows))
            command = [args.bench, "sweep", f"{ACCEPTANCE}:tiny", "--target", args.target,
                       "--draft", args.draft, "--dataset", dataset, "--prompts", args.prompts,
                       "--prefill", prompt, "--budget", ",".join(map(str, args.budget)),
                       "--gen-len", args.tokens, "--threads", args.threads,
                       "--json", f"{folder}/sweep.json"]
            output_of(command, "a result")
            return json.loads(pathlib.Path(folder, "sweep.json").read_text())

    def print_acceptance(self, kinds):
        args = self.args
        rates, directions = [], {}
        for kind in kinds:
            for prompt in args.prompt:
                document = self.sweep(kind, prompt)
                for case in document["cases"]:
                    for method in case["result"]["cases"]:
                        for level in method["acceptance"]:
                            rates.append([kind, f"{prompt:,}", *(method["params"][name] for name in
                                                                 ("budget", "selection", "temp")),
                                          method["method"], level["name"],
                                          f"{level['acceptance_rate']:.3f}"])
                for d in document["recipes"][0]["directions"]:
                    if d["effect"] is not None:
                        directions.setdefault((d["text"], prompt), []).append(direction_cells(d))
        what = f"{args.prompts} prompts, {args.tokens} tokens of each"
        print(f"Acceptance, {what}\n")
        table(["text", "prompt", "budget", "selection", "T", "method", "level", "accepted"], rates)
        print(f"The paper's directions: accepted of both, difference and its 95% interval by prompt, {what}\n")
        texts = list(dict.fromkeys(text for text, _ in directions))
        table(["one above the other", "prompt", *(cell for kind in kinds for cell in (kind, "difference"))],
              [[text, f"{prompt:,}", *sum(directions[text, prompt], [])]
               for text in texts for prompt in args.prompt])


def parse_arguments():
    options = parser("evaluate_pair.py", __doc__)
    train_pair.add_data_options(options)
    options.add_argument("--target", required=True, type=model_folder, help="folder of the target")
    options.add_argument("--draft", required=True, type=model_folder, help="folder of the drafter")
    options.add_argument("--bench", type=program, help="the triforce-bench program, for acceptance")
    add(options, "--parts", some_of(*PARTS), ",".join(PARTS), "what to measure")
    add(options, "--kinds", some_of(*KINDS), ",".join(KINDS), "of texts")
    add(options, "--texts", count, 8, "per kind, but for acceptance")
    add(options, "--longest", count, 15872, "tokens of those texts")
    add(options, "--prompts", count, 20, "per kind and run of the program, for acceptance")
    add(options, "--prompt", counts, "4096,8192,15872", "tokens of these prompts")
    add(options, "--budget", counts, "512,2048", "tokens of the small caches; of acceptance.toml those that are given")
    add(options, "--tokens", count, 256, "generated per prompt")
    args = options.parse_args()

    expect = functools.partial(check, options, args)
    expect("acceptance" not in args.parts or args.bench, "--bench", "the program, for acceptance")
    expect(args.prompts >= 2, "--prompts", "at least 2 for an interval")
    expect(args.longest >= 4096, "--longest", "at least 4096 tokens")
    expect(min(args.prompt) >= 2 * FOLLOW, "--prompt", f"at least {2 * FOLLOW} tokens")
    expect(all(budget % CHUNK == 0 and budget <= min(args.prompt) for budget in args.budget), "--budget",
           f"multiples of {CHUNK} that are no more than --prompt")
    return args


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    measure = Measure(args)
    for part in PARTS:
        if part in args.parts:
            getattr(measure, f"print_{part}")(args.kinds)


if __name__ == "__main__":
    run("evaluate_pair.py", main)
