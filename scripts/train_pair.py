#!/usr/bin/env python3
"""Trains the built-in pair: a small Llama target with YaRN and a smaller drafter, on CPU or GPU.

    train_pair.py target --books BOOKS --synthesize build/triforce-synthesize --out DIR \\
        --init data/models/target --minutes 60
    train_pair.py draft  --books BOOKS --synthesize build/triforce-synthesize --out DIR \\
        --init data/models/draft --distill DIR/target --minutes 30

BOOKS is a folder or a .tar.xz of plain-text files; one book in 25 (by the hash of its name) is held
out. The other half of the text are synthetic documents made on the fly. Results are Hugging Face
folders (config.json, model.safetensors in f16, tokenizer.model) in DIR/target and DIR/draft, written
again every few minutes beside a checkpoint, from which --resume goes on. evaluate_pair.py measures
them. Needs torch, numpy, safetensors and sentencepiece.
"""

import argparse
import ctypes
import os
import pathlib
import signal
import sys
import time

import torch
from torch import nn

from pair.model import DRAFT, TARGET, Llama
from pair.optimizer import Optimizer
from pair.steps import Batches, DraftSteps, TargetSteps, multiplies_bf16
from pair.texts import token_files, train_tokenizer

WARM_UP = 40  # steps


def prepare_cpu(threads):
    """What makes training on a CPU faster. Freed memory is used again: glibc otherwise gives large
    blocks back, and each step is given a gigabyte anew, page by page. Where products are bf16 ones, the
    f32 ones that are left multiply bf16 numbers too (attention's scores), and say so."""
    torch.set_num_threads(threads)
    if multiplies_bf16(torch.device("cpu")):
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_max = -1, -4  # of malloc.h
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2 ** 31 - 1)


class Trainer:
    def __init__(self, args):
        self.args, self.folder = args, pathlib.Path(args.out) / args.which
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.checkpoint = pathlib.Path(args.out) / f"{args.which}-checkpoint.pt"
        self.tokenizer = pathlib.Path(args.tokenizer or pathlib.Path(args.out) / "tokenizer.model")
        if not self.tokenizer.exists():
            train_tokenizer(args.books, self.tokenizer)
        shape = TARGET if args.which == "target" else DRAFT
        self.model = (Llama.load(args.init) if args.init else Llama(shape)).to(self.device)
        self.optimizer = Optimizer(self.model, args.rate)
        self.done = {"step": 0, "tokens": 0, "seconds": 0.0}
        if args.resume and self.checkpoint.exists():
            self.resume()
        compile_ = (lambda f: torch.compile(f, dynamic=False)) if args.compile else (lambda f: f)
        teacher = Llama.load(args.distill).to(self.device).eval() if args.distill else None
        steps = TargetSteps if args.which == "target" else DraftSteps
        self.steps = steps(args, self.model, self.device, compile_, teacher)
        token_files(args, self.tokenizer)  # before the worker processes look for them
        self.batches = Batches(args, self.tokenizer, self.steps, self.done["step"])

    def rate(self, fraction, step):
        """Warm-up, constant, and over the last half of the time linear down to 3%."""
        rate = self.args.rate * min(1.0, (step + 1) / WARM_UP)
        return rate * (0.03 + 0.97 * min(1.0, (1 - fraction) / 0.5))

    def clock(self):
        """Seconds; on a CPU of computing, so that a stopped process does not use up its minutes."""
        return (time.time() if self.device.type == "cuda"
                else time.process_time() / self.args.threads)

    def run(self):
        total, done = self.args.minutes * 60, self.done
        last = self.clock()
        said, saved, said_tokens = done["seconds"], done["seconds"], done["tokens"]
        loader = self.batches.loader()
        started, report = done["step"], self.steps.report()
        stop = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.append(True))
        while done["seconds"] < total and not stop:
            fraction = done["seconds"] / total
            self.batches.fraction[0] = fraction
            rate = self.rate(fraction, done["step"] - started)
            self.model.zero_grad(set_to_none=True)
            for part, share, tokens in self.steps.parts(next(loader)):
                self.steps.loss(part, share, report).backward()
                done["tokens"] += tokens
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step(rate)
            now = self.clock()
            done["step"] += 1
            done["seconds"] += now - last
            last = now
            if done["seconds"] - said > self.args.print_every:
                speed = (done["tokens"] - said_tokens) / (done["seconds"] - said)
                print(f"{self.args.which} {done['seconds'] / 60:.1f} min step {done['step']} "
                      f"tokens {done['tokens'] / 1e6:.2f}M {speed:.0f}/s rate {rate:.1e} "
                      f"{report.line()}", flush=True)
                said, said_tokens, report = done["seconds"], done["tokens"], self.steps.report()
            if done["seconds"] - saved > self.args.save_every * 60:
                saved = done["seconds"]
                self.save()
        self.save()

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state(),
                 "done": self.done}
        torch.save(state, self.checkpoint.with_suffix(".new"))
        os.replace(self.checkpoint.with_suffix(".new"), self.checkpoint)
        self.model.save(self.folder, self.tokenizer)

    def resume(self):
        state = torch.load(self.checkpoint, weights_only=True, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load(state["optimizer"])
        self.done = state["done"]


def add_data_options(parser):
    parser.add_argument("--books", required=True, help="folder or .tar.xz of plain-text books")
    parser.add_argument("--synthesize", required=True, help="the triforce-synthesize program")
    parser.add_argument("--out", required=True, help="folder of results, checkpoints and token files")
    parser.add_argument("--tokenizer", help="tokenizer.model; trained on the books when absent")
    parser.add_argument("--synthetic-share", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("target", "draft"))
    add_data_options(parser)
    parser.add_argument("--init", help="folder of weights to start from")
    parser.add_argument("--distill", help="target folder: the drafter learns its probs with a "
                        "retrieval cache")
    parser.add_argument("--minutes", type=float, default=60,
                        help="of training in all; on a CPU minutes of computing")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="peak learning rate")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--span", type=int, default=16384, help="positions that a window may cover")
    parser.add_argument("--skip-share", type=float, default=0.75,
                        help="share of the windows that skip positions")
    parser.add_argument("--last-share", type=float, default=0.1,
                        help="share of the time, at the end, in which every other step is at the true "
                        "length --span")
    parser.add_argument("--sparse-share", type=float, default=0.2,
                        help="share of the target's steps in which it also learns to say the same over a "
                        "retrieval cache")
    parser.add_argument("--sparse-budget", type=int, default=128,
                        help="tokens of that cache, of a window of --window")
    parser.add_argument("--retrieval-budget", type=int, default=2048, help="of the drafter's teacher")
    parser.add_argument("--written-share", type=float, default=0.5,
                        help="share of the drafter's steps in which its teacher writes what it learns to "
                        "foretell; in the others the text goes on")
    parser.add_argument("--draft-budget", type=int, default=256, help="of its streaming cache")
    parser.add_argument("--anchors", type=int, default=32,
                        help="places per text where the drafter takes over")
    parser.add_argument("--follow", type=int, default=96, help="tokens learned after each")
    parser.add_argument("--workers", type=int, default=None,
                        help="processes that make batches [default: 0 on a CPU, else one per core]")
    parser.add_argument("--save-every", type=float, default=5, help="minutes")
    parser.add_argument("--print-every", type=float, default=30, help="seconds")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    args = parser.parse_args()
    if args.distill and args.which != "draft":
        parser.error("--distill is for the drafter")
    if args.workers is None:
        args.workers = os.cpu_count() if torch.cuda.is_available() else 0
    prepare_cpu(args.threads)
    torch.manual_seed(args.seed)
    Trainer(args).run()


if __name__ == "__main__":
    sys.exit(main())
