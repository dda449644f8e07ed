"""What scripts/gpu_suite.sh runs: steps over the built programs, one JSON file, one table."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEMA = "triforce-bench.gpu-suite/1"
ROOT = Path(__file__).resolve().parents[2]

# Kernel shapes of the goals: rows of one verification.
ROWS = (1, 7, 16)
LINEAR_7B = ("qkv", "out", "gate_up", "down", "head")
# Prefills to try, longest first; 124,928 is the paper's.
PREFILLS = (124928, 65536, 32768, 16384, 8192)

TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 40,
    "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 64,
    "num_key_value_heads": 1, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "rope_scaling": None, "vocab_size": 97, "bos_token_id": 1,
    "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "float16",
    "hidden_act": "silu", "attention_bias": False,
}


class Suite:
    def __init__(self, options):
        self.o = options
        self.build = Path(options.build).resolve()
        self.program = self.build / "triforce-bench"
        if not self.program.is_file():
            stop(2, f"--build: expected a folder with triforce-bench, found none in {self.build}")
        self.scratch = Path(tempfile.mkdtemp(prefix="triforce_gpu_"))
        self.begin = time.monotonic()
        self.result = {"schema": SCHEMA, "argv": sys.argv, "small": options.small,
                       "start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "steps": {}}

    # ---- running

    def run(self, command, limit_s):
        """(status, seconds, stdout, stderr): status is ok, failed or timeout."""
        begin = time.monotonic()
        try:
            done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=limit_s, cwd=self.scratch)
            status = "ok" if done.returncode == 0 else "failed"
            out, err, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as e:
            status, out, err, code = "timeout", e.stdout or b"", e.stderr or b"", None
        seconds = round(time.monotonic() - begin, 1)
        return {"command": [str(c) for c in command], "status": status, "exit_code": code,
                "seconds": seconds}, out.decode(errors="replace"), err.decode(errors="replace")

    def step(self, name, body):
        print(f"[{time.monotonic() - self.begin:5.0f} s] {name}", file=sys.stderr, flush=True)
        self.result["steps"][name] = body()
        self.save()

    def bench(self, name, options, limit_s):
        """A run of triforce-bench; its result is part of the step's."""
        path = self.scratch / f"{name}.json"
        step, out, err = self.run(
            [self.program, "run", "--device", self.o.device, "--progress", "none", "--json", path,
             *options], limit_s)
        step["result"] = json.loads(path.read_text()) if path.exists() else None
        step["table"] = out
        if step["status"] != "ok":
            step["stderr"] = err[-2000:]
        return step

    def save(self):
        self.result["seconds"] = round(time.monotonic() - self.begin, 1)
        path = Path(self.o.out)
        partial = path.with_name(path.name + ".part")
        partial.write_text(json.dumps(self.result, indent=1) + "\n")
        os.replace(partial, path)

    # ---- steps

    def device(self):
        step, out, _ = self.run([self.program, "list-devices", "--json"], 60)
        step["result"] = json.loads(out) if step["status"] == "ok" else None
        smi = shutil.which("nvidia-smi")
        if smi:
            step["nvidia_smi"] = self.run([smi], 60)[1]
        return step

    def tests(self):
        programs = sorted((self.build / "bin").glob("cuda_*_test"))
        programs = [p for p in programs if not p.name.startswith("cuda_emulator")]
        if self.o.small:  # the long ones are the emulated build's own tests
            programs = [p for p in programs if p.name in ("cuda_rows_test", "cuda_sample_test")]
        if not programs:
            return {"status": "failed", "reason": f"no cuda_*_test in {self.build / 'bin'}"}
        runs = []
        for p in programs:
            step, out, err = self.run([p, "--gtest_brief=1"], 120)
            if step["status"] != "ok":
                step["output"] = (out + err)[-4000:]
            runs.append(step)
        return {"status": worst(runs), "runs": runs}

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not Path(tool).exists():
            return {"status": "skipped", "reason": "compute-sanitizer was not found"}
        runs = []
        for check, test, chosen in (
                ("memcheck", "cuda_attention_test", "*MatchesTheOracle/0:*Mass*/0"),
                ("racecheck", "cuda_attention_test", "*OnlyVisibleRows*"),
                ("memcheck", "cuda_linear_test", "*"), ("racecheck", "cuda_laws_test", "*Ties*"),
                ("memcheck", "cuda_kv_test", "*/0"), ("synccheck", "cuda_sample_test", "*/0")):
            step, out, err = self.run(
                [tool, "--tool", check, "--error-exitcode", "9", self.build / "bin" / test,
                 f"--gtest_filter={chosen}", "--gtest_brief=1"], 40)
            if step["status"] == "failed":
                step["output"] = (out + err)[-4000:]
            runs.append(step)
        # A sanitizer that is too slow on a card says nothing about the program.
        return {"status": worst([r for r in runs if r["status"] != "timeout"] or runs),
                "runs": runs}

    def micro(self):
        path = self.scratch / "micro.json"
        command = [self.build / "bin" / "triforce-cuda-bench",
                   f"--device={self.o.device.partition(':')[2] or 0}",
                   f"--benchmark_out={path}", "--benchmark_out_format=json"]
        if self.o.small:
            command += ["--context=200", "--benchmark_min_time=0.001",
                        "--benchmark_filter=^attention/68m_streaming/2|^linear/68m_out/7"]
        else:
            command += ["--benchmark_min_time=0.05"]
        step, _, err = self.run(command, 150)
        step["result"] = json.loads(path.read_text()) if step["status"] == "ok" else None
        if step["status"] != "ok":
            step["stderr"] = err[-2000:]
        return step

    def selftest(self):
        step, out, err = self.run(
            [self.program, "selftest", "--device", self.o.device, "--chi-square-runs",
             0 if self.o.small else 20000], 120)
        lines = out.splitlines()
        step["verdict"] = lines[-1] if lines else err[-2000:]
        step["failed"] = [line for line in lines if line.startswith("FAILED")]
        return step

    def pair(self):
        toy = ["--prefill", 200, "--budget", 64, "--draft-cache-budget", 64, "--gen-len", 5,
               "--gamma", 2, "--repetitions", 1, "--warmup", 0] if self.o.small else []
        methods = "ar,triforce" if self.o.small else "ar,triforce,retrieval,streaming,draft"
        return {name: self.bench(f"pair_{name}", [*toy, "--method", methods, *rule], 90)
                for name, rule in (("coupled", ["--acceptance", "coupled"]),
                                   ("greedy", ["--temp", "0"]))}

    def long_context(self):
        """Autoregressive decoding against TriForce, at the paper's setting and at tuned gammas."""
        common = ["--method", "ar,triforce", "--synthetic-acceptance", "outer=0.976,inner=0.6",
                  "--ignore-eos"]
        if self.o.small:
            config = self.scratch / "config.json"
            config.write_text(json.dumps(TINY_CONFIG))
            ids = self.scratch / "prompt.ids"
            ids.write_text(" ".join(str(3 + (i * i) % 90) for i in range(600)) + "\n")
            common += ["--random-weights", config, "--random-draft", config, "--dataset", ids,
                       "--budget", 64, "--draft-cache-budget", 48, "--gen-len", 12,
                       "--repetitions", 1, "--warmup", 0]
            prefills = (128,)
        else:
            common += ["--random-weights", "llama-7B-128K", "--random-draft", "llama-68M",
                       "--budget", 4096, "--gen-len", 128, "--repetitions", 3, "--warmup", 1]
            prefills = PREFILLS
        steps = {}
        for prefill in prefills:
            steps["paper"] = self.bench("paper", [*common, "--prefill", prefill, "--gamma", 6,
                                                  "--inner-gamma", 1], 200)
            if steps["paper"]["exit_code"] != 4:  # 4: it does not fit
                break
        steps["prefill"] = prefill
        if steps["paper"]["status"] == "ok":
            steps["tuned"] = self.bench("tuned", [*common, "--prefill", prefill, "--gamma", "auto",
                                                  "--inner-gamma", "auto"], 200)
        return steps

    # ---- goals

    def goals(self):
        """[{name, value, goal, met}]; value null: it was not measured."""
        steps = self.result["steps"]
        goals = []

        def goal(name, value, least=None, most=None):
            met = None
            if value is not None:
                met = value >= least if least is not None else value <= most
            goals.append({"name": name, "value": value, "at_least": least, "at_most": most,
                          "met": met})

        micro = steps["micro"].get("result") or {"benchmarks": [], "context": {}}
        shares = {}
        for b in micro["benchmarks"]:
            shares[b["name"].replace("/manual_time", "")] = b.get("of_copy")
        for rows in ROWS:
            goal(f"attention, {rows} rows, of copy bandwidth",
                 shares.get(f"attention/7b_full/{rows}"), least=0.85)
            linear = [shares.get(f"linear/7b_{layer}/{rows}") for layer in LINEAR_7B]
            goal(f"linear layers, {rows} rows, worst of copy bandwidth",
                 min(linear) if None not in linear else None, least=0.85)
        for name in ("coupled", "greedy"):
            for case in cases(steps["pair"][name]):
                if case["method"] != "ar":
                    goal(f"built-in pair, {name}, {case['method']}: equal to ar",
                         case["lossless"]["equal_to_baseline"] is True, least=True)
        paper = {c["method"]: c for c in cases(steps["long_context"]["paper"])}
        tuned = {c["method"]: c for c in cases(steps["long_context"].get("tuned"))}
        copy_gbs = micro["context"].get("copy_GB/s")
        ar, triforce = paper.get("ar"), paper.get("triforce")
        floor = None
        if ar and copy_gbs:
            read = [t for t in ar["traffic"] if t["pass"] == "outer_verify"][0]["bytes_per_pass"]
            floor = read / float(copy_gbs) / 1e6
        goal("autoregressive step, of its byte floor at copy bandwidth",
             ar["timing"]["ms_per_token"]["median"] / floor if floor else None, most=1.15)
        ratio = None
        if triforce and triforce["steps"]["outer_verify_ms"] and triforce["steps"][
                "autoregressive_ms"]:
            ratio = (triforce["steps"]["outer_verify_ms"] /
                     triforce["steps"]["autoregressive_ms"])
        goal("verification at gamma 6, in autoregressive steps", ratio, most=1.08)
        for name, found, least in (("at gamma 6", paper, 2.6), ("at tuned gammas", tuned, 3.5)):
            speedup = found.get("triforce", {}).get("speedup")
            goal(f"TriForce {name}, speedup", speedup["value"] if speedup else None, least=least)
        goal("prefill, s", ar["timing"]["prefill_ms"] / 1e3
             if ar and ar["timing"]["prefill_ms"] else None, most=40)
        return goals

    def main(self):
        self.step("device", self.device)
        self.check_device()
        self.step("tests", self.tests)
        self.step("sanitizer", self.sanitizer)
        self.step("micro", self.micro)
        self.step("selftest", self.selftest)
        self.step("pair", self.pair)
        self.step("long_context", self.long_context)
        self.result["goals"] = self.goals()
        self.save()
        shutil.rmtree(self.scratch, ignore_errors=True)
        return self.report()

    def check_device(self):
        """Ends the suite if the device it is about is not there."""
        step = self.result["steps"]["device"]
        if step["status"] != "ok":
            stop(1, f"{self.program} does not run here (exit status {step['exit_code']})")
        if not step["result"]["cuda"]:
            stop(2, f"--build: expected a build with CUDA, found one without in {self.build}")
        wanted = self.o.device if ":" in self.o.device else f"{self.o.device}:0"
        found = {d["device"]: d.get("usable", True) for d in step["result"]["devices"]}
        if wanted not in found:
            stop(77, f"no usable device: expected {wanted}, found {', '.join(found)}")
        if not found[wanted]:
            stop(77, f"no usable device: this build holds no code for {wanted}")

    def report(self):
        failed = []
        for name, step in self.result["steps"].items():
            parts = {name: step} if "status" in step else {
                f"{name}, {part}": s for part, s in step.items() if isinstance(s, dict)}
            for part, s in parts.items():
                print(f"{part:<24} {s['status']:<8} {s.get('seconds', '')}")
                if s["status"] in ("failed", "timeout"):
                    failed.append(part)
        print()
        for g in self.result["goals"]:
            value = "-" if g["value"] is None else (
                str(g["value"]) if isinstance(g["value"], bool) else f"{g['value']:.3f}")
            bound = f">= {g['at_least']}" if g["at_least"] is not None else f"<= {g['at_most']}"
            verdict = {None: "not measured", True: "met", False: "MISSED"}[g["met"]]
            print(f"{g['name']:<58} {value:>8}  {bound:<8} {verdict}")
        print(f"\n{self.o.out}: {self.result['seconds']} s")
        if failed:
            print(f"failed: {', '.join(failed)}")
        return 1 if failed else 0


def stop(code, reason):
    print(f"gpu_suite: error: {reason}", file=sys.stderr)
    sys.exit(code)


def worst(runs):
    statuses = [r["status"] for r in runs]
    return next((s for s in ("failed", "timeout") if s in statuses), "ok")


def cases(step):
    result = (step or {}).get("result")
    return [c for c in result["cases"] if c["status"] == "ok"] if result else []


def main():
    parser = argparse.ArgumentParser(prog="gpu_suite.sh")
    parser.add_argument("--build", required=True, help="folder with the built programs")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--out", default="gpu_suite.json", help="the JSON file")
    parser.add_argument("--small", action="store_true", help="toy sizes")
    sys.exit(Suite(parser.parse_args()).main())


if __name__ == "__main__":
    main()
