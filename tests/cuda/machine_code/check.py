#!/usr/bin/env python3
"""Checks the machine code of the kernels: the rules of rules.py, instructions that must be there, how
many blocks fit a multiprocessor, and that issuing a tile and what the second-level cache gives of it
take less time than reading it.

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
           "nominal_gbs": card.bytes_per_s / 1e9, "l2_gbs": card.l2_bytes_per_s / 1e9,
           "multiprocessors": card.multiprocessors, "clock_hz": card.clock_hz,
           "registers": kernel.registers, "shared_bytes": shared, "blocks": blocks,
           "first_level_bytes": card.first_level_bytes(blocks, shared),
           "tile_bytes": None, "rows_bytes": None, "operations": None, "instructions": None,
           "cycles": None, "memory_cycles": None, "l2_cycles": None}
    for timed in expected.TIMED_LOOPS:
        found = re.fullmatch(timed.kernel, kernel.of_any_type)
        if found and blocks > 0:
            turn = code.full_tile(code.product_loop())
            tile_bytes, rows_bytes = timed.tile_bytes(found), timed.rows_bytes(found)
            row.update(tile_bytes=tile_bytes, rows_bytes=rows_bytes,
                       operations=timed.operations(found), instructions=len(turn),
                       cycles=issue.cycles_of_turn(turn, card, blocks, launch["threads"] // 32),
                       memory_cycles=card.memory_cycles_for(tile_bytes),
                       l2_cycles=card.l2_cycles_for(tile_bytes + rows_bytes))
    return row


def measure_passes(code, card):
    """What the timed passes of a kernel cost on a card, as dictionaries; see --json: ids of a turn of
    the block and its cycles. A loop that reads none has in their place the sums it adds up one after
    another, or null. Raises RuntimeError where the code has no such
    loop."""
    name = code.kernel.of_any_type
    for timed in expected.TIMED_PASSES:
        if not re.fullmatch(timed.kernel, name):
            continue
        turns = [t for loop, own in code.bodies() if (t := _turn_of_pass(code, loop, own, timed))]
        if not turns:
            raise RuntimeError(f"{name} ({card.architecture}): expected a loop \"{timed.name}\" with "
                               f"{timed.has}, found none")
        # The largest: others are for what is left at a row's end.
        turn = max(turns, key=len)

        ids = count_of(turn, "DADD") or None
        if timed.loads_an_id:
            ids = max(count_of(turn, "LDG"), count_of(turn, "LDS")) // timed.loads_an_id * 32 * timed.warps
        yield {"kernel": name, "card": card.name, "pass": timed.name, "instructions": len(turn),
               "ids": ids, "cycles": issue.cycles_of_turn(turn, card, 1, timed.warps),
               "clock_hz": card.clock_hz, "l2_cycles": card.l2_cycles,
               "multiprocessors": card.multiprocessors, "block_shared_bytes": card.block_shared_bytes}


def count_of(code, kind):
    """Instructions of a kind; what takes three operands in place of two does the work of two."""
    return sum(i.starts(kind) + 2 * i.starts(kind + "3") for i in code)


def _turn_of_pass(code, loop, own, timed):
    """One turn of a loop that is what `timed` describes, or None."""
    if (any(count_of(own, kind) < n for kind, n in timed.has.items()) or
            any(count_of(own, kind) for kind in timed.lacks)):
        return None
    kinds = (("LDG", "LDS") if timed.loads_an_id else ()) + tuple(timed.has)
    mine = {i.address for i in own if any(count_of([i], kind) for kind in kinds)}
    return code.flow.busiest_path(loop, lambda i: i.address in mine)


def findings_of(row):
    """Findings of what measure() gave: too few blocks; loops that take longer to issue, or to be fed
    by the second-level cache, than what they are to wait for: memory, or their own products where
    they read none. Amounts are percents of that."""
    def finding(rule, amount, words):
        return rules.Finding(row["kernel"], row["architecture"], rule, amount,
                             f"{words} on {row['card']}")
    wanted = expected.blocks_wanted(row["kernel"], row["architecture"])
    if row["blocks"] < wanted:
        yield finding("blocks", wanted - row["blocks"],
                      f"{row['blocks']} blocks on a multiprocessor, expected at least {wanted},")
    if row["cycles"] is None:
        return
    bound, name = row["memory_cycles"], "reading it"
    if not bound:
        bound, name = row["cycles"], "issuing it"
    elif row["cycles"] >= bound:
        yield finding("issue", round(row["cycles"] / bound * 100),
                      f"a tile takes {row['cycles']:.0f} cycles, {name} {bound:.0f}")
    if row["l2_cycles"] >= bound:
        yield finding("l2", round(row["l2_cycles"] / bound * 100),
                      f"a tile takes {row['l2_cycles']:.0f} cycles of the second-level cache, "
                      f"{name} {bound:.0f}")


def check_object(path, launches):
    """({(name, architecture)} of its kernels, findings, timed loops and blocks, timed passes) of one
    object file."""
    findings, rows, passes, kernels = [], [], [], set()
    for kernel in sass.read_object(path):
        kernels.add((kernel.of_any_type, kernel.architecture))
        code = rules.Code(kernel)
        findings += rules.find(code)
        family = kernel.name.split("<")[0]
        findings += rules.missing(code, expected.REQUIRED.get(family, ()))
        findings += rules.early(code, expected.early_loads(kernel.of_any_type),
                                family in expected.EARLY)
        of_architecture = [c for c in cards.CARDS if c.architecture == kernel.architecture]
        name = kernel.of_any_type
        if "__nv_bfloat16" not in kernel.name:  # which has the instructions of f16
            passes += [p for card in of_architecture for p in measure_passes(code, card)]
        if "__nv_bfloat16" in kernel.name:
            continue
        timed = any(re.fullmatch(t.kernel, name) for t in expected.TIMED_LOOPS)
        if not timed and name not in launches:
            continue
        if name not in launches:
            raise RuntimeError(f"{LAUNCHES}: expected {name}, found no such kernel; see what "
                               "cuda_launch_test of the emulated build writes")
        rows += [measure(code, launches[name], card) for card in of_architecture]
    return kernels, findings + [f for row in rows for f in findings_of(row)], rows, passes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", required=True, help="folder of register_report.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="objects at a time")
    parser.add_argument("--json", help="file that gets the timed loops: {\"tiles\": those over tiles "
                        "from memory, \"passes\": those that a single block waits for}")
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
    findings = [f for _, found, _, _ in results for f in found]
    rows = sorted((r for _, _, rows, _ in results for r in rows),
                  key=lambda r: (r["card"], r["kernel"]))
    passes = sorted((p for _, _, _, passes in results for p in passes),
                    key=lambda p: (p["card"], p["kernel"], p["pass"]))
    for r in rows:
        words = f"{r['kernel']:24} {r['card']:9} {r['registers']:3} registers, {r['blocks']} blocks"
        if r["cycles"] is not None:
            words += (f", {r['instructions']:3} instructions and {r['cycles']:.0f} cycles a tile, "
                      f"memory {r['memory_cycles']:.0f}, second-level cache {r['l2_cycles']:.0f}")
        print(words)
    for p in passes:
        print(f"{p['kernel']:26} {p['card']:9} {p['pass']:6} {p['instructions']:3} instructions and "
              f"{p['cycles']:.0f} cycles a turn of {p['ids'] or 'no'} ids")
    if args.json:
        pathlib.Path(args.json).write_text(
            json.dumps({"tiles": rows, "passes": passes}, indent=2) + "\n", encoding="utf-8")
    kernels = set().union(*(found for found, _, _, _ in results))
    architectures = sorted({architecture for _, architecture in kernels})
    release = nvcc_release()
    wrong = expected.judge(findings, architectures, release == expected.NVCC)
    wrong += expected.unused_patterns({name for name, _ in kernels}, launches, architectures)
    print(f"{len(objects)} objects, {len(kernels)} kernels, {len(findings)} "
          f"findings, {len(expected.EXEMPTIONS)} exemptions, nvcc {release or 'unknown'}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
