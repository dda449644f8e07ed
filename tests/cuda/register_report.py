#!/usr/bin/env python3
"""Registers and spills of the kernels, by compiling them once more as the build does.

Fails if attention or a linear layer of up to 16 rows spills: they are bound by memory, and spilled
registers are traffic."""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# The last template argument counts groups of 8 rows.
MUST_NOT_SPILL = re.compile(r"(split|linear)_kernel<.*, [12]>")
SOURCES = ["attention.cu", "linear.cu"]
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'.*?"
                   r"(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL)


def report(entry, folder):
    """(kernel, architecture, bytes spilled, registers) of every kernel of one compile command."""
    argv = shlex.split(entry["command"])
    argv[argv.index("-o") + 1] = str(pathlib.Path(folder) / "out.o")
    done = subprocess.run(argv + ["-Xptxas=-v"], cwd=entry["directory"], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = ENTRY.findall(done.stdout + done.stderr)
    names = subprocess.run(["c++filt"], input="\n".join(f[0] for f in found), capture_output=True,
                           text=True, check=True).stdout.splitlines()
    for name, (_, architecture, spilled, registers) in zip(names, found):
        kernel = re.sub(r"\(.*|void ", "", name.replace("(anonymous namespace)::", ""))
        yield kernel.split("kernels::")[-1], architecture, int(spilled), int(registers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", required=True, help="compile_commands.json of a CUDA build")
    args = parser.parse_args()
    commands = json.loads(pathlib.Path(args.commands).read_text(encoding="utf-8"))
    checked, spilling = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for entry in commands:
            path = pathlib.Path(entry["file"])
            if path.name not in SOURCES or path.parent.name != "kernels":
                continue
            for row in report(entry, folder):
                print("{:44} {:6} {:4} bytes spilled, {:3} registers".format(*row))
                if MUST_NOT_SPILL.search(row[0]):
                    checked += 1
                    spilling += [f"{row[0]} ({row[1]})"] if row[2] > 0 else []
    if spilling or checked == 0:
        sys.exit(f"{checked} kernels must not spill; spilling: {', '.join(spilling) or 'none'}")


if __name__ == "__main__":
    main()
