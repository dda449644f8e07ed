#!/usr/bin/env python3
"""Compiles the CUDA sources as a build would, and reports registers and spills of every kernel.

Every command of kernels/ and src/cuda/ in a compile_commands.json is run once; --objects says where
what it makes stays, for machine_code/check.py. Fails if one does not compile, or if a kernel spills:
registers that are spilled are memory traffic in kernels that are bound by memory."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# Compiled by this release for these architectures, no kernel spills a register.
NVCC = "13.0"
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
# What no compiler may spill: one to sixteen rows on the verification path, and prompts where matrix
# products run beside what threads do.
NEVER = re.compile(r"(split_kernel<.*, [12], \w+|linear_kernel<.*, [12]|prefill_wgmma_kernel<.*)>")
FOLDERS = ("kernels", "src/cuda")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'.*?"
                   r"(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL)


def compile_one(entry, folder):
    """(file, exit status, the compiler's words) of one command, which leaves its object in folder."""
    argv = shlex.split(entry["command"])
    launcher = os.environ.get("CMAKE_CUDA_COMPILER_LAUNCHER")  # ccache keeps what ptxas says, too
    if launcher and argv[0] != launcher:
        argv.insert(0, launcher)
    name = pathlib.Path(entry["file"]).name + ".o"
    argv[argv.index("-o") + 1] = str(pathlib.Path(folder) / name)
    for flag in ("-MF", "-MT"):  # dependencies are nobody's here
        if flag in argv:
            argv[argv.index(flag) + 1] = str(pathlib.Path(folder) / (name + ".d"))
    if entry["file"].endswith(".cu"):
        argv.append("-Xptxas=-v")
    done = subprocess.run(argv, cwd=entry["directory"], capture_output=True, text=True, check=False)
    return entry["file"], done.returncode, done.stdout + done.stderr


def kernels_of(text):
    """(kernel, architecture, bytes spilled, registers) of what ptxas said."""
    found = ENTRY.findall(text)
    names = subprocess.run(["c++filt"], input="\n".join(f[0] for f in found), capture_output=True,
                           text=True, check=True).stdout.splitlines()
    for name, (_, architecture, spilled, registers) in zip(names, found):
        kernel = re.sub(r"\(.*|void ", "", name.replace("(anonymous namespace)::", ""))
        yield (kernel.replace("triforce::", "").removeprefix("kernels::"), architecture,
               int(spilled), int(registers))


def judge(rows, release):
    """Lines: which of (kernel, architecture, bytes spilled, registers) spill and must not when nvcc
    of that release has compiled them. Figures of others are only shown."""
    return [f"{kernel} ({architecture}): {spilled} bytes, at most 0"
            for kernel, architecture, spilled, _ in sorted(rows)
            if spilled > 0 and (NEVER.fullmatch(kernel) or
                                (release == NVCC and architecture in ARCHITECTURES))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", required=True, help="compile_commands.json of a CUDA build")
    parser.add_argument("--objects", help="folder that gets what was compiled; default: nowhere")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    folders = [root / f for f in FOLDERS]
    entries = [e for e in json.loads(pathlib.Path(args.commands).read_text(encoding="utf-8"))
               if pathlib.Path(e["file"]).parent in folders]
    if not any(e["file"].endswith(".cu") for e in entries):
        sys.exit(f"{args.commands}: no .cu file of {root}: expected a CUDA build")
    nvcc = next(shlex.split(e["command"]) for e in entries if e["file"].endswith(".cu"))
    nvcc = next(a for a in nvcc if pathlib.Path(a).name == "nvcc")
    release = re.search(r"release (\d+\.\d+)", subprocess.run(
        [nvcc, "--version"], capture_output=True, text=True, check=True).stdout)[1]
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        if args.objects:
            folder = pathlib.Path(args.objects).resolve()
            folder.mkdir(parents=True, exist_ok=True)
        for file, status, text in pool.map(lambda e: compile_one(e, folder), entries):
            if status != 0:
                failed += 1
                print(f"{file} does not compile:\n{text}", file=sys.stderr)
            found = list(kernels_of(text))
            rows += found
            print(f"{pathlib.Path(file).name}: {len(found)} kernels", file=sys.stderr, flush=True)
    for kernel, architecture, spilled, registers in sorted(rows):
        print(f"{kernel:44} {architecture:6} {spilled:4} bytes spilled, {registers:3} registers")
    wrong = judge(rows, release)
    print(f"{len(entries)} files, {len(rows)} kernels, nvcc {release}")
    if failed or wrong:
        sys.exit("\n".join([f"{failed} files do not compile"] * (failed > 0) + wrong))


if __name__ == "__main__":
    main()
