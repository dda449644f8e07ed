"""scripts/compare_llama_cpp.sh over an archive, a build and programs of the test's own: no network, no compiler."""
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compare_llama_cpp.sh"

# Every stand-in writes its name and arguments to $FAKES/calls and takes its mood from $FAKES/mood.json.
COMMON = f"""#!{sys.executable} -SE
import json, os, re, sys, time
from pathlib import Path
fakes, name, args = Path(os.environ["FAKES"]), Path(sys.argv[0]).name, sys.argv[1:]
with open(fakes / "calls", "a") as calls:
    calls.write(" ".join([name, *args]) + "\\n")
mood = json.loads((fakes / "mood.json").read_text())
def value(option):
    return args[args.index(option) + 1]
def times():  # how often this program was called with these arguments
    return (fakes / "calls").read_text().splitlines().count(" ".join([name, *args])) - 1
"""
# Builds what $FAKES/programs has; interrupted while it "compiles" if the mood says so.
CMAKE = COMMON + """
import shutil
if "--build" in args:
    folder = Path(value("--build"))
    (folder / "bin").mkdir(exist_ok=True)
    for program in (fakes / "programs").iterdir():
        shutil.copy(program, folder / "bin" / program.name)
        print("[1/3] Building CXX object", flush=True)
        if mood.get("slow"):
            (fakes / "compiling").write_text("")
            time.sleep(60)
    if mood.get("broken"):
        print("ggml.c:7: error: no such thing", file=sys.stderr)
        sys.exit(2)
else:
    assert "-DCMAKE_BUILD_TYPE=Release" in args
    Path(value("-B")).mkdir(exist_ok=True)
    (Path(value("-B")) / "CMakeCache.txt").write_text("")
"""
# Rates are products, so that the test can say which setting must win: f16 weights, a bf16 cache, and
# flash attention for 256 tokens, none for 1,024. No bf16 cache without flash attention for prefills.
BENCH = COMMON + """
rows = []
for model in [args[i + 1] for i, arg in enumerate(args) if arg == "-m"]:
    for flash in map(int, value("-fa").split(",")):
        depth = max(int(value("-p")), int(value("-d")) if "-d" in args else 0)
        if value("-p") != "0" and value("-ctk") == "bf16" and not flash:
            sys.exit("llama_init: error: bf16 cache needs flash attention")
        weights = re.search("target-(.*).gguf", model)
        rate = 2e5 / depth * {"bf16": 1, "f16": 3, "f32": 2, "own": 5}[weights[1] if weights else "own"]
        rate *= {"f16": 1, "bf16": 2}[value("-ctk")] * (1.1 if flash == (depth == 256) else 1)
        rate *= (1, 0.9, 1.3)[times() % 3]
        rows.append({"model_filename": model, "flash_attn": flash, "n_prompt": 0, "avg_ts": rate,
                     "model_type": f"llama 135M {'F32' if weights else 'Q4_1'}"})
print(json.dumps(mood.get("rows", rows)))
"""
# One program for all that speculates: drafts of 4 are the best, by llama-speculative for a model that drafts, and by
# llama-speculative-simple for lookups.
SPECULATIVE = COMMON + """
if mood.get("refuses"):
    print("main: error: draft model vocab must match target model", file=sys.stderr)
    sys.exit(1)
size = len(Path(value("-f")).read_text())
tokens = min(size, 400) // 3 + max(0, size - 400) // 4
ngrams, of = "ngram-simple" in args, "--spec-ngram-simple-size-"
drafted = int((value(of + "m") if of + "m" in args else 48) if ngrams else value("--spec-draft-n-max"))
compared = int(value(of + "n") if of + "n" in args else 12) if ngrams else 0
rate = {2: 50, 4: 70, 8: 60}.get(drafted, 500) + (compared == 4)
rate += {"llama-speculative": 0, "llama-lookup": 20}.get(name, 30 if "ngram-simple" in args else -20)
print(f"encoded {mood.get('tokens', tokens)} tokens in    1.000 seconds, speed: 5.0 t/s", file=sys.stderr)
if times() % 3 < mood.get("mute", 0) or mood.get("mute_in", "always") in value("-f"):  # as when the log's thread is late
    sys.exit(0)
print(f"decoded   16 tokens in    0.100 seconds, speed: {rate:8.3f} t/s", file=sys.stderr)
found = not ngrams or 12 > compared  # a long one is nowhere in the text
print(f"n_drafted = {40 * found}\\nn_accept  = {10 * found}", file=sys.stderr)
"""
# The rate of a sequence falls with their number; the log may lose its end, as that of the others.
BATCHED = COMMON + """
for count in value("-npl").split(",")[:1 if times() % 5 < mood.get("short", 0) else None]:
    print(json.dumps({"pp": 1, "pl": int(count), "speed_tg": 800 - 50 * int(count)}))
"""
QUANTIZE = COMMON + """
assert args[0] == "--allow-requantize" and args[3] in ("BF16", "F16", "F32")
Path(args[2]).write_text(args[3])
"""
# Tokens are shorter at the beginning of a text.
TOKENIZE = COMMON + "size = len(Path(value('-f')).read_text())\nprint(list(range(min(size, 400) // 3 + max(0, size - 400) // 4)))\n"
SYNTHESIZE = COMMON + "print('a word ' * (int(value('--bytes')) // 7 + 1))\n"
TRIFORCE = COMMON + """
if args[0] == "list-devices":
    print(json.dumps({"devices": [{"device": "cpu", "threads": 3}]}))
    sys.exit(0)
prefill = int(value("--prefill"))
if "--dataset" not in args:  # whether this processor has the level
    sys.exit("--cpu-isa amx: this processor has avx2" if value("--cpu-isa") == "amx" else 0)
def case(method, ms):
    sequences = int(ms[1]) if isinstance(ms, tuple) else 1
    ms = ms[0] if isinstance(ms, tuple) else ms
    return {"method": method, "status": mood.get("status", "ok"), "status_reason": "for a reason",
            "params": {"prefill": prefill, "dtype": "bf16"},
            "timing": {"prefill_ms": prefill / 4, "tokens_per_s": sequences * 1000 / ms},
            "acceptance": [{"acceptance_rate": 0.5}, {"acceptance_rate": 0.875}] if method != "ar" else []}
def result(cases):
    return {"context": {"version": "0.1.0", "commit": "0123456789abcdef", "compiler": "GNU", "isa": "avx2",
                        "load": {"other": mood.get("other", 0.01)}}, "cases": cases}
times_of = {"ar": prefill / 1000, "triforce": prefill / 3000, "lookup": prefill / 2000, "retrieval": prefill / 2500}
method = value("--method")
if "--draft-weights" in args:
    times_of["retrieval"] = prefill / 4000
if "--batch" in args:
    texts = [json.loads(line)["text"] for line in Path(value("--dataset")).read_text().splitlines()]
    assert len(texts) == 8 and method == "ar"
    document = [case("ar", (prefill / 1000, count)) for count in value("--batch").split(",")]
elif "--gamma" in args and "," in value("--gamma"):
    document = [case(method, times_of[method] * {"2": 3, "4": 2, "8": 1}[gamma]) for gamma in value("--gamma").split(",")]
else:
    assert value("--dataset").endswith(".txt") and (method == "ar" or value("--gamma") == "8")
    print(json.dumps(result([case(method, times_of[method])])))
    sys.exit(0)
print(json.dumps({"recipes": [], "cases": [{"result": result([one])} for one in document]}))
"""
CONVERTER = """
import sys
from pathlib import Path
option = lambda name: sys.argv[sys.argv.index(name) + 1]
assert (Path(sys.argv[1]) / "config.json").is_file()
Path(option("--outfile")).write_text(option("--outtype"))
"""


TWO_DEPTHS = ("--depths", "1024,256")


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="triforce_compare_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.mood()
        for path, text in (("path/cmake", CMAKE), ("path/ninja", COMMON), ("path/cc", COMMON), ("path/c++", COMMON),
                           ("programs/llama-bench", BENCH), ("programs/llama-speculative", SPECULATIVE),
                           ("programs/llama-lookup", SPECULATIVE), ("programs/llama-speculative-simple", SPECULATIVE),
                           ("programs/llama-batched-bench", BATCHED), ("programs/llama-quantize", QUANTIZE),
                           ("programs/llama-tokenize", TOKENIZE), ("build/triforce-bench", TRIFORCE),
                           ("build/triforce-synthesize", SYNTHESIZE)):
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(text)
            (self.folder / path).chmod(0o755)
        for name in ("bash", "dirname", "python3"):  # what the script itself calls
            (self.folder / "path" / name).symlink_to(shutil.which(name) if name != "python3" else sys.executable)
        self.archive = self.folder / "llama.tar.gz"
        self.pack(self.archive, {"CMakeLists.txt": "set(LLAMA_VERSION_MAJOR 1)\nset(LLAMA_VERSION_MINOR 2)\n"
                                                   "set(LLAMA_VERSION_PATCH 3)\n", "convert_hf_to_gguf.py": CONVERTER})

    def pack(self, path, files, folder="llama_cpp_python-9.9.9/vendor/llama.cpp"):
        with tarfile.open(path, "w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(f"{folder}/{name}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))

    def mood(self, **mood):
        (self.folder / "mood.json").write_text(json.dumps(mood))

    def command(self, *options, archive=True):
        if archive:
            sha256 = hashlib.sha256(self.archive.read_bytes()).hexdigest()
            options = ("--archive", self.archive, "--sha256", sha256, *options)
        return [str(word) for word in (SCRIPT, "--cache", self.folder / "cache", "--build", self.folder / "build",
                                       "--python", sys.executable, "--depths", 256, "--gen-len", 16,
                                       *options)]

    def environment(self):
        names = ("CC", "CXX", "CFLAGS", "CXXFLAGS")
        kept = {k: v for k, v in os.environ.items() if k not in names and not k.lower().endswith("_proxy")}
        return {**kept, "PATH": str(self.folder / "path"), "FAKES": str(self.folder),
                "https_proxy": "http://127.0.0.1:1", "HOME": str(self.folder)}

    def compare(self, *options, code=0, **how):
        done = subprocess.run(self.command(*options, **how), env=self.environment(), text=True, timeout=120, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, code, f"{options}\n{done.stdout}\n{done.stderr}")
        if code:
            self.one_line(done.stderr)
            self.assertEqual(done.stdout, "")
        return done

    def one_line(self, stderr):
        """The error is the last line and the only one."""
        lines = stderr.splitlines()
        self.assertTrue(lines[-1].startswith("compare_llama_cpp.sh: error: "), stderr)
        self.assertFalse([line for line in lines[:-1] if "error" in line or "Traceback" in line], stderr)

    def calls(self, name):
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split(" ")[0] == name]

    def table(self, text):
        """{(depth, figure): [llama.cpp, triforce-bench, ratio]}."""
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
        self.assertEqual([len(row) for row in rows], [5] * len(rows))
        return {(row[0], row[1].split(" (")[0]): row[2:] for row in rows[2:]}

    def test_the_table(self):
        done = self.compare(*TWO_DEPTHS)
        table = self.table(done.stdout)
        self.assertEqual(list(table), [(depth, figure) for depth in ("256", "1,024")
                                       for figure in ("prefill", "decode", "speculative decode", "prompt lookup",
                                                      "decode, 1 sequence", "decode, 4 sequences",
                                                      "decode, 8 sequences")])
        # 2e5 / 256 * 3 (f16) * 2 (bf16) * 1.1 (flash) times 1, 0.9, 1.3; ours 1000 / (256 / 1000).
        self.assertEqual(table["256", "decode"],
                         ["5,156 (4,641 to 6,703), flash attention on", "3,906 (3,906 to 3,906)", "0.76 (0.58 to 0.84)"])
        # Decoding, the bf16 cache works without flash attention, too.
        self.assertEqual(table["1,024", "decode"][0], "1,289 (1,160 to 1,676), flash attention off")
        # A prefill may not, so that the cache has flash attention alone.
        self.assertEqual(table["1,024", "prefill"],
                         ["1,172 (1,055 to 1,523), flash attention on", "4,000 (4,000 to 4,000)", "3.41 (2.63 to 3.79)"])
        self.assertEqual(table["1,024", "speculative decode"],
                         ["70 (70 to 70), flash attention off; 25% accepted", "2,930 (2,930 to 2,930); 88% accepted",
                          "41.85 (41.85 to 41.85)"])
        self.assertEqual(table["256", "prompt lookup"],
                         ["101 (101 to 101), flash attention off; 25% accepted", "7,812 (7,812 to 7,812); 88% accepted",
                          "77.35 (77.35 to 77.35)"])
        self.assertEqual(table["1,024", "decode, 8 sequences"],
                         ["400 (400 to 400), flash attention off", "7,812 (7,812 to 7,812)", "19.53 (19.53 to 19.53)"])
        for words in ("triforce-bench 0.1.0 (012345678), GNU, avx2, bf16", "llama-cpp-python 9.9.9 (llama.cpp 1.2.3)",
                      "decode: weights f16, KV cache bf16", "median of 3 rounds", "3 threads",
                      "speculative decode of llama.cpp: `llama-speculative --spec-draft-n-max 4`",
                      "drafts of triforce-bench, the fastest of 2, 4, 8 tokens: triforce 8; lookup 8",
                      "`llama-speculative-simple --spec-type ngram-simple --spec-ngram-simple-size-n 4 "
                      "--spec-ngram-simple-size-m 4`, the fastest of 9 that were tried", "(KV caches f16, bf16)"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("not a quiet machine", done.stdout)
        self.assertIn("llama-bench -m target-f16.gguf -p 0 -n 16 -d 1024 -fa 0,1 -ctk bf16 -ctv bf16 -t 3 -r 2 -o json",
                      done.stdout.replace("-fa 1,0", "-fa 0,1"))

    def test_the_programs_take_turns(self):
        self.compare("--rounds", 2, "--threads", 1, *TWO_DEPTHS)
        order = [line.split(" ")[0] for line in (self.folder / "calls").read_text().splitlines()]
        turn = ["llama-bench", "llama-bench", "llama-speculative", "llama-speculative-simple", "llama-batched-bench",
                "llama-batched-bench", *["triforce-bench"] * 4]
        order = [name for name in order if name in turn]
        self.assertEqual(order[-4 * len(turn):], turn * 4)
        for name in ("llama-bench", "llama-batched-bench"):
            self.assertEqual({line.split("-t ")[-1][:2] for line in self.calls(name)}, {"1 "})
        documents = [line.split(" --")[2] for line in self.calls("triforce-synthesize")]
        self.assertEqual(documents, ["first 0", "first 1"])

    def gguf(self, positions=8192):
        """A quantised model, and the Python that the script runs for triforce-bench's own converter."""
        (self.folder / "model-Q4_1.gguf").write_text("GGUF")
        config = json.dumps({"max_position_embeddings": positions})
        python = self.folder / "python"
        python.write_text(f"#!{sys.executable} -SE\nimport sys\nfrom pathlib import Path\n"
                          "assert sys.argv[2].endswith('convert_checkpoint.py') and 'bf16' in sys.argv\n"
                          "folder = Path(sys.argv[sys.argv.index('--out') + 1])\nfolder.mkdir()\n"
                          f"(folder / 'config.json').write_text({config!r})\n")
        python.chmod(0o755)
        return "--gguf", self.folder / "model-Q4_1.gguf", "--python", python

    def test_a_quantised_model(self):
        out = self.compare("--rounds", 1, *self.gguf()).stdout
        table = self.table(out)
        own = "decode: Q4_1, and bf16 with drafts in "
        self.assertEqual(list(table)[:6], [("256", name) for name in (
            "prefill", "decode", f"{own}bf16", f"{own}int4", "speculative decode", "prompt lookup")])
        # As it is it has five times the rate of bf16.
        self.assertEqual(table["256", f"{own}bf16"],
                         ["8,594 (8,594 to 8,594), flash attention on", "9,766 (9,766 to 9,766); 88% accepted",
                          "1.14 (1.14 to 1.14)"])
        self.assertEqual(table["256", f"{own}int4"][1:], ["15,625 (15,625 to 15,625); 88% accepted",
                                                          "1.82 (1.82 to 1.82)"])
        self.assertIn("prefill: weights Q4_1, KV cache bf16; decode: weights f16, KV cache bf16", out)
        self.assertIn("model: model-Q4_1.gguf; llama.cpp reads it, triforce-bench reads its weights as bf16", out)
        self.assertIn("llama-speculative -m target-f16.gguf -md model-Q4_1.gguf --spec-draft-n-max 4 -f", out)
        (document,) = self.calls("triforce-synthesize")
        self.assertIn("--seed 42 --first 0", document)

    def test_positions_of_a_model(self):
        words = "expected numbers from 64 to 432, which with --gen-len are the model's 512 positions, found 256,1024"
        self.assertIn(words, self.compare(*self.gguf(512), *TWO_DEPTHS, code=2).stderr)

    def test_a_text(self):
        (self.folder / "book").write_text("a word " * 2000)
        self.compare("--rounds", 1, "--text", self.folder / "book")
        self.assertEqual(self.calls("triforce-synthesize"), [])
        (self.folder / "book").write_text("a word " * 20)
        self.assertIn(f"--text: {self.folder}/book: expected at least 256 tokens, found 46",
                      self.compare("--text", self.folder / "book", code=3).stderr)

    def test_levels(self):
        self.compare("--rounds", 1, "--cpu-isa", "avx512")
        (configured,) = [line for line in self.calls("cmake") if "--build" not in line]
        for words in "GGML_NATIVE=OFF", "GGML_AVX2=ON", "GGML_AVX512=ON", "GGML_AVX512_BF16=OFF", "GGML_AMX_TILE=OFF":
            self.assertIn(f" -D{words} ", f"{configured} ")
        before = len(self.calls("cmake"))
        self.assertIn("this processor has avx2", self.compare("--cpu-isa", "amx", code=1).stderr)
        self.assertEqual(len(self.calls("cmake")), before)
        runs = [line for line in self.calls("triforce-bench") if " run " in line and "--cpu-isa amx" not in line]
        self.assertGreater(len(runs), 5)
        self.assertTrue(all("--cpu-isa avx512" in line for line in runs))

    def test_what_was_built_is_used_again(self):
        self.compare("--rounds", 1)
        before = len(self.calls("cmake"))
        self.assertEqual(before, 2)
        self.assertIn("-DGGML_NATIVE=ON", self.calls("cmake")[0])
        self.archive = self.archive.rename(self.folder / "moved")
        self.compare("--rounds", 1)
        self.assertEqual(len(self.calls("cmake")), before)

    def test_an_interrupted_build_is_not_taken_for_one(self):
        for signum, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            self.mood(slow=True)
            (self.folder / "compiling").unlink(missing_ok=True)
            child = subprocess.Popen(self.command("--rounds", 1), env=self.environment(), text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            end = time.monotonic() + 60
            while not (self.folder / "compiling").exists() and time.monotonic() < end:
                time.sleep(0.02)
            child.send_signal(signum)
            out, err = child.communicate(timeout=60)
            self.assertEqual((child.returncode, out), (code, ""), err)
            self.one_line(err)
            self.assertIn("interrupted", err)
        before = len(self.calls("cmake"))
        self.mood()
        self.compare("--rounds", 1)
        self.assertEqual(len(self.calls("cmake")), before + 2)

    def test_a_build_that_fails(self):
        self.mood(broken=True)
        line = self.compare(code=1).stderr.splitlines()[-1]
        self.assertIn("building llama.cpp", line)
        self.assertIn("exit status 2: ggml.c:7: error: no such thing", line)
        self.mood()
        self.compare("--rounds", 1)

    def test_archives(self):
        line = self.compare("--archive", self.archive, archive=False, code=3).stderr
        self.assertIn(f"found {hashlib.sha256(self.archive.read_bytes()).hexdigest()}", line)
        self.assertRegex(line, "expected SHA-256 [0-9a-f]{64}")
        self.assertEqual(self.calls("cmake"), [])
        self.archive.write_bytes(self.archive.read_bytes()[:-100])
        self.compare(code=3)
        self.archive.write_text("no archive")
        self.compare(code=3)
        self.pack(self.archive, {"CMakeLists.txt": ""}, "another-1.0")
        self.assertIn("vendor/llama.cpp", self.compare(code=3).stderr)
        self.pack(self.archive, {"../../CMakeLists.txt": "outside"})
        self.compare(code=3)
        self.assertEqual(list(self.folder.rglob("CMakeLists.txt")), [])

    def test_what_is_missing(self):
        for names, words in (("cmake",), "cmake"), (("ninja",), "a build tool"), (("cc",), "a C compiler"), \
                (("c++",), "a C++ compiler"):
            for name in names:
                (self.folder / "path" / name).rename(self.folder / name)
            self.assertIn(f"expected {words} (", self.compare(code=4).stderr)
            for name in names:
                (self.folder / name).rename(self.folder / "path" / name)
        self.assertIn("--archive names a copy", self.compare(archive=False, code=4).stderr)
        (self.folder / "path" / "python3").unlink()
        self.assertIn("python3 was not found", self.compare(code=4).stderr)

    def test_programs_that_say_something_else(self):
        for mood, words in (({"rows": []}, "no rate"), ({"rows": [{"model_filename": "x"}]}, "flash_attn"),
                            ({"rows": "text"}, "expected JSON"), ({"status": "timeout"}, "for a reason")):
            self.mood(**mood)
            self.assertIn(words, self.compare("--rounds", 1, code=1).stderr)

    def test_a_pair_that_is_refused(self):
        self.mood(refuses=True, other=1e9)
        out = self.compare("--rounds", 1).stdout
        self.assertEqual(self.table(out)["256", "speculative decode"][0::2], ["not measured", ""])
        self.assertIn("speculative decode of llama.cpp: none works with this model", out)
        self.assertIn("vocab must match target model", out)
        self.assertIn("not a quiet machine", out)
        self.mood(tokens=5)
        self.assertIn("found 5", self.compare("--rounds", 1).stdout)

    def test_batches_that_lost_their_end(self):
        self.mood(short=4)
        self.assertIn("| 256 | decode, 8 sequences (`ar`) | 400", self.compare("--rounds", 1).stdout)
        self.mood(short=5)
        out = self.compare("--rounds", 1).stdout
        self.assertIn("not measured: batch 8 after 256 tokens in round 1: llama-batched-bench: expected rates of 1, 4, 8 "
                      "sequences, found those of 1", out)
        self.assertEqual(self.table(out)["256", "decode, 8 sequences"][0], "not measured")

    def test_a_log_that_lost_its_end(self):
        self.mood(mute=2)
        out = self.compare("--rounds", 1).stdout
        self.assertIn("25% accepted", self.table(out)["256", "speculative decode"][0])
        # Muted in the first round of 256 tokens alone: the others count.
        (self.folder / "calls").unlink()
        self.mood(mute_in="document-0-256")
        out = self.compare("--rounds", 2, *TWO_DEPTHS).stdout
        self.assertIn("not measured: speculative decode after 256 tokens in round 1", out)
        self.assertIn("70 (70 to 70)", self.table(out)["256", "speculative decode"][0])
        self.mood(mute=3)
        out = self.compare("--rounds", 1).stdout
        self.assertIn("found no such lines", out)
        self.assertEqual(self.table(out)["256", "speculative decode"][0], "not measured")

    def test_two_at_once(self):
        self.compare("--rounds", 1)
        (lock,) = self.folder.glob("cache/*/lock")
        holder = f"import fcntl; f = open({str(lock)!r}); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            self.assertIn("another run", self.compare(code=4).stderr)
            other.communicate(b"\n")

    def test_usage(self):
        for options, words in ((("--rounds", 0), "--rounds"), (("--depths", "5"), "--depths"), (("--depths", "x"), "found x"),
                               (("--depths", "16384"), "16304"), (("--threads", 0), "--threads"),
                               (("--gen-len", "-1"), "--gen-len"), (("--sha256", "12"), "--sha256"),
                               (("--archive", "/absent"), "/absent"), (("--python", "/absent"), "--python"),
                               (("--build", "/absent"), "--build"), (("--speed", "3"), "--speed"),
                               (("--gguf", "/absent"), "--gguf"), (("--text", "/absent"), "--text"),
                               (("--cpu-isa", "sse"), "--cpu-isa")):
            self.assertIn(words, self.compare(*options, code=2).stderr)
        self.assertEqual(self.calls("cmake"), [])
        self.assertIn("exit codes", self.compare("--help").stdout)


if __name__ == "__main__":
    unittest.main()
