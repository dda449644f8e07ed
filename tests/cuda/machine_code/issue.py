"""How many cycles a multiprocessor needs to issue one turn of a loop.

Warps are in order. ptxas writes into every instruction after how many cycles the warp may go on,
which scoreboard it holds and for which it waits; units have a rate. What the copies of cp.async bring
is taken to be there: the time is that of everything but memory, which it is to be compared with.
Loads into registers have their latency. How many bytes the second-level cache gives is not part of it:
check.py compares that with memory by itself.
"""
import math
import re
from dataclasses import dataclass, field

QUARTERS = 4  # schedulers of a multiprocessor
# Cycles from issue to result, where a scoreboard is held.
LATENCY = {"LDSM": 33, "LDS": 23, "SHFL": 23, "MUFU": 22, "MOVM": 30, "LDL": 35, "VOTE": 12,
           "F2F": 20, "F2I": 20, "I2F": 20, "S2R": 20}
OTHER_LATENCY = 20
OPERANDS_READ = {"LDG": 20, "LDGSTS": 20}
OTHER_OPERANDS_READ = 12
# Cycles for which a warp's instruction keeps the unit for loads and stores of the multiprocessor.
LOAD_STORE = {"LDSM": 4, "LDS": 2, "STS": 2, "SHFL": 2, "LDGSTS": 4, "LDG": 4, "STG": 4, "LDL": 4,
              "STL": 4, "ATOMS": 2}
WORD_CYCLES = 2       # LDG and STG of 4 bytes a lane: L2 gives and takes 64 bytes a cycle
LOAD_STORE_QUEUE = 8  # cycles of work that may lie before it
SPECIAL_CYCLES = 8    # MUFU and conversions
FLOATS = ("FFMA", "FMUL", "FADD")
DOUBLES = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
INTEGERS = ("IADD", "IADD3", "LOP3", "LEA", "SHF", "ISETP", "IMNMX", "VIMNMX", "PRMT", "SEL", "FMNMX",
            "FMNMX3", "FSETP", "FSEL", "POPC", "PLOP3", "VIADD", "IABS")
INTEGER_CYCLES = 2    # 16 lanes


@dataclass
class Step:
    """What the simulation needs of an instruction."""
    stall: int
    waits: tuple
    written: int
    read: int
    unit: str
    cycles: float   # of its unit
    latency: int
    operands: int
    barrier: bool


@dataclass
class Warp:
    quarter: int
    block: int
    at: int = 0
    turn: int = 0
    ready: float = 0  # the cycle of its next instruction at the earliest
    boards: list = field(default_factory=lambda: [[] for _ in range(6)])
    half: float = 0   # cycle after half of the turns
    end: float = -1


def _unit(kind, opcode, card):
    if kind == "HMMA":
        return "product", card.product_cycles
    if kind in FLOATS:
        return "f32", card.f32_cycles
    if kind in DOUBLES:
        return "f64", card.f64_cycles
    if kind in ("MUFU", "F2F", "F2I", "I2F"):
        return "special", SPECIAL_CYCLES
    if kind == "IMAD":
        return "f32", max(INTEGER_CYCLES, card.f32_cycles) if "MOV" not in opcode else 1
    if kind in INTEGERS:
        return "integer", INTEGER_CYCLES
    if kind in LOAD_STORE:
        narrow = kind in ("LDG", "STG") and not re.search(r"\.(64|128)\b", opcode)
        return "memory", WORD_CYCLES if narrow else LOAD_STORE[kind]
    return "", 0


def prepare(instructions, card):
    """Steps of a turn on a card."""
    steps = []
    for i in instructions:
        kind = i.opcode.split(".")[0]
        unit, cycles = _unit(kind, i.opcode, card)
        latency = LATENCY.get(kind, OTHER_LATENCY)
        if kind == "LDG":
            latency = card.memory_cycles if ".NA" in i.opcode else card.l2_cycles
        steps.append(Step(
            max(1, i.stall), tuple(b for b in range(6) if i.waits >> b & 1), i.written, i.read,
            "" if i.never else unit, cycles, latency, OPERANDS_READ.get(kind, OTHER_OPERANDS_READ),
            kind == "BAR"))
    return steps


class Multiprocessor:
    """Runs `turns` turns of the steps in every warp of `blocks` blocks."""

    def __init__(self, steps, blocks, warps, turns=6):
        self.steps, self.turns, self.warps_of_block = steps, turns, warps
        self.warps = [Warp(w % QUARTERS, b) for b in range(blocks) for w in range(warps)]
        self.quarters = [[w for w in self.warps if w.quarter == q] for q in range(QUARTERS)]
        self.first = [0] * QUARTERS  # the warp whose turn it is
        self.shared_first = 0        # the quarter whose turn it is at what all share
        self.free = {}               # (unit, quarter) -> cycle from which it is free
        self.waiting = [[] for _ in range(blocks)]  # warps at the barrier

    def _when(self, warp, now):
        """The first cycle, `now` or later, at which the warp's next instruction can be issued."""
        step = self.steps[warp.at]
        when = max(now, warp.ready)
        for b in step.waits:
            if warp.boards[b]:
                when = max(when, *warp.boards[b])
        if step.unit == "memory":
            when = max(when, self.free.get("memory", 0) - LOAD_STORE_QUEUE)
        elif step.unit:
            when = max(when, self.free.get((step.unit, warp.quarter), 0))
        return when

    def _issue(self, warp, now):
        step = self.steps[warp.at]
        done = now + step.latency
        if step.unit == "memory":
            self.shared_first = (warp.quarter + 1) % QUARTERS
            self.free["memory"] = max(self.free.get("memory", 0), now) + step.cycles
            done = max(done, self.free["memory"] + step.latency - step.cycles)
        elif step.unit:
            key = (step.unit, warp.quarter)
            self.free[key] = max(self.free.get(key, 0), now) + step.cycles
        for b in step.waits:
            warp.boards[b].clear()
        if step.written < 6:
            warp.boards[step.written].append(done)
        if step.read < 6:
            warp.boards[step.read].append(now + step.operands)
        warp.ready = now + step.stall
        warp.at += 1
        if warp.at == len(self.steps):
            warp.at = 0
            warp.turn += 1
            if warp.turn == self.turns // 2:
                warp.half = now
            if warp.turn == self.turns:
                warp.end = now
        if step.barrier:
            self._arrive(warp)

    def _arrive(self, warp):
        waiting = self.waiting[warp.block]
        waiting.append(warp)
        after, warp.ready = warp.ready, math.inf
        if len(waiting) == self.warps_of_block:
            for other in waiting:
                other.ready = after
            waiting.clear()

    def cycles_per_turn(self):
        """Of all warps together, in the second half of the turns."""
        now = 0
        while any(w.end < 0 for w in self.warps):
            following = math.inf
            shared_first = self.shared_first
            for k in range(QUARTERS):
                q = (shared_first + k) % QUARTERS
                warps = self.quarters[q]
                n = len(warps)
                for j in range(n):
                    warp = warps[(self.first[q] + j) % n]
                    if warp.end >= 0 or warp.ready > now:
                        following = min(following, warp.ready) if warp.end < 0 else following
                        continue
                    when = self._when(warp, now)
                    if when > now:
                        following = min(following, when)
                        continue
                    self._issue(warp, now)
                    self.first[q] = (self.first[q] + j) % n + 1
                    following = now + 1
                    break
            now = max(now + 1, math.ceil(following) if following < math.inf else 0)
        measured = self.turns - self.turns // 2
        return sum(w.end - w.half for w in self.warps) / len(self.warps) / measured


def cycles_of_turn(instructions, card, blocks, warps):
    """Cycles in which a multiprocessor issues one turn for one block, with `blocks` blocks of
    `warps` warps at a time."""
    return Multiprocessor(prepare(instructions, card), blocks, warps).cycles_per_turn() / blocks
