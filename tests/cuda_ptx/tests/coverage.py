#!/usr/bin/env python3
"""What tests have executed of the PTX: FOLDER has a file a process, a line a kernel or function:
a letter an instruction, 1 if it ran, then a tab and the name. Prints a table. Ends with status 1
when a kernel never ran."""
import pathlib
import re
import sys


def merged(folder):
    """{name: [whether each instruction ran]} over all processes."""
    out = {}
    for file in sorted(pathlib.Path(folder).glob("*.txt")):
        for line in file.read_text().splitlines():
            letters, name = line.split("\t")
            before = out.setdefault(name, [False] * len(letters))
            if len(before) != len(letters):
                raise SystemExit(f"{file}: {name} has {len(letters)} instructions, "
                                 f"in other files {len(before)}")
            out[name] = [a or b == "1" for a, b in zip(before, letters)]
    return out


def family(name):
    """A kernel's name without namespaces, template arguments and parameters."""
    return re.sub(r"^void |<.*|\(.*", "", name.replace("(anonymous namespace)::", "")).split("::")[-1]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    kernels = merged(sys.argv[1])
    if not kernels:
        raise SystemExit(f"{sys.argv[1]}: expected files of executed instructions, found none")
    rows = {}
    for name, ran in kernels.items():
        row = rows.setdefault(family(name), [0, 0, 0, 0])
        row[0] += 1
        row[1] += any(ran)
        row[2] += len(ran)
        row[3] += sum(ran)
    print("| kernel | instances | that ran | instructions | that ran |\n|---|--:|--:|--:|--:|")
    rows["all"] = [sum(column) for column in zip(*rows.values())]
    for name, (instances, started, instructions, ran) in rows.items():
        print(f"| {name} | {instances} | {started} | {instructions} | {100 * ran / instructions:.1f}% |")
    missing = sorted(name for name, ran in kernels.items() if not any(ran))
    for name in missing:
        print(f"never ran: {name}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
