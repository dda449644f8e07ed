"""What scripts/gpu_suite.sh runs: steps over the built programs, one JSON file, one table."""
import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import gpu_goals

SCHEMA = "triforce-bench.gpu-suite/2"

# Kernel shapes of the goals: rows of one verification.
ROWS = (1, 7, 16)
FAR_ROWS = (1, 7, 17)
LINEAR_7B = ("qkv", "out", "gate_up", "down", "head")
# Prefills to try, longest first.
PREFILLS = (gpu_goals.PAPER_PREFILL, 65536, 32768, 16384, 8192)
PAPER_RATES = gpu_goals.as_option(gpu_goals.PAPER_RATES)
OPTIMISTIC_RATES = gpu_goals.as_option(gpu_goals.OPTIMISTIC_RATES)
# Who computes attention with KV heads in host memory: values of --offload-attention.
OFFLOAD = ("stream", "host", "hybrid")
# The benchmarks of one process; a process that fails or hangs costs its own rows.
MICRO = {"linear": "^linear/", "attention": "^attention", "prefill": "^prefill_",
         "far": "^far/7b", "passes": "^(pass|step)/",
         "rest": "-^(linear/|attention|prefill_|pass/|step/|far/)"}
SANITIZER = (("memcheck", "Types/AttentionTest.*/0"), ("racecheck", "Types/AttentionTest.*/0"),
             ("memcheck", "Types/FusedStepsTest.*/0"), ("racecheck", "Types/FusedStepsTest.*/0"),
             ("memcheck", "Types/RowsTest.*:Types/GemmTest.*:Backends/KvHomesTest.*f16"),
             ("synccheck", "Types/FusedStepsTest.*/0"))

TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 40,
    "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 64,
    "num_key_value_heads": 1, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "rope_scaling": None, "vocab_size": 97, "bos_token_id": 1,
    "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "float16",
    "hidden_act": "silu", "attention_bias": False,
}


class Suite:
    # (step, seconds it is expected to take on an H200): what matters most comes first.
    STEPS = (("device", 1), ("micro", 20), ("long_context", 110), ("tests", 20), ("selftest", 30),
             ("pair", 10), ("offload", 40), ("sanitizer", 60))

    def __init__(self, options):
        self.o = options
        self.build = Path(options.build).resolve()
        self.program = self.build / "triforce-bench"
        if not self.program.is_file():
            stop(2, f"--build: expected a folder with triforce-bench, found none in {self.build}")
        names = [name for name, _ in self.STEPS]
        self.chosen = options.only.split(",") if options.only else names
        for name in self.chosen:
            if name not in names:
                stop(2, f"--only: expected some of {','.join(names)}, found {name}")
        out = Path(options.out)
        if out.is_dir():
            out /= "gpu_suite.json"
        elif not out.absolute().parent.is_dir():
            stop(2, f"--out: expected a file in a folder that exists, found {out}")
        self.out = out.absolute()
        self.scratch = Path(tempfile.mkdtemp(prefix="triforce_gpu_"))
        self.begin = time.monotonic()
        self.environment, library = library_of_wheels()
        self.result = {"schema": SCHEMA, "argv": sys.argv, "small": options.small,
                       "cublas_lt_of_wheel": library,
                       "start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "steps": {}}

    # ---- running

    def left(self):
        """Seconds until --time-limit, infinite without one."""
        if not self.o.time_limit:
            return float("inf")
        return self.o.time_limit - (time.monotonic() - self.begin)

    def run(self, command, limit_s):
        """(step, stdout, stderr): the step's status is ok, failed, timeout or skipped."""
        begin = time.monotonic()
        step = {"command": [str(c) for c in command], "exit_code": None}
        # What the emulated device takes depends on who else computes on this machine.
        limit_s = min(limit_s * (5 if self.o.small else 1), self.left())
        out = err = b""
        if limit_s < 1:
            return {**step, "status": "skipped", "reason": "no time left"}, "", ""
        try:
            done = subprocess.run(step["command"], stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=limit_s, cwd=self.scratch, env=self.environment)
            step["status"] = "ok" if done.returncode == 0 else "failed"
            out, err, step["exit_code"] = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as e:
            out, err, step["status"] = e.stdout or b"", e.stderr or b"", "timeout"
            step["reason"] = f"longer than {limit_s:.0f} s"
        except OSError as e:
            step["status"], step["reason"] = "failed", str(e)
        step["seconds"] = round(time.monotonic() - begin, 1)
        if step["status"] != "ok":
            step["stderr"] = err.decode(errors="replace")[-2000:]
        return step, out.decode(errors="replace"), err.decode(errors="replace")

    def step(self, name):
        print(f"[{time.monotonic() - self.begin:5.0f} s] {name}", file=sys.stderr, flush=True)
        try:
            self.result["steps"][name] = getattr(self, name)()
        except Exception as e:  # the steps after it are worth having
            self.result["steps"][name] = {"status": "failed", "reason": f"{type(e).__name__}: {e}"}
        self.save()

    def bench(self, name, options, limit_s):
        """A run of triforce-bench; its result is part of the step's."""
        path = self.scratch / f"{name}.json"
        step, out, _ = self.run(
            [self.program, "run", "--device", self.o.device, "--progress", "none", "--json", path,
             *options], limit_s)
        step["result"] = json.loads(path.read_text()) if path.exists() else None
        step["table"] = out
        return step

    def save(self):
        self.result["seconds"] = round(time.monotonic() - self.begin, 1)
        partial = self.out.with_name(self.out.name + ".part")
        partial.write_text(json.dumps(self.result, indent=1) + "\n")
        os.replace(partial, self.out)

    # ---- steps

    def device(self):
        step, out, _ = self.run([self.program, "list-devices", "-o", "json"], 60)
        step["result"] = json.loads(out) if step["status"] == "ok" else None
        smi = shutil.which("nvidia-smi")
        if smi:
            step["nvidia_smi"] = self.run([smi], 60)[1]
        return step

    def micro(self):
        """One process for each group of benchmarks; what it wrote counts however it ended."""
        steps = {}
        toy = {"attention": "^attention/68m_streaming/2", "linear": "^linear/68m_(qkv/1|out/7)/",
               "far": "^far/68m_.*/7/", "passes": "^(pass/builtin_streaming/2|step/builtin)"}
        for group, chosen in (toy if self.o.small else MICRO).items():
            path = self.scratch / f"micro_{group}.json"
            command = [self.build / "bin" / "triforce-cuda-bench",
                       f"--device={self.o.device.partition(':')[2] or 0}",
                       f"--benchmark_out={path}", "--benchmark_out_format=json",
                       f"--benchmark_filter={chosen}",
                       f"--benchmark_min_time={0.001 if self.o.small else 0.05}"]
            step, _, _ = self.run(command + ["--context=200"] * self.o.small, 90)
            step["result"] = partial_json(path.read_text()) if path.exists() else None
            lost = [row["name"] for row in (step["result"] or {}).get("benchmarks", [])
                    if row.get("error_occurred")]
            if lost and step["status"] == "ok":
                step["status"], step["failed"] = "failed", lost
            steps[group] = step
        return steps

    def tests(self):
        """Every suite of cuda_tests in a process of its own: a broken device state ends with it."""
        program = self.build / "bin" / "cuda_tests"
        listed, out, _ = self.run([program, "--gtest_list_tests"], 60)
        if listed["status"] != "ok":
            return listed
        suites = [line.split()[0] for line in out.splitlines()
                  if line and not line.startswith((" ", "Running"))]
        if self.o.small:  # the long ones are the emulated build's own tests
            suites = [s for s in suites if s.split("/")[-1].startswith(("GraphCache", "FreeList"))]
        runs = []
        for suite in suites:
            step, out, err = self.run([program, f"--gtest_filter={suite}*", "--gtest_brief=1"], 120)
            step["name"] = suite.rstrip(".")
            if step["status"] == "ok" and "skipped without a CUDA device" in out + err:
                step["status"] = "failed"
            if step["status"] != "ok":
                step["output"] = (out + err)[-4000:]
            runs.append(step)
        if not runs:
            return {"status": "failed", "reason": f"{program} lists no tests"}
        return {"status": worst(runs), "seconds": round(sum(r.get("seconds", 0) for r in runs), 1),
                "failed": [r["name"] for r in runs if r["status"] != "ok"], "runs": runs}

    def sanitizer(self):
        program = self.build / "bin" / "cuda_tests"
        for chosen in dict.fromkeys(chosen for _, chosen in SANITIZER):
            _, listed, _ = self.run([program, "--gtest_list_tests", f"--gtest_filter={chosen}"], 60)
            if not any(line.startswith("  ") for line in listed.splitlines()):
                return {"status": "failed", "reason": f"{program} has no tests {chosen}"}
        if self.o.small:
            return {"status": "skipped", "reason": "toy sizes"}
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not Path(tool).exists():
            return {"status": "skipped", "reason": "compute-sanitizer was not found"}
        runs = []
        for check, chosen in SANITIZER:
            step, out, err = self.run(
                [tool, "--tool", check, "--error-exitcode", "9", program,
                 f"--gtest_filter={chosen}", "--gtest_brief=1"], 40)
            if step["status"] == "failed":
                step["output"] = (out + err)[-4000:]
            runs.append(step)
        # A sanitizer that is too slow on a device says nothing about the program.
        return {"status": worst([r for r in runs if r["status"] != "timeout"] or runs),
                "runs": runs}

    def selftest(self):
        step, out, err = self.run(
            [self.program, "selftest", "--device", self.o.device, "--chi-square-runs",
             0 if self.o.small else 10000], 120)
        lines = out.splitlines()
        step["summary"] = lines[-1] if lines else err[-2000:]
        step["failed"] = [line for line in lines if line.startswith("FAILED")]
        return step

    def pair(self):
        toy = ["--prefill", 200, "--budget", 64, "--draft-cache-budget", 64, "--gen-len", 5,
               "--gamma", 2, "--repetitions", 1, "--warmup", 0] if self.o.small else []
        methods = "ar,triforce" if self.o.small else "ar,triforce,retrieval,streaming,draft"
        return {name: self.bench(f"pair_{name}", [*toy, "--method", methods, *rule], 90)
                for name, rule in (("coupled", ["--acceptance", "coupled"]),
                                   ("greedy", ["--temp", "0"]))}

    def random_models(self):
        """Options of autoregressive decoding and TriForce with random weights."""
        common = ["--method", "ar,triforce", "--ignore-eos"]
        if not self.o.small:
            return common + ["--random-weights", "llama-7B-128K", "--random-draft", "llama-68M",
                             "--budget", 4096]
        config = self.scratch / "config.json"
        config.write_text(json.dumps(TINY_CONFIG))
        ids = self.scratch / "prompt.ids"
        ids.write_text(" ".join(str(3 + (i * i) % 90) for i in range(600)) + "\n")
        return common + ["--random-weights", config, "--random-draft", config, "--dataset", ids,
                         "--budget", 64, "--draft-cache-budget", 48]

    def offload(self):
        """The KV cache of a 24 GB card: what does not fit is brought over the bus, computed with by
        the host, or both, shared by the rates that the run measures."""
        common = self.random_models() + ["--synthetic-acceptance", PAPER_RATES, "--warmup", 0,
                                         "--repetitions", 1]
        common += (["--prefill", 128, "--gen-len", 8, "--gamma", 2, "--on-chip", 1] if self.o.small
                   else ["--prefill", 32768, "--gen-len", 16, "--gamma", 12, "--kv-offload",
                         "--memory-limit", "22G"])
        return {where: self.bench(where, [*common, "--offload-attention", where], 200)
                for where in OFFLOAD}

    def long_context(self):
        """Autoregressive decoding against TriForce: the paper's setting, the same with tuned gammas,
        and the paper's gammas at optimistic rates."""
        common = self.random_models()
        if self.o.small:
            common += ["--gen-len", 12, "--repetitions", 1, "--warmup", 0]
            prefills = (128,)
        else:
            common += ["--gen-len", 128, "--repetitions", 3, "--warmup", 1]
            prefills = PREFILLS
        published = ["--gamma", gpu_goals.PAPER_GAMMAS[0],
                     "--inner-gamma", gpu_goals.PAPER_GAMMAS[1]]
        steps = {}
        for prefill in prefills:
            steps["paper"] = self.bench("paper", [*common, "--synthetic-acceptance", PAPER_RATES,
                                                  "--prefill", prefill, *published], 200)
            if steps["paper"]["exit_code"] != 4:  # 4: it does not fit
                break
        if steps["paper"]["status"] == "ok":
            steps["tuned"] = self.bench(
                "tuned", [*common, "--synthetic-acceptance", PAPER_RATES, "--prefill", prefill,
                          "--gamma", "auto", "--inner-gamma", "auto"], 150)
            steps["optimistic"] = self.bench(
                "optimistic", [*common, "--synthetic-acceptance", OPTIMISTIC_RATES, "--prefill",
                               prefill, *published], 150)
        return steps

    # ---- goals

    def benchmarks(self):
        """{name: row} of everything that was timed; the context of the last process."""
        rows, context = {}, {}
        for group in parts_of(self.result["steps"].get("micro")).values():
            result = group.get("result") or {}
            context = result.get("context") or context
            for row in result.get("benchmarks", []):
                name = row["name"].replace("/manual_time", "").partition("/iterations")[0]
                rows[name] = row
        return rows, context

    def goals(self):
        """[{name, value, at_least, at_most, met}]; value null: not measured; no bound: to know."""
        steps = self.result["steps"]
        goals = []
        rows, context = self.benchmarks()
        device = context.get("device", "")
        at_full_length = f"--prefill {gpu_goals.PAPER_PREFILL}" in " ".join(
            parts_of(steps.get("long_context")).get("paper", {}).get("command", []))

        def known(name, value, least=None, most=None):
            met = None
            if value is not None and (least is not None or most is not None):
                met = value >= least if least is not None else value <= most
            goals.append({"name": name, "value": value, "at_least": least, "at_most": most,
                          "met": met})

        def goal(g, value, *words, holds=True):
            """holds: whether this is the setting that a card's goal is of."""
            known(g.name.format(*words), value, g.at_least, g.most_on(device if holds else ""))

        self.kernel_goals(goal, rows)
        for name in ("coupled", "greedy"):
            for case in cases(parts_of(steps.get("pair")).get(name)):
                if case["method"] != "ar":
                    known(f"built-in pair, {name}, {case['method']}: equal to ar",
                          case["lossless"]["equal_to_baseline"] is True, least=True)
        found = {name: {c["method"]: c for c in cases(step)}
                 for name, step in parts_of(steps.get("long_context")).items()}
        self.long_context_goals(goal, known, found, context, at_full_length)
        self.offload_goals(goal, known, rows)
        ar = found.get("paper", {}).get("ar")
        goal(gpu_goals.PREFILL, ar["timing"]["prefill_ms"] / 1e3
             if ar and ar["timing"]["prefill_ms"] else None, holds=at_full_length)
        return goals

    @staticmethod
    def kernel_goals(goal, rows):
        def share(name):
            return rows.get(name, {}).get("of_copy")

        def time_us(name, scale=1):
            us = rows.get(name, {}).get("best_us")
            return None if us is None else us / scale

        for n in ROWS:
            goal(gpu_goals.ATTENTION, share(f"attention/7b_full/{n}"), n)
            linear = [share(f"linear/7b_{layer}/{n}") for layer in LINEAR_7B]
            goal(gpu_goals.LINEAR, min(linear) if None not in linear else None, n)
        goal(gpu_goals.RETRIEVAL, time_us("pass/7b_retrieval/2", 1e3))
        goal(gpu_goals.DRAFTER, time_us("step/68m_streaming/1"))

    @staticmethod
    def long_context_goals(goal, known, found, context, at_full_length):
        paper = found.get("paper", {})
        ar, triforce = paper.get("ar"), paper.get("triforce")
        floor = ratio = None
        if ar and context.get("copy_GB/s"):
            read = ar["traffic"][-1]["bytes_per_pass"]
            floor = read / float(context["copy_GB/s"]) / 1e6
        goal(gpu_goals.STEP,
             ar["timing"]["ms_per_token"]["geometric_mean"] / floor if floor else None)
        step = triforce["steps"][-1] if triforce else {}
        if step.get("ms") and step["one_row_ms"]:
            ratio = step["ms"] / step["one_row_ms"]
        goal(gpu_goals.VERIFICATION, ratio)
        for name, said in (("paper", "paper's rates, gammas 6 and 1"),
                           ("tuned", "paper's rates, tuned gammas"),
                           ("optimistic", f"optimistic ({OPTIMISTIC_RATES})")):
            case = found.get(name, {}).get("triforce")
            ms = case["timing"]["ms_per_token"]["geometric_mean"] if case else None
            if name == "paper":
                goal(gpu_goals.TRIFORCE, ms, holds=at_full_length)
            else:
                known(f"TriForce, {said}, ms/token", ms)
            speedup = case.get("speedup") if case else None
            known(f"TriForce, {said}, speedup", speedup["value"] if speedup else None)

    def offload_goals(self, goal, known, rows):
        steps = self.result["steps"]
        offload = {name: {c["method"]: c for c in cases(step)}
                   for name, step in parts_of(steps.get("offload")).items()}

        def far(way, n):
            return rows.get(f"far/7b_{way}/{n}", {}).get("of_h2d")

        for n in FAR_ROWS:
            goal(gpu_goals.FAR_ROWS, far("streamed", n), n)
            known(f"far KV rows mapped, {n} queries, of host-to-device bandwidth", far("mapped", n))
        for name in OFFLOAD:
            case = offload.get(name, {}).get("ar")
            traffic = case["traffic"][0] if case and case["traffic"] else {}
            if name == "stream":
                goal(gpu_goals.OFFLOAD, traffic.get("fraction_h2d"))
            known(f"KV offload, {name}: autoregressive step, ms", traffic.get("ms_per_pass"))
            case = offload.get(name, {}).get("triforce")
            known(f"KV offload, {name}: TriForce, ms/token",
                  case["timing"]["ms_per_token"]["geometric_mean"] if case else None)
        hybrid = parts_of(steps.get("offload")).get("hybrid") or {}
        split = ((hybrid.get("result") or {}).get("context") or {}).get("hybrid_split") or {}
        known("KV offload, hybrid: bus while the host computes, GB/s", split.get("bus_gbs"))
        known("KV offload, hybrid: host while the bus brings, GB/s", split.get("host_gbs"))
        known("KV offload, hybrid: KV heads of a layer that the host has", split.get("kv_heads"))
        goal(gpu_goals.HYBRID, of_hybrid_bound(split, offload.get("hybrid", {}).get("triforce")))

    def main(self):
        expected = sum(s for name, s in self.STEPS if name in self.chosen)
        self.result["expected_seconds_h200"] = expected
        print(f"expected on an H200: {expected} s, of these " + ", ".join(
            f"{name} {s}" for name, s in self.STEPS if name in self.chosen), file=sys.stderr)
        self.step("device")
        self.check_device()
        for name, _ in self.STEPS[1:]:
            if name in self.chosen:
                self.step(name)
        self.result["goals"] = self.goals()
        self.save()
        shutil.rmtree(self.scratch, ignore_errors=True)
        text = io.StringIO()
        with redirect_stdout(text):
            status = self.report()
        self.out.with_suffix(".txt").write_text(text.getvalue())
        print(text.getvalue(), end="")
        return status

    def check_device(self):
        """Ends the suite if the device it is about is not there."""
        step = self.result["steps"]["device"]
        if step["status"] != "ok":
            stop(1, f"{self.program} does not run here (exit status {step['exit_code']}): "
                    f"{step.get('reason', '')}{step.get('stderr', '')}".rstrip())
        if not step["result"]["cuda"]:
            stop(2, f"--build: expected a build with CUDA, found one without in {self.build}")
        wanted = self.o.device if ":" in self.o.device else f"{self.o.device}:0"
        found = {d["device"]: d for d in step["result"]["devices"]}
        if wanted not in found:
            lines = self.run([self.program, "list-devices"], 60)[1].splitlines()
            why = "".join(f" ({line.split('none: ')[1]})" for line in lines if "none: " in line)
            stop(77, f"no usable device: expected {wanted}, found {', '.join(found)}{why}")
        if not found[wanted].get("usable", True):
            stop(77, f"no usable device: {wanted}: {found[wanted].get('problem')}")

    def report(self):
        failed = []
        rows, _ = self.benchmarks()
        if rows:
            print(f"{'benchmark':<34} {'us':>11}  {'achieved':>16}  of bound")
        for name, row in rows.items():
            if row.get("error_occurred"):
                print(f"{name:<34} failed: {row.get('error_message')}")
                continue
            rate = share = ""
            for unit in ("GB/s", "TFLOP/s"):
                if unit in row:
                    rate = f"{row[unit]:.1f} {unit}"
            for bound, of in (("of_copy", "copy"), ("of_h2d", "bus"), ("of_gemm", "GEMM")):
                if bound in row:
                    share = f"{row[bound]:.3f} of {of}"
            print(f"{name:<34} {row['best_us']:>11.2f}  {rate:>16}  {share}")
        print()
        for name, step in self.result["steps"].items():
            for part, s in parts_of(step).items():
                label = name if part == "" else f"{name}, {part}"
                why = s.get("reason") or ", ".join(s.get("failed") or []) or (
                    s.get("stderr", "").strip().splitlines() or [""])[-1]
                print(f"{label:<26} {s['status']:<8} {s.get('seconds', ''):>6} {why}".rstrip())
                if s["status"] in ("failed", "timeout"):
                    failed.append(label)
        print()
        for g in self.result["goals"]:
            value = "-" if g["value"] is None else (
                str(g["value"]) if isinstance(g["value"], bool) else f"{g['value']:.3f}")
            bound = ("" if g["at_least"] is None else f">= {g['at_least']}") or (
                "" if g["at_most"] is None else f"<= {g['at_most']}")
            met = "not measured" if g["value"] is None else (
                {None: "", True: "met", False: "MISSED"}[g["met"]])
            print(f"{g['name']:<62} {value:>8}  {bound:<8} {met}".rstrip())
            if g["at_least"] is True and g["met"] is False:  # not a matter of speed
                failed.append(g["name"])
        print(f"\n{self.out}: {self.result['seconds']} s")
        if failed:
            print(f"failed: {'; '.join(failed)}")
        return 1 if failed else 0


def stop(code, reason):
    print(f"gpu_suite: error: {reason}", file=sys.stderr)
    sys.exit(code)


def worst(runs):
    statuses = [r["status"] for r in runs]
    return next((s for s in ("failed", "timeout", "skipped") if s in statuses), "ok")


def parts_of(step):
    """{part: what it found} of a step; one that is not split has the part ""."""
    if not step:
        return {}
    return {"": step} if "status" in step else step


def cases(step):
    result = (step or {}).get("result")
    return [c for c in result["cases"] if c["status"] == "ok"] if result else []


def of_hybrid_bound(split, case):
    """Time of a verification over the longer of what its run's own rates say of bus and host."""
    verify = case["traffic"][-1:] if case else []
    if not split or not verify or not verify[0]["ms_per_pass"]:
        return None
    memory = case["memory"]
    bus, host = memory["bus_kv_heads"], memory["host_kv_heads"]
    gb_of_head = memory["planned"]["kv_far"] / (bus + host) / 1e9
    bound_s = gb_of_head * max(bus / split["bus_gbs"], host / split["host_gbs"])
    return verify[0]["ms_per_pass"] / 1e3 / bound_s


def partial_json(text):
    """Google Benchmark's document, or as much of it as an interrupted process has written."""
    end = len(text)
    while end > 0:
        for closing in ("", "]}"):
            try:
                return json.loads(text[:end] + closing)
            except ValueError:
                pass
        end = text.rfind("}", 0, end - 1) + 1
    return None


def library_of_wheels():
    """(environment, folder): cuBLASLt of a Python package, for a machine without the toolkit. The
    loader looks there before the system's folders; None: no such package."""
    environment = dict(os.environ)
    for path in sys.path:
        for name in ("nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.12"):
            library = Path(path or ".", name)
            if library.is_file():
                old = environment.get("LD_LIBRARY_PATH")
                environment["LD_LIBRARY_PATH"] = str(library.parent) + (f":{old}" if old else "")
                return environment, str(library)
    return environment, None


def main():
    parser = argparse.ArgumentParser(prog="gpu_suite.sh")
    parser.add_argument("--build", required=True, help="folder with the built programs")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--out", default="gpu_suite.json",
                        help="the JSON file, or a folder for it; its table lies beside it as .txt")
    parser.add_argument("--only", help="steps, with commas: "
                        + ",".join(name for name, _ in Suite.STEPS))
    parser.add_argument("--time-limit", type=float, help="seconds after which no step goes on")
    parser.add_argument("--small", action="store_true", help="toy sizes")
    sys.exit(Suite(parser.parse_args()).main())


if __name__ == "__main__":
    main()
