"""What scripts/compare_llama_cpp.sh does: both programs in turns on the same models, prompts and threads, and
one table of what came out."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from children import FAILED, call, ending, wait
from comparison_table import BATCHES, OWN_ROWS, PAIR_ROWS, SPECULATION, Table
from download import BAD_INPUT, USAGE, Failure, Parser, run
from llama_cpp import LEVELS, OWN, WEIGHTS, LlamaCpp, default_cache
from llama_cpp_rates import Theirs
from triforce_rates import Ours

ROOT = Path(__file__).resolve().parents[2]
PAIR = {name: ROOT / "data" / "models" / name for name in ("target", "draft")}
DEPTHS = (256, 4096, 7936, 15872)
TRIAL_DEPTH = 2048
START = 1000  # tokens of a prompt that take as long as a depth's programs take to begin, for what is left

HELP = """Measures llama.cpp and triforce-bench in turns with the same threads, and prints one table in Markdown: medians
over the rounds and their range. Progress goes to stderr. The models are the built-in pair, or that of --gguf.

The first time it fetches llama.cpp's source (in the archive of llama-cpp-python on PyPI, 77 MB, checked), builds
it for this processor, and converts the models; what that needs of Python (for the pair PyTorch, up to 3 GB) is
installed for it and removed. All lies in --cache and is used again; what was interrupted is done anew.
triforce-bench is built in build/ unless --build names a folder that has it.

llama.cpp gets the settings that are fastest for it: formats of weights and KV cache, and programs that speculate, are
tried first. Flash attention on and off is measured, the better one counts; speculation and lookup take what was better
at decoding in the trial. The length of drafts is tried for both programs."""
CODES = """example: compare_llama_cpp.sh --gguf SmolLM2-135M-Instruct.Q4_1.gguf --text book.txt

exit codes: 0 done, 1 a program that this one runs failed, 2 wrong usage, 3 a file is not what was
expected, 4 a program, the network or room is missing, 129/130/143 interrupted"""


def arguments():
    parser = Parser(prog="compare_llama_cpp.sh", description=HELP, epilog=CODES)
    parser.add_argument("--gguf", metavar="FILE",
                        help="a quantised model: llama.cpp has it as it is and in 16 and 32 bits, and drafts by it; "
                             "triforce-bench has it in bf16, and drafts by it in 16 and 4 bits")
    parser.add_argument("--text", metavar="FILE",
                        help="a text that prompts are the beginning of (default: a synthetic document each round)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="times that each is measured (default: 3)")
    parser.add_argument("--depths", metavar="LIST",
                        help="tokens before those that are generated (default: those of "
                             f"{','.join(map(str, DEPTHS))} that the model holds)")
    parser.add_argument("--gen-len", type=int, default=64, metavar="N",
                        help="tokens generated each time (default: 64)")
    parser.add_argument("--threads", type=int, metavar="N", help="of both programs (default: one per core)")
    parser.add_argument("--cpu-isa", choices=LEVELS, metavar="LEVEL",
                        help=f"instructions of both programs, {', '.join(LEVELS)} (default: of llama.cpp all of this "
                             "processor's, of triforce-bench the level that it takes itself)")
    parser.add_argument("--build", metavar="DIR",
                        help="folder with triforce-bench and triforce-synthesize, which is then not built "
                             "(default: build/, built)")
    parser.add_argument("--cache", metavar="DIR", default=default_cache(),
                        help="where llama.cpp is kept (default: ~/.cache/triforce-bench/llama.cpp, or under "
                             "$XDG_CACHE_HOME)")
    parser.add_argument("--archive", metavar="FILE", help="an archive of llama-cpp-python instead of that on PyPI")
    parser.add_argument("--sha256", metavar="HEX",
                        help="what that archive must have (default: that of the release on PyPI)")
    parser.add_argument("--python", metavar="PROGRAM",
                        help="a Python that has what llama.cpp's converter needs, or with --gguf the package gguf")
    options = parser.parse_args()
    if options.rounds < 1:
        raise Failure(USAGE, f"--rounds: expected at least 1, found {options.rounds}")
    if options.gen_len < 1:
        raise Failure(USAGE, f"--gen-len: expected at least 1, found {options.gen_len}")
    processors = len(os.sched_getaffinity(0))
    if options.threads is not None and not 1 <= options.threads <= processors:
        raise Failure(USAGE, f"--threads: expected 1 to {processors}, found {options.threads}")
    if options.depths is not None:
        words = options.depths.split(",")
        if not all(re.fullmatch(r"[0-9]{1,9}", word) for word in words):
            raise Failure(USAGE, f"--depths: expected a comma list of numbers, found {options.depths}")
        options.depths = sorted({int(word) for word in words})
    for name in ("archive", "gguf", "text"):
        value = getattr(options, name)
        if value is not None:
            if not Path(value).is_file():
                raise Failure(USAGE, f"--{name}: expected a file, found {value}")
            setattr(options, name, Path(value).absolute())
    if options.python and not shutil.which(options.python):
        raise Failure(USAGE, f"--python: expected a program, found {options.python}")
    if options.sha256 and not (options.archive and re.fullmatch("[0-9a-f]{64}", options.sha256)):
        raise Failure(USAGE, f"--sha256: expected 64 hex digits with --archive, found {options.sha256}")
    if not options.gguf:
        options.depths = depths_of(options, PAIR["target"])
    return options


def depths_of(options, model):
    """The depths that were asked for, or those of DEPTHS that the model in this folder holds."""
    positions = json.loads((model / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    most = positions - options.gen_len - 64
    depths = options.depths or [depth for depth in DEPTHS if depth <= most]
    if not depths or not all(64 <= depth <= most for depth in depths):
        raise Failure(USAGE, f"--depths: expected numbers from 64 to {most}, which with --gen-len are the model's "
                             f"{positions} positions, found {','.join(map(str, depths)) or 'no room'}")
    return depths


def built(options):
    """The folder with our own programs."""
    folder = Path(options.build or ROOT / "build").absolute()
    if not options.build:
        script = ('source "$0/scripts/lib/common.sh" && "$0/scripts/setup.sh" >&2 && '
                  "tf_release_build triforce-bench triforce-synthesize >&2")
        child = subprocess.Popen(["bash", "-euc", script, str(ROOT)], stdin=subprocess.DEVNULL, start_new_session=True)
        wait(child)  # it says itself what it does
        if child.returncode != 0:
            raise Failure(FAILED, f"building triforce-bench ended with {ending(child.returncode)}")
    for name in ("triforce-bench", "triforce-synthesize"):
        if not os.access(folder / name, os.X_OK):
            raise Failure(USAGE, f"--build: expected a folder with {name}, found none in {folder}")
    return folder


def threads_of(build, logs):
    """What triforce-bench takes where it is not told: one thread per core."""
    out, _ = call([build / "triforce-bench", "list-devices", "-o", "json"], logs / "devices", "looking at this machine")
    try:
        return next(int(d["threads"]) for d in json.loads(out)["devices"] if d["device"] == "cpu")
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise Failure(FAILED, f"triforce-bench list-devices: expected the CPU's threads, found {error!r}") from error


class Documents:
    """The text of each round, whole and cut to each depth by llama.cpp's tokenizer."""

    def __init__(self, options, peer, build):
        self.o, self.peer, self.build = options, peer, build

    def of_round(self, index):
        """{depth: file}; None: the whole, "batch": the whole once for each sequence of the largest batch."""
        logs, longest = self.peer.logs, self.o.depths[-1]
        whole, batch = logs / f"document-{index}.txt", logs / f"documents-{index}.jsonl"
        if self.o.text:
            text = self.o.text.read_text(encoding="utf-8", errors="replace")[:12 * longest]
        else:
            text = call([self.build / "triforce-synthesize", "--seed", 42, "--first", index, "--bytes", 6 * longest],
                        logs / "document", f"document {index + 1}")[0]
        whole.write_text(text, encoding="utf-8")
        batch.write_text((json.dumps({"text": text}) + "\n") * max(BATCHES), encoding="utf-8")
        tokens = self.count(whole)
        if tokens < longest:
            code, what = (BAD_INPUT, f"--text: {self.o.text}") if self.o.text else (FAILED, "llama-tokenize")
            raise Failure(code, f"{what}: expected at least {longest} tokens, found {tokens}")
        files = {None: whole, "batch": batch}
        for depth in {*self.o.depths, min(TRIAL_DEPTH, longest)}:
            files[depth] = logs / f"document-{index}-{depth}.txt"
            files[depth].write_text(text, encoding="utf-8")
            size, found = len(text), tokens
            for _ in range(6):
                if abs(found - depth) <= max(2, depth / 100):
                    break
                size = size * depth // found
                files[depth].write_text(text[:size].rsplit(" ", 1)[0], encoding="utf-8")
                found = self.count(files[depth])
        return files

    def count(self, path):
        """Tokens of a text, BOS included."""
        model = self.peer.model("target", WEIGHTS[0])
        out, _ = call([self.peer.program("llama-tokenize"), "-m", model, "-f", path, "--ids"],
                      self.peer.logs / "tokens", f"tokens of {path.name}")
        return max(1, len(re.findall(r"\d+", out[out.rfind("["):])))


class Comparison:
    """`peer`: LlamaCpp, ready; `build`: the folder of our programs; `target`: a folder of safetensors, None for the
    built-in pair."""

    def __init__(self, options, peer, build, target):
        self.o, self.peer, self.build = options, peer, build
        self.begin, self.done = None, 0  # of the rounds: when, and the share that is over
        self.theirs = Theirs(peer, self.measure, lambda weights: peer.model("draft", weights) if target is None
                             else peer.model("target", OWN), options)
        self.ours = Ours(build / "triforce-bench", target, self.measure, options)
        self.table = Table(options, PAIR_ROWS if target is None else OWN_ROWS)

    def measure(self, what, when, command):
        """What the command wrote on stdout and stderr; the table says by what `what` was measured."""
        self.table.commands.pop(what, None)  # in the order of the last round
        self.table.commands[what] = command
        left = ""
        if self.done > 0.05:
            passed = time.monotonic() - self.begin
            left = f" (about {passed * (1 - self.done) / self.done / 60:.0f} min left)"
        log = self.peer.logs / re.sub(r"[^a-z0-9]+", "-", f"{when} {what}".lower())
        return call(command, log, f"{when}: {what}{left}")

    def round(self, index, texts):
        for depth in self.o.depths:
            when = f"round {index + 1} of {self.o.rounds}, {depth:,} tokens"
            for figure in [*self.theirs.settings, *SPECULATION]:
                try:
                    self.table.add_theirs(figure, depth, self.theirs.rates(when, figure, texts[depth], depth))
                except Failure as failure:  # the other figures are worth having
                    if failure.code != FAILED or figure in self.theirs.settings:
                        raise
                    self.table.add_lost(figure, depth, index, failure)
            try:
                for size, rates in self.theirs.batches(when, depth, BATCHES).items():
                    self.table.add_theirs(f"batch {size}", depth, rates)
            except Failure as failure:
                if failure.code != FAILED:
                    raise
                for size in BATCHES:
                    self.table.add_lost(f"batch {size}", depth, index, failure)
            self.table.add_ours(depth, self.ours.rates(when, texts[None], texts["batch"], depth, BATCHES))
            of_round = sum(START + other for other in self.o.depths)
            self.done += (START + depth) / of_round / self.o.rounds

    def run(self):
        documents = Documents(self.o, self.peer, self.build)
        texts, trial = documents.of_round(0), min(TRIAL_DEPTH, self.o.depths[-1])
        self.theirs.choose(texts[trial], trial)
        self.ours.choose(texts[None], trial)
        self.begin = time.monotonic()
        for index in range(self.o.rounds):
            self.round(index, texts if index == 0 else documents.of_round(index))


def stop(signum, _):
    raise Failure(128 + signum, f"interrupted by {signal.Signals(signum).name}; give the command again to go on")


def main():
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, stop)
    options = arguments()
    peer = LlamaCpp(options.cache, options.archive, options.sha256, options.cpu_isa)
    build = built(options)
    options.threads = options.threads or threads_of(build, peer.logs)
    if options.cpu_isa:  # before minutes of building for what this processor lacks
        call([build / "triforce-bench", "run", "--cpu-isa", options.cpu_isa, "--prefill", 64, "--budget", 16,
              "--gen-len", 1, "--method", "ar", "--repetitions", 1, "--prompts", 1, "--progress", "none"],
             peer.logs / "level", f"trying --cpu-isa {options.cpu_isa}")
    peer.obtain()
    peer.build(options.threads)
    target = None
    if options.gguf:
        target = peer.adopt(options.gguf, options.python)
        options.depths = depths_of(options, target)
    else:
        peer.convert(PAIR, options.python)
    comparison = Comparison(options, peer, build, target)
    comparison.run()
    print(comparison.table.report(peer, comparison.theirs, comparison.ours), end="", flush=True)


sys.exit(run("compare_llama_cpp.sh", main))
