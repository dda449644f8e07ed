"""What machine code of a kernel must not have, and what it must.

A rule looks at one kernel and yields findings. Code "in a loop" is that of a natural loop. In loops
of matrix products what is not on the way of a full tile (ends, rows that are not aligned) does not
count for narrow loads and f64.
"""
import itertools
import re
from dataclasses import dataclass

from machine_code.flow import Flow

MAX_CODE_BYTES = 64 << 10  # half the instruction cache that four schedulers share
MIN_LOADS_UNDER_WAY = 4    # of a thread, between one store and the next
WIDE = re.compile(r"HMMA|LDSM|LDGSTS|LDG\.E\S*\.128")
NARROW = re.compile(r"LDG\S*\.[US](8|16)\b")
F64 = re.compile(r"(DADD|DMUL|DFMA|DSETP|DMNMX|MUFU\.\w+64)|([IF]2[IF]\S*[FSU]64)")
# Programmatic dependent launch: the kernel waits for those before it; the next one may begin.
WAITS, LETS_GO = "ACQBULK", "PREEXIT"
EARLY_FROM = 90  # 10 times the compute capability from which there is such a launch
# Opcodes, without modifiers, that touch memory which other kernels see.
MEMORY = re.compile(r"(LD|ST|ATOM|RED)G?|LDGSTS|LDGMC|CCTL\w*|UBLK\w+|UTMA\w+|S(ULD|UST|UATOM|URED)|"
                    r"T(EX|LD|LD4|MML|XD|XQ)")


@dataclass(frozen=True)
class Finding:
    kernel: str        # T for f16 and bf16
    architecture: str
    rule: str
    amount: int        # how much of it: a larger one is worse
    words: str


class Code:
    """A kernel with its loops."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.flow = Flow(kernel.instructions)
        self.loops = self.flow.loops()
        self._find_side_ways()

    def _find_side_ways(self):
        """Addresses in loops of matrix products that a full tile does not pass."""
        self.side_ways = set()
        for loop in self.loops:
            code = self.flow.code(loop.blocks)
            if any(i.starts("HMMA") for i in code):
                full = {i.address for i in self.full_tile(loop)}
                self.side_ways |= {i.address for i in code} - full

    def full_tile(self, loop):
        """One turn of a loop with all its products and wide loads."""
        return self.flow.busiest_path(loop, lambda i: bool(WIDE.match(i.opcode)))

    def bodies(self):
        """(loop, its code without loops inside it)."""
        for loop in self.loops:
            yield loop, self.flow.code(loop.blocks - loop.inner)

    def straight(self):
        """Code outside of all loops."""
        inside = set().union(*(loop.blocks for loop in self.loops))
        return self.flow.code(set(range(len(self.flow.blocks))) - inside)

    def product_loop(self):
        """The outermost loop of matrix products, or None."""
        for loop in reversed(self.loops):
            if any(i.starts("HMMA") for i in self.flow.code(loop.blocks)):
                return loop
        return None

    def at(self, loop):
        """Where a loop begins, for people."""
        return f"loop at {self.flow.instructions[self.flow.blocks[loop.header].start].address:#x}"


def spills(code):
    """Registers kept in memory inside a loop."""
    for loop, body in code.bodies():
        if n := sum(i.starts("LDL", "STL") for i in body):
            yield n, f"{n} LDL and STL, {code.at(loop)}"


def generic_accesses(code):
    """The compiler lost from which memory a pointer is: slower, and usually a mistake."""
    if n := sum(i.starts("LD", "ST", "ATOM") for i in code.kernel.instructions):
        yield n, f"{n} generic accesses"


def _load_runs(body):
    """(stores that follow a load, loads between two of them on average)."""
    kinds = ["load" if i.starts("LDG") else "store" for i in body
             if i.starts("LDG", "STG", "STS", "ATOMG", "ATOMS", "RED")]
    runs = [kind for kind, _ in itertools.groupby(kinds)]
    turns = sum(a == "load" and b == "store" for a, b in zip(runs, runs[1:]))
    return turns, kinds.count("load") / max(turns, 1)


def serial_loads(code):
    """Load, wait, store, and so on: the compiler may not move a load over a store to memory that
    may be the same, so that every load waits for the whole latency."""
    places = [(2, code.at(loop), body) for loop, body in code.bodies()]
    for fewest, where, body in places + [(4, "outside of loops", code.straight())]:
        turns, under_way = _load_runs(body)
        if turns >= fewest and under_way < MIN_LOADS_UNDER_WAY:
            yield turns, f"{turns} times {under_way:.1f} loads, then a store, {where}"


def narrow_loads(code):
    """Loads of one or two bytes from device memory in a loop: 16 bytes take as many instructions."""
    for loop, body in code.bodies():
        if n := sum(bool(NARROW.match(i.opcode)) and i.address not in code.side_ways for i in body):
            yield n, f"{n} loads of 1 or 2 bytes, {code.at(loop)}"


def double_precision(code):
    """f64 and 64-bit conversions in a loop: 1/64 of the rate on consumer cards."""
    for loop, body in code.bodies():
        if n := sum(bool(F64.match(i.opcode)) and i.address not in code.side_ways for i in body):
            yield n, f"{n} operations in f64, {code.at(loop)}"


def code_size(code):
    """Code that the instruction cache does not hold."""
    if (n := code.kernel.code_bytes) > MAX_CODE_BYTES:
        yield n, f"{n} bytes of code, at most {MAX_CODE_BYTES}"


def _before_wait(code):
    """Instructions that a thread may come to before it waits for the kernels before its own."""
    flow, seen, found = code.flow, set(), []
    stack = [0]
    while stack:
        block = stack.pop()
        if block in seen:
            continue
        seen.add(block)
        for at in flow.blocks[block]:
            i = flow.instructions[at]
            if i.opcode == WAITS and not i.predicate:
                break
            if not i.never:
                found.append(i)
            if i.starts("CALL") and i.target() in flow.routines:
                stack.append(flow.block_of(i.target()))
        else:
            stack += flow.next[block]
    return found


def early(code, prefetch, wanted):
    """Findings: what breaks the law of launches that begin early (launch_early() of
    kernels/launch.cuh). prefetch: (opcode, at least how many) of the loads that a thread may do
    before it waits, or None; wanted: whether the kernel is one that begins early."""
    kernel = code.kernel

    def finding(words, amount=1):
        return Finding(kernel.of_any_type, kernel.architecture, "early", amount, words)
    opcodes = {i.opcode for i in kernel.instructions if not i.never}
    if int(re.match(r"sm_(\d+)", kernel.architecture)[1]) < EARLY_FROM:
        return
    if not wanted and not opcodes & {WAITS, LETS_GO}:
        return
    for opcode in (WAITS, LETS_GO):
        if opcode not in opcodes:
            yield finding(f"no {opcode}")
    if WAITS not in opcodes:
        return
    opcode, at_least = prefetch or (None, 0)
    loads = 0
    for i in _before_wait(code):
        if opcode and i.opcode.startswith(opcode):
            loads += 1
        elif MEMORY.fullmatch(i.opcode.split(".")[0]) or "desc[" in i.operands:
            yield finding(f"{i.opcode} at {i.address:#x} before {WAITS}")
        elif i.starts(LETS_GO, "EXIT", "BRX", "JMX"):
            yield finding(f"{i.opcode} at {i.address:#x} before {WAITS}")
    if loads < at_least:
        yield finding(f"{loads} {opcode} before {WAITS}, expected at least {at_least}",
                      at_least - loads)


RULES = {"spill": spills, "generic": generic_accesses, "serial": serial_loads,
         "narrow": narrow_loads, "f64": double_precision, "size": code_size}


def find(code):
    """Findings of all rules in one kernel."""
    kernel = code.kernel
    for rule, look in RULES.items():
        for amount, words in look(code):
            yield Finding(kernel.of_any_type, kernel.architecture, rule, amount, words)


def missing(code, required):
    """Findings: opcodes, given by how they begin, that are not on the way of a full tile through the
    loop of matrix products, or not in the kernel where it has no such loop."""
    kernel, loop = code.kernel, code.product_loop()
    body = code.full_tile(loop) if loop else kernel.instructions
    for opcode in required:
        if not any(i.opcode.startswith(opcode) for i in body):
            yield Finding(kernel.of_any_type, kernel.architecture, "missing", 1,
                          f"no {opcode} in {code.at(loop) if loop else 'the kernel'}")
