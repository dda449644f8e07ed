#!/usr/bin/env python3
"""Checks the machine code of the kernels: the rules of rules.py, instructions that must be there, how
many blocks fit a multiprocessor, and that issuing a tile takes less time than reading it.

Reads the objects that register_report.py leaves; no card is needed. Exits with 77 where there is no
cuobjdump, 1 for findings without an exemption (expected.py) and exemptions without a finding."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from machine_code import cards, expected, issue, rules, sass  # noqa: E402

LAUNCHES = pathlib.Path(__file__).with_name("launches.json")


def nvcc_release():
    """"13.0", or an empty string where there is no nvcc."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        return ""
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release (\d+\.\d+)", said)[1]


def measure(code, launch, card):
    """How a kernel lies on a multiprocessor of a card and what its loop over tiles costs there, as a
    dictionary; see --json. null: not a timed loop."""
    kernel = code.kernel
    shared = kernel.shared_bytes + launch["shared_bytes"]
    blocks = cards.blocks_on(card, kernel.registers, launch["threads"], shared)
    row = {"kernel": kernel.of_any_type, "card": card.name, "architecture": card.architecture,
           "nominal_gbs": card.bytes_per_s / 1e9,
           "registers": kernel.registers, "shared_bytes": shared, "blocks": blocks,
           "tile_bytes": None, "instructions": None, "cycles": None, "memory_cycles": None}
    for timed in expected.TIMED_LOOPS:
        found = re.fullmatch(timed.kernel, kernel.of_any_type)
        if found and blocks > 0:
            turn = code.full_tile(code.product_loop())
            tile_bytes = timed.tile_bytes(found)
            row.update(tile_bytes=tile_bytes, instructions=len(turn),
                       cycles=issue.cycles_of_turn(turn, card, blocks, launch["threads"] // 32),
                       memory_cycles=card.memory_cycles_for(tile_bytes))
    return row


def findings_of(row):
    """Findings of what measure() gave: too few blocks; loops that take longer than memory, of which
    the amount is the time in percent of the memory's."""
    def finding(rule, amount, words):
        return rules.Finding(row["kernel"], row["architecture"], rule, amount,
                             f"{words} on {row['card']}")
    wanted = expected.blocks_wanted(row["kernel"], row["architecture"])
    if row["blocks"] < wanted:
        yield finding("blocks", wanted - row["blocks"],
                      f"{row['blocks']} blocks on a multiprocessor, expected at least {wanted},")
    if row["cycles"] is not None and row["cycles"] >= row["memory_cycles"]:
        yield finding("issue", round(row["cycles"] / row["memory_cycles"] * 100),
                      f"a tile takes {row['cycles']:.0f} cycles, reading it "
                      f"{row['memory_cycles']:.0f}")


def check_object(path, launches):
    """(kernels, findings, timed loops) of one object file."""
    findings, rows, count = [], [], 0
    for kernel in sass.read_object(path):
        count += 1
        code = rules.Code(kernel)
        findings += rules.find(code)
        findings += rules.missing(code, expected.REQUIRED.get(kernel.name.split("<")[0], ()))
        name = kernel.of_any_type
        if "__nv_bfloat16" in kernel.name or not any(
                re.fullmatch(t.kernel, name) for t in expected.TIMED_LOOPS):
            continue  # bf16 has the instructions of f16
        if name not in launches:
            raise RuntimeError(f"{LAUNCHES}: expected {name}, found no such kernel; see what "
                               "cuda_launch_test of the emulated build writes")
        rows += [measure(code, launches[name], card) for card in cards.CARDS
                 if card.architecture == kernel.architecture]
    return count, findings + [f for row in rows for f in findings_of(row)], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", required=True, help="folder of register_report.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="objects at a time")
    parser.add_argument("--json", help="file that gets the timed loops")
    args = parser.parse_args()
    objects = sorted(pathlib.Path(args.objects).glob("*.cu.o"))
    if not objects:
        sys.exit(f"{args.objects}: expected objects of .cu files, found none")
    try:
        for tool in ("cuobjdump", "nvdisasm"):
            sass.find_tool(tool)
    except sass.NoTools as e:
        print(f"machine code was not checked: {e}", file=sys.stderr)
        sys.exit(77)
    launches = json.loads(LAUNCHES.read_text(encoding="utf-8"))
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        results = list(pool.map(check_object, objects, [launches] * len(objects)))
    findings = [f for _, found, _ in results for f in found]
    rows = sorted((r for _, _, rows in results for r in rows),
                  key=lambda r: (r["card"], r["kernel"]))
    for r in rows:
        words = f"{r['kernel']:24} {r['card']:9} {r['registers']:3} registers, {r['blocks']} blocks"
        if r["cycles"] is not None:
            words += (f", {r['instructions']:3} instructions and {r['cycles']:.0f} cycles a tile, "
                      f"memory {r['memory_cycles']:.0f}")
        print(words)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    architectures = sorted({r["architecture"] for r in rows})
    release = nvcc_release()
    wrong = expected.judge(findings, architectures, release == expected.NVCC)
    print(f"{len(objects)} objects, {sum(n for n, _, _ in results)} kernels, {len(findings)} "
          f"findings, {len(expected.EXEMPTIONS)} exemptions, nvcc {release or 'unknown'}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
