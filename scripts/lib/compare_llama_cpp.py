"""What scripts/compare_llama_cpp.sh does: both programs in turns on the same models, prompts and threads, and
one table of what came out."""
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from download import USAGE, Failure, Parser, run
from llama_cpp import FAILED, WEIGHTS, LlamaCpp, call, default_cache, ending, wait
from machine import machine, spread

ROOT = Path(__file__).resolve().parents[2]
MODELS = {name: ROOT / "data" / "models" / name for name in ("target", "draft")}
DEPTHS = "256,4096,8192,15872"
POSITIONS = 16384  # of the target
CACHES = ("f16", "bf16", "f32")  # formats of llama.cpp's KV cache that are tried
DRAFTS = (2, 4, 8)  # tokens of a draft that are tried with llama-speculative
TRIAL_DEPTH = 4096
ATTEMPTS = 5  # llama.cpp's log may end before its last lines where the program ends first (its issue 22142)
LONG = 2048  # tokens from which a prefill needs no warm-up: it would double the time
TEMPERATURE, TOP_P = "0.6", "0.9"  # of generations, in both programs
FIGURES = ("prefill", "decode", "speculative decode")
# Share of the processors that others may take before the table says so.
BUSY = 0.05

HELP = """Measures llama.cpp and triforce-bench in turns on the built-in pair of models, with the same threads, and
prints one table in Markdown: medians over the rounds and their range. Progress goes to stderr.

The first time it fetches llama.cpp's source (in the archive of llama-cpp-python on PyPI, 77 MB, checked), builds
it for this processor, and converts the models with llama.cpp's own converter; what that needs of Python (PyTorch,
up to 3 GB) is installed for it and removed. All lies in --cache and is used again; what was interrupted is done
anew. triforce-bench is built in build/ unless --build names a folder that has it.

llama.cpp gets the settings that are fastest for it: formats of weights and KV cache are tried first, and flash
attention on and off is measured everywhere, the better one counts."""
CODES = """exit codes: 0 done, 1 a program that this one runs failed, 2 wrong usage, 3 the archive is not what was
expected, 4 a program, the network or room is missing, 129/130/143 interrupted"""


def arguments():
    parser = Parser(prog="compare_llama_cpp.sh", description=HELP, epilog=CODES)
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="times that each is measured (default: 3)")
    parser.add_argument("--depths", default=DEPTHS, metavar="LIST",
                        help=f"tokens before those that are generated (default: {DEPTHS})")
    parser.add_argument("--gen-len", type=int, default=64, metavar="N",
                        help="tokens generated each time (default: 64)")
    parser.add_argument("--threads", type=int, metavar="N", help="of both programs (default: one per core)")
    parser.add_argument("--build", metavar="DIR",
                        help="folder with triforce-bench and triforce-synthesize, which is then not built "
                             "(default: build/, built)")
    parser.add_argument("--cache", metavar="DIR", default=default_cache(),
                        help="where llama.cpp is kept (default: ~/.cache/triforce-bench/llama.cpp, or under "
                             "$XDG_CACHE_HOME)")
    parser.add_argument("--archive", metavar="FILE", help="an archive of llama-cpp-python instead of that on PyPI")
    parser.add_argument("--sha256", metavar="HEX",
                        help="what that archive must have (default: that of the release on PyPI)")
    parser.add_argument("--python", metavar="PROGRAM", help="a Python that has what llama.cpp's converter needs")
    options = parser.parse_args()
    if options.rounds < 1:
        raise Failure(USAGE, f"--rounds: expected at least 1, found {options.rounds}")
    if options.gen_len < 1:
        raise Failure(USAGE, f"--gen-len: expected at least 1, found {options.gen_len}")
    processors = len(os.sched_getaffinity(0))
    if options.threads is not None and not 1 <= options.threads <= processors:
        raise Failure(USAGE, f"--threads: expected 1 to {processors}, found {options.threads}")
    most = POSITIONS - options.gen_len - 64
    words = options.depths.split(",")
    if not all(re.fullmatch(r"[0-9]{1,9}", word) and 64 <= int(word) <= most for word in words):
        raise Failure(USAGE, f"--depths: expected a comma list of numbers from 64 to {most}, found "
                             f"{options.depths}")
    options.depths = sorted({int(word) for word in words})
    if options.archive and not Path(options.archive).is_file():
        raise Failure(USAGE, f"--archive: expected a file, found {options.archive}")
    if options.python and not shutil.which(options.python):
        raise Failure(USAGE, f"--python: expected a program, found {options.python}")
    if options.sha256 and not (options.archive and re.fullmatch("[0-9a-f]{64}", options.sha256)):
        raise Failure(USAGE, f"--sha256: expected 64 hex digits with --archive, found {options.sha256}")
    return options


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


def number(row, name):
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} of a row is {value!r}")
    return value


def bench_rates(text):
    """{(model file, flash attention 0 or 1): tokens per second} of what llama-bench -o json prints."""
    try:
        rates = {(Path(row["model_filename"]).name, number(row, "flash_attn")): number(row, "avg_ts")
                 for row in json.loads(text)}
        if not rates or not all(rate > 0 for rate in rates.values()):
            raise ValueError("no rate, or one that is not above 0")
        return rates
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(FAILED, "llama-bench: expected JSON with a rate in every row, found something else: "
                              f"{error}") from error


def speculative_rates(text):
    """Tokens of the prompt, tokens per second after it, and the share of drafted tokens that was accepted,
    of what llama-speculative says."""
    encoded = re.search(r"encoded +(\d+) tokens in", text)
    decoded = re.search(r"decoded +(\d+) tokens in +[0-9.]+ seconds, speed: +([0-9.]+) t/s", text)
    drafted, accepted = (re.search(rf"{name} += (\d+)", text) for name in ("n_drafted", "n_accept"))
    if not (encoded and decoded and drafted and accepted) or int(decoded[1]) < 1:
        raise Failure(FAILED, "llama-speculative: expected the tokens that it decoded and how fast, found no "
                              "such lines")
    return int(encoded[1]), float(decoded[2]), int(accepted[1]) / max(1, int(drafted[1]))


def own_rates(text):
    """({figure: tokens per second}, share of proposals that the full cache accepted, context) of a result."""
    try:
        result = json.loads(text)
        cases = {case["method"]: case for case in result["cases"]}
        for case in cases.values():
            if case["status"] != "ok":
                raise Failure(FAILED, f"triforce-bench: {case['method']}: {case['status']}: {case['status_reason']}")
        speed = {name: 1000 / case["timing"]["ms_per_token"]["geometric_mean"] for name, case in cases.items()}
        ar, triforce = cases["ar"], cases["triforce"]
        prefill = 1000 * ar["params"]["prefill"] / ar["timing"]["prefill_ms"]
        rates = dict(zip(FIGURES, (prefill, speed["ar"], speed["triforce"])))
        context = {**result["context"], "dtype": ar["params"]["dtype"]}
        return rates, triforce["acceptance"][-1]["acceptance_rate"], context
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise Failure(FAILED, "triforce-bench: expected a result with times, found something else: "
                              f"{error!r}") from error


class Comparison:
    """`peer`: LlamaCpp, ready; `build`: the folder of our programs."""

    def __init__(self, options, peer, build):
        self.o, self.peer, self.build = options, peer, build
        self.begin, self.done = None, 0  # of the rounds: when, and the share that is over
        self.context, self.busy = {}, []
        self.commands = {}  # {what it measures: the command, of the longest prompt}
        self.settings = {}  # {figure: (weights, cache, [flash attention, ...])}
        self.draft = None  # tokens of llama-speculative's drafts; None: it does not take the pair
        self.no_speculation, self.lost = "", {}  # why not at all; {where: why not there}
        self.theirs = {figure: {depth: {} for depth in options.depths} for figure in FIGURES}
        self.ours = {figure: {depth: [] for depth in options.depths} for figure in FIGURES}
        self.accepted = {"llama.cpp": {}, "triforce-bench": {}}

    def measure(self, what, when, command):
        """What the command wrote on stdout and stderr; remembered as that which measured `what`."""
        self.commands[what] = command
        left = ""
        if self.done > 0.05:
            passed = time.monotonic() - self.begin
            left = f" (about {passed * (1 - self.done) / self.done / 60:.0f} min left)"
        log = self.peer.logs / re.sub(r"[^a-z0-9]+", "-", f"{when} {what}".lower())
        return call(command, log, f"{when}: {what}{left}")

    # ---- llama.cpp

    def bench(self, when, figure, weights, cache, flash, depth, repetitions):
        """{(weights, flash attention): tokens per second}."""
        models = [word for name in weights for word in ("-m", self.peer.model("target", name))]
        tokens = {"prefill": ["-p", depth, "-n", 0], "decode": ["-p", 0, "-n", self.o.gen_len, "-d", depth]}
        warm = [] if figure == "decode" or depth < LONG else ["--no-warmup"]
        command = [self.peer.program("llama-bench"), *models, *tokens[figure], *warm, "-fa", ",".join(map(str, flash)),
                   "-ctk", cache, "-ctv", cache, "-t", self.o.threads, "-r", repetitions, "-o", "json"]
        rates = bench_rates(self.measure(f"llama.cpp, {figure}", when, command)[0])
        wanted = {(name, f): (self.peer.model("target", name).name, f) for name in weights for f in flash}
        if set(wanted.values()) != set(rates):
            raise Failure(FAILED, f"llama-bench: expected a row for each of {sorted(wanted.values())}, found "
                                  f"{sorted(rates)}")
        return {setting: rates[row] for setting, row in wanted.items()}

    def speculate(self, when, document, draft, depth):
        """(tokens per second, share accepted), of drafts of so many tokens after the document."""
        weights, cache, flash = self.settings["decode"]
        room = depth + self.o.gen_len + 64
        command = [self.peer.program("llama-speculative"), "-m", self.peer.model("target", weights), "-md",
                   self.peer.model("draft", weights), "-f", document, "-n", self.o.gen_len, "-c", room, "-b", room,
                   "-t", self.o.threads, "-fa", "on" if flash[0] else "off", "-ctk", cache, "-ctv", cache,
                   "--spec-draft-n-max", draft, "--temp", TEMPERATURE, "--top-p", TOP_P, "--top-k", 0, "--min-p", 0,
                   "--seed", 42, "--ignore-eos"]
        for _ in range(ATTEMPTS):
            text = "".join(self.measure("llama.cpp, speculative decode", when, command))
            if "n_accept" in text:
                break
        tokens, rate, accepted = speculative_rates(text)
        if abs(tokens - depth) > max(4, depth / 30):
            raise Failure(FAILED, f"llama-speculative: expected a prompt of about {depth} tokens, found {tokens}")
        return rate, accepted

    def choose(self, texts):
        """Sets what is fastest for llama.cpp."""
        depth = min(TRIAL_DEPTH, self.o.depths[-1])
        for figure in FIGURES[:2]:
            tried, refused = {}, ""
            for cache in CACHES:
                for flash in (1, 0):
                    try:
                        when = f"trial of {cache}, flash attention {'on' if flash else 'off'}"
                        rates = self.bench(when, figure, WEIGHTS, cache, [flash], depth, 1)
                        tried.update({(weights, cache, flash): rate for (weights, _), rate in rates.items()})
                    except Failure as failure:  # not every format goes with both kinds of attention
                        if failure.code != FAILED:
                            raise
                        refused = str(failure)
            if not tried:
                raise Failure(FAILED, refused)
            weights, cache, best = max(tried, key=tried.get)
            self.settings[figure] = weights, cache, sorted({f for w, c, f in tried if (w, c) == (weights, cache)},
                                                          key=lambda f: f != best)
        tried = {}
        for draft in DRAFTS:
            try:
                tried[draft] = self.speculate(f"trial of drafts of {draft}", texts[depth], draft, depth)[0]
            except Failure as failure:
                if failure.code != FAILED:
                    raise
                self.no_speculation = str(failure)
        self.draft = max(tried, key=tried.get, default=None)

    # ---- prompts

    def texts(self, index):
        """One document, whole and cut to each depth by llama.cpp's tokenizer: {depth: file}; None: the whole."""
        logs = self.peer.logs
        whole = logs / f"document-{index}.txt"
        text = call([self.build / "triforce-synthesize", "--seed", 42, "--first", index, "--bytes",
                     6 * self.o.depths[-1]], logs / "document", f"document {index + 1}")[0]
        whole.write_text(text, encoding="utf-8")
        tokens = self.count(whole)
        if tokens < self.o.depths[-1]:
            raise Failure(FAILED, f"llama-tokenize: expected at least {self.o.depths[-1]} tokens, found {tokens}")
        files = {None: whole}
        for depth in {*self.o.depths, min(TRIAL_DEPTH, self.o.depths[-1])}:
            files[depth] = logs / f"document-{index}-{depth}.txt"
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

    # ---- both

    def round(self, index, texts):
        for depth in self.o.depths:
            when = f"round {index + 1} of {self.o.rounds}, {depth:,} tokens"
            for figure, repetitions in (("prefill", 1), ("decode", 2)):
                weights, cache, flash = self.settings[figure]
                rates = self.bench(when, figure, [weights], cache, flash, depth, repetitions)
                for (_, f), rate in rates.items():
                    self.theirs[figure][depth].setdefault(f, []).append(rate)
            budget = max(16, min(2048, depth // 4 // 8 * 8))
            command = [self.build / "triforce-bench", "run", "--device", "cpu", "--threads", self.o.threads,
                       "--method", "ar,triforce", "--dataset", texts[None], "--prefill", depth, "--budget", budget,
                       "--gen-len", self.o.gen_len, "--temp", TEMPERATURE, "--top-p", TOP_P, "--repetitions", 2,
                       "--ignore-eos", "--progress", "none", "--output-format", "json"]
            rates, accepted, self.context = own_rates(self.measure("triforce-bench", when, command)[0])
            for figure, rate in rates.items():
                self.ours[figure][depth].append(rate)
            self.accepted["triforce-bench"].setdefault(depth, []).append(accepted)
            self.busy.append((self.context.get("load") or {}).get("other") or 0)
            if self.draft is not None:
                try:
                    rate, accepted = self.speculate(when, texts[depth], self.draft, depth)
                    self.accepted["llama.cpp"].setdefault(depth, []).append(accepted)
                except Failure as failure:  # the other figures are worth having
                    if failure.code != FAILED:
                        raise
                    rate, self.lost[f"{depth:,} tokens in round {index + 1}"] = None, str(failure)
                self.theirs[FIGURES[2]][depth].setdefault(self.settings["decode"][2][0], []).append(rate)
            self.done += depth / sum(self.o.depths) / self.o.rounds

    def run(self):
        texts = self.texts(0)
        self.choose(texts)
        self.begin = time.monotonic()
        for index in range(self.o.rounds):
            self.round(index, texts if index == 0 else self.texts(index))

    # ---- the table

    def rows(self):
        for depth in self.o.depths:
            for figure in FIGURES:
                ours, theirs = self.ours[figure][depth], self.theirs[figure][depth]
                method = {"decode": " (`ar`)", "speculative decode": " (`triforce`)"}
                name = figure + method.get(figure, "")
                cells = [f"{depth:,}", name, "not measured", spread(ours), ""]
                known = {flash: [pair for pair in zip(ours, rates) if pair[1]] for flash, rates in theirs.items()}
                if any(known.values()):
                    flash = max(known, key=lambda f: statistics.median([b for _, b in known[f]]))
                    cells[2] = f"{spread([b for _, b in known[flash]])}, flash attention {'on' if flash else 'off'}"
                    cells[4] = spread([a / b for a, b in known[flash]], "{:.2f}")
                if figure == FIGURES[2]:
                    for i, side in ((2, "llama.cpp"), (3, "triforce-bench")):
                        if depth in self.accepted[side]:
                            cells[i] += f"; {100 * statistics.median(self.accepted[side][depth]):.0f}% accepted"
                yield cells

    def notes(self):
        c, peer = self.context, self.peer
        yield f"{time.strftime('%Y-%m-%d', time.gmtime())}; {machine()}; {self.o.threads} threads for both"
        yield (f"triforce-bench {c['version']} ({(c['commit'] or 'no commit')[:9]}), {c['compiler']}, {c['isa']}, "
               f"{c['dtype']}; {peer.version()}, built by the same machine's compiler for it (`-march=native`)")
        yield "llama.cpp's formats, the fastest of those that were tried: " + "; ".join(
            f"{figure}: weights {weights}, KV cache {cache}" for figure, (weights, cache, _) in self.settings.items())
        yield (f"tokens per second: median of {self.o.rounds} rounds in which the programs take turns, and the range; "
               "ratio: triforce-bench over llama.cpp of the same round")
        yield ("prefill: of a prompt of so many tokens; decode: of the tokens after it, sampling left out by "
               "llama-bench and counted by triforce-bench; speculative: the same documents, temperature "
               f"{TEMPERATURE}, top-p {TOP_P}")
        if self.draft is None:
            yield f"llama-speculative does not take this pair: {self.no_speculation}"
        else:
            yield (f"llama-speculative drafts up to {self.draft} tokens, the fastest of "
                   f"{', '.join(map(str, DRAFTS))}; accepted: of the tokens that the target tested (triforce-bench) or "
                   "that were drafted (llama.cpp)")
        for where, why in self.lost.items():
            yield f"llama-speculative was not measured after {where}: {why}"
        if max(self.busy) > BUSY * (os.cpu_count() or 1):
            yield (f"**not a quiet machine**: other programs kept up to {max(self.busy):.1f} of {os.cpu_count()} "
                   "processors busy while triforce-bench ran; measure again before quoting these figures")

    def report(self):
        lines = ["# triforce-bench beside llama.cpp", ""]
        lines += ["| tokens before | | llama.cpp, tokens/s | triforce-bench, tokens/s | ratio |",
                  "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(cells)} |" for cells in self.rows()]
        lines += ["", *(f"- {note}" for note in self.notes()), ""]
        lines += ["Commands of the longest prompt, without folders:", ""]
        for what, command in self.commands.items():
            words = [word.name if isinstance(word, Path) else str(word) for word in command]
            lines.append(f"    {shlex.join(words)}  # {what}")
        return "\n".join(lines) + "\n"


def stop(signum, _):
    raise Failure(128 + signum, f"interrupted by {signal.Signals(signum).name}; give the command again to go on")


def main():
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, stop)
    options = arguments()
    peer = LlamaCpp(options.cache, options.archive, options.sha256)
    build = built(options)
    options.threads = options.threads or threads_of(build, peer.logs)
    peer.obtain()
    peer.build(options.threads)
    peer.convert(MODELS, options.python)
    comparison = Comparison(options, peer, build)
    comparison.run()
    print(comparison.report(), end="", flush=True)


sys.exit(run("compare_llama_cpp.sh", main))
