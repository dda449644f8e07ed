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

import ctypes
import functools
import os
import pathlib
import pickle
import signal
import sys
import time

import torch
from safetensors import SafetensorError
from torch import nn

from pair.model import CHUNK, DRAFT, SINKS, TARGET, Llama
from pair.optimizer import Optimizer
from pair.options import add, check, count, model_folder, portion, positive, present, program, whole
from pair.steps import Batches, DraftSteps, TargetSteps, multiplies_bf16
from pair.texts import BLOCK, token_files, train_tokenizer
from plots.command import BadInput, CannotWrite, parser, run

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


def checkpoint_of(args):
    return pathlib.Path(args.out) / f"{args.which}-checkpoint.pt"


class Trainer:
    def __init__(self, args):
        self.args, self.folder = args, pathlib.Path(args.out) / args.which
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.checkpoint = checkpoint_of(args)
        source = self.folder if args.resume else args.init or args.out
        self.tokenizer = pathlib.Path(args.tokenizer or pathlib.Path(source, "tokenizer.model"))
        if not self.tokenizer.exists():
            train_tokenizer(args.books, self.tokenizer)
        shape = TARGET if args.which == "target" else DRAFT
        self.model = (Llama.load(args.init) if args.init else Llama(shape)).to(self.device)
        self.optimizer = Optimizer(self.model, args.rate)
        self.done = {"step": 0, "tokens": 0, "seconds": 0.0}
        if args.resume:
            self.resume()
        compile_ = (lambda f: torch.compile(f, dynamic=False)) if args.compile else (lambda f: f)
        steps = TargetSteps if args.which == "target" else DraftSteps
        self.steps = steps(args, self.model, self.device, compile_)
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
            signal.signal(number, lambda number, _: stop.append(number))
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
        if stop:
            sys.exit(128 + stop[0])

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state(),
                 "done": self.done}
        new = self.checkpoint.with_suffix(".new")
        try:
            torch.save(state, new)
            os.replace(new, self.checkpoint)
            self.model.save(self.folder, self.tokenizer)
        except (OSError, RuntimeError, SafetensorError) as error:
            new.unlink(missing_ok=True)
            raise CannotWrite(f"{self.folder.parent}: cannot be written: {error}") from error

    def resume(self):
        try:
            state = torch.load(self.checkpoint, weights_only=True, map_location=self.device)
            self.model.load_state_dict(state["model"])
            self.optimizer.load(state["optimizer"])
        except (EOFError, KeyError, OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            found = " ".join(str(error).split())
            raise BadInput(f"{self.checkpoint}: expected a checkpoint of this {self.args.which}, found: "
                           f"{found}") from error
        self.done = state["done"]


def add_data_options(options):
    options.add_argument("--books", required=True, type=present, help="folder or .tar.xz of plain-text books")
    options.add_argument("--synthesize", required=True, type=program, help="the triforce-synthesize program")
    options.add_argument("--out", required=True, help="folder of results, checkpoints and token files")
    options.add_argument("--threads", type=count, default=os.cpu_count(), help="[default: all processors]")


def parse_arguments():
    options = parser("train_pair.py", __doc__)
    kinds = options.add_subparsers(dest="which", required=True, metavar="target|draft")
    target, draft = (kinds.add_parser(which, help=f"train the {which}; --help says how", allow_abbrev=False)
                     for which in ("target", "draft"))

    for either in (target, draft):
        add_data_options(either)
        either.add_argument("--init", type=model_folder, help="folder of weights to start from "
                            "[default: random weights]")
        either.add_argument("--tokenizer", type=present, help="tokenizer.model [default: that of --init, "
                            "--resume that of before; without either that of --out, which is trained on the "
                            "books where there is none]")
        add(either, "--synthetic-share", portion, 0.5, "of the texts: documents; the others are books")
        add(either, "--seed", whole, 0, "of the choice of texts")
        add(either, "--minutes", positive, 60, "of training in all; on a CPU minutes of computing")
        add(either, "--rate", positive, 1.5e-3, "peak learning rate")
        add(either, "--span", count, 16384, "positions that are learned")
        either.add_argument("--workers", type=whole,
                            help="processes that make batches [default: 0 on a CPU, else one per core]")
        add(either, "--save-every", positive, 5, "minutes from one checkpoint to the next")
        add(either, "--print-every", positive, 30, "seconds from one line to the next")
        either.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
        either.add_argument("--no-compile", dest="compile", action="store_false",
                            help="do without torch.compile, whose first start takes minutes")
    add(target, "--batch-tokens", count, 8192, "tokens of a step")
    add(target, "--window", count, 1024, "tokens of a window")
    add(target, "--skip-share", portion, 0.75, "of the windows: those that skip positions")
    add(target, "--last-share", portion, 0.1, "of the time, at the end: where every other step is at the true "
        "length --span")
    add(target, "--sparse-share", portion, 0.2, "of the steps: those that also learn to say the same over a "
        "retrieval cache")
    add(target, "--sparse-budget", count, 128, "tokens of that cache, of a window of --window")
    draft.add_argument("--distill", type=model_folder, help="target folder: its probs with a retrieval cache "
                       "are learned [default: the texts alone]")
    add(draft, "--retrieval-budget", count, 2048, "tokens of that cache")
    add(draft, "--written-share", portion, 0.5, "of the steps with --distill: those where the target writes what "
        "is learned; in the others the text goes on")
    add(draft, "--draft-budget", count, 256, "tokens of the streaming cache")
    add(draft, "--anchors", count, 32, "places per text where the drafter takes over")
    add(draft, "--follow", count, 96, "tokens learned after each")
    args = options.parse_args()

    expect = functools.partial(check, options, args)
    expect(args.span % BLOCK == 0, "--span", f"a multiple of {BLOCK}")
    if args.which == "target":
        expect(args.window % BLOCK == 0 and 4 * BLOCK <= args.window <= args.span // 2, "--window",
               f"a multiple of {BLOCK} from {4 * BLOCK} to half of --span ({args.span})")
        expect(args.sparse_budget % CHUNK == 0 and args.sparse_budget <= args.window, "--sparse-budget",
               f"a multiple of {CHUNK}, at most --window ({args.window})")
    else:  # whose texts have half of the span at least
        expect(args.retrieval_budget % CHUNK == 0 and args.retrieval_budget <= args.span // 2,
               "--retrieval-budget", f"a multiple of {CHUNK}, at most half of --span ({args.span})")
        expect(args.draft_budget > SINKS, "--draft-budget", f"more than the {SINKS} first tokens that stay")
        expect(args.draft_budget + args.follow <= args.span // 4, "--follow",
               f"at most a quarter of --span ({args.span}) with --draft-budget ({args.draft_budget})")
    checkpoint = checkpoint_of(args)
    if args.resume != checkpoint.exists():
        options.error(f"--resume: expected {checkpoint}, found no such file" if args.resume else
                      f"--out: expected a folder without {checkpoint.name}, found {checkpoint}; --resume goes "
                      "on from it")
    if args.workers is None:
        args.workers = os.cpu_count() if torch.cuda.is_available() else 0
    return args


def main():
    args = parse_arguments()
    try:
        pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"--out {args.out}: cannot be written: {error.strerror}") from error
    prepare_cpu(args.threads)
    torch.manual_seed(args.seed)
    Trainer(args).run()


if __name__ == "__main__":
    run("train_pair.py", main)
