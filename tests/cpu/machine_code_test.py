#!/usr/bin/env python3
"""The AVX-512 loops of linear layers and attention hold their sums and loads in registers.

Usage: machine_code_test.py OBJDUMP LIBRARY, of the CPU backend, compiled with optimisation. A loop
is one of the functions named below that multiplies; the innermost ones must neither write a vector
nor read one from the stack. What spills there is two to three times slower with the same results, so
that no other test sees it. AVX2 is not checked: pairs of bf16 do not fit into its 16 registers.
"""
import collections
import re
import subprocess
import sys
import unittest

OBJDUMP, LIBRARY = sys.argv[1:3]
FUNCTION = re.compile(r"(LinearTile|AttentionTile)<.*Avx512Vector.*::(columns|scores|values)<")
MULTIPLIES = re.compile(r"v(fmadd|dpbf16)")
ON_STACK = re.compile(r"\(%rsp|-0x[0-9a-f]+\(%rbp\)")
STORES = re.compile(r"[xyz]mm\d+(\{[^}]*\})*,[^,]*\(%")


def functions(listing):
    """(name, [(address, instruction)]) for each, of objdump's listing of one object or several."""
    found, code = [], []
    for line in listing.splitlines():
        start = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if start:
            code = []
            found.append((start.group(1), code))
            continue
        instruction = re.match(r"\s+([0-9a-f]+):\s+(.*)", line)
        if instruction:
            code.append((int(instruction.group(1), 16), instruction.group(2)))
    return found


def innermost_loops(code):
    """Bodies, from the target of a jump backwards to the jump."""
    index = {address: i for i, (address, _) in enumerate(code)}
    loops = set()
    for i, (_, text) in enumerate(code):
        jump = re.match(r"j\w+\s+([0-9a-f]+)", text)
        if jump and index.get(int(jump.group(1), 16), i + 1) <= i:
            loops.add((index[int(jump.group(1), 16)], i))
    for first, last in sorted(loops):
        if not any(first <= f and l <= last and (f, l) != (first, last) for f, l in loops):
            yield [text for _, text in code[first:last + 1]]


def spills(code):
    """(loops that multiply, their instructions that take a vector to memory or from the stack)"""
    loops = [b for b in innermost_loops(code) if any(MULTIPLIES.match(t) for t in b)]
    return loops, [t for b in loops for t in b
                   if "mm" in t and (ON_STACK.search(t) or STORES.search(t))]


GOOD = """0000000000000000 <f>:
   0:\tvmovaps %zmm1,0x40(%rsp)
   8:\tvpbroadcastd (%rax),%zmm2
  10:\tvdpbf16ps %zmm2,%zmm1,%zmm17
  18:\tjne    8 <f+0x8>
  20:\tvmovaps %zmm17,(%rdx)
"""


class MachineCode(unittest.TestCase):
    def test_of_the_library(self):
        listing = subprocess.run([OBJDUMP, "-d", "-C", "--no-show-raw-insn", LIBRARY], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
        seen = collections.Counter()
        for name, code in functions(listing):
            function = FUNCTION.search(name)
            if not function:
                continue
            loops, found = spills(code)
            self.assertEqual(len(loops), 1, name)
            self.assertEqual(found, [], name)
            seen[function.group(2)] += 1
        # Of f32, f16, bf16 in f32 and bf16: up to 14, 14, 13 and 14 rows, and 8 of each once more for
        # one of several tiles; attention's up to 12, its values at each of three widths that the
        # rows allow.
        self.assertEqual(seen, {"columns": 14 + 14 + 13 + 14 + 4 * 8, "scores": 12 * 4,
                                "values": 28 * 4})

    def test_what_it_looks_for(self):
        [(name, body)] = functions(GOOD)
        loops, found = spills(body)
        self.assertEqual(name, "f")
        self.assertEqual((len(loops), found), (1, []))
        for planted in ["vmovdqa64 0x48(%rsp),%zmm27", "vdpbf16ps -0x40(%rbp),%zmm1,%zmm2",
                        "vmovups %zmm3,(%rdx,%rcx,4)"]:
            text = GOOD.replace("  18:", f"  14:\t{planted}\n  18:")
            self.assertEqual(spills(functions(text)[0][1])[1], [planted])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
