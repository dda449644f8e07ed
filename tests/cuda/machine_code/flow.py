"""Blocks, loops and paths of a kernel's machine code."""
import functools
from dataclasses import dataclass, field


@dataclass
class Loop:
    """A natural loop: `header` dominates `blocks`, and every latch goes back to it."""
    header: int
    blocks: set
    latches: set = field(default_factory=set)
    inner: set = field(default_factory=set)  # blocks of loops inside it


class Flow:
    """Blocks are numbered in the order of their addresses."""

    def __init__(self, instructions):
        self.instructions = instructions
        self._number = {i.address: at for at, i in enumerate(instructions)}
        self._reconvergence = self._find_reconvergence()
        self.routines = set()  # addresses of what is called and returns; ptxas also calls what it
        called = {i.target() for i in instructions if i.starts("CALL")}  # only jumps to
        while found := {a for a in called - self.routines if self._returns(a)}:
            self.routines |= found
        self._cut()
        self._connect()
        self._find_dominators()

    def _find_reconvergence(self):
        """Where threads go on after the BSYNC of a barrier register: BSSY names it."""
        last, found = {}, {}
        ends = {i.target() for i in self.instructions if i.opcode == "BSSY"}
        for at, i in enumerate(self.instructions):
            barrier = i.operands.split(",")[0].split()[0] if i.operands else ""
            if i.opcode == "BSSY":
                last[barrier] = i.target()
            elif i.opcode == "BSYNC":
                following = i.address + 16
                found[at] = following if following in ends else last.get(barrier, following)
        return found

    def _jumps(self, at):
        """(addresses, whether the next instruction may follow) of instruction number `at`, or None
        where it does not end a block."""
        i = self.instructions[at]
        conditional = bool(i.predicate) and not i.never
        if i.starts("BRA"):
            # A second predicate (BRA P0, ...) and BRA.DIV (where threads are apart) are conditions.
            conditional |= i.opcode.startswith("BRA.DIV") or i.operands.lstrip("!")[:1] in "PU"
            return [i.target()], conditional
        if i.opcode == "BSYNC":
            return [self._reconvergence[at]], conditional
        if i.starts("CALL") and i.target() not in self.routines:
            return [i.target()], conditional
        if i.starts("EXIT", "RET", "BRX", "JMX"):
            return [], conditional
        return None

    def _returns(self, address):
        """Whether code that begins at `address` comes to a RET before any other call."""
        seen, stack = set(), [address]
        while stack:
            at = self._number.get(stack.pop())
            if at is None or at in seen:
                continue
            seen.add(at)
            i = self.instructions[at]
            if i.starts("RET"):
                return True
            targets, falls = self._jumps(at) or ([], True)
            stack += [] if i.starts("CALL") else targets
            stack += [i.address + 16] * falls
        return False

    def _cut(self):
        ins, number = self.instructions, self._number
        starts = {0}
        self.roots = {0}
        for at, i in enumerate(ins):
            jumps = self._jumps(at)
            if jumps is not None:
                starts.update(number[a] for a in jumps[0] if a in number)
                if at + 1 < len(ins):
                    starts.add(at + 1)
            elif i.target() in self.routines and i.starts("CALL"):
                starts.add(number[i.target()])
                self.roots.add(number[i.target()])
        order = sorted(starts)
        self.blocks = [range(a, b) for a, b in zip(order, order[1:] + [len(ins)])]
        self._block_at = {b.start: n for n, b in enumerate(self.blocks)}
        self.roots = {self._block_at[r] for r in self.roots}

    def block_of(self, address):
        """The block that begins at an address which is jumped to or called."""
        return self._block_at[self._number[address]]

    def _connect(self):
        self.next = [[] for _ in self.blocks]
        self.previous = [[] for _ in self.blocks]
        for n, block in enumerate(self.blocks):
            jumps = self._jumps(block[-1])
            targets, falls = jumps if jumps is not None else ([], True)
            after = [self._block_at[self._number[a]] for a in targets if a in self._number]
            if falls and n + 1 < len(self.blocks):
                after.append(n + 1)
            self.next[n] = list(dict.fromkeys(after))
            for m in self.next[n]:
                self.previous[m].append(n)

    def _find_dominators(self):
        """Of each block that can be reached: as Cooper, Harvey and Kennedy find them."""
        order, seen = [], set()
        for root in sorted(self.roots):
            stack = [(root, iter(self.next[root]))]
            if root in seen:
                continue
            seen.add(root)
            while stack:
                block, rest = stack[-1]
                for m in rest:
                    if m not in seen:
                        seen.add(m)
                        stack.append((m, iter(self.next[m])))
                        break
                else:
                    order.append(block)
                    stack.pop()
        order.reverse()
        rank = {b: r for r, b in enumerate(order)}
        top = -1  # above all roots
        self.dominator = {r: top for r in self.roots}

        def meet(a, b):
            while a != b:
                if a == top or b == top:
                    return top
                if rank[a] > rank[b]:
                    a = self.dominator[a]
                else:
                    b = self.dominator[b]
            return a

        changed = True
        while changed:
            changed = False
            for b in order:
                if b in self.roots:
                    continue
                new = functools.reduce(meet, [p for p in self.previous[b] if p in self.dominator])
                if self.dominator.get(b) != new:
                    self.dominator[b], changed = new, True

    def dominates(self, a, b):
        while b not in (a, -1):
            b = self.dominator[b]
        return a == b

    def loops(self):
        """All loops, the innermost first."""
        found = {}
        for b in self.dominator:
            for h in self.next[b]:
                # A jump to itself after EXIT ends the code and is no loop.
                if not self.dominates(h, b) or (h == b and not self.previous[b][1:]):
                    continue
                loop = found.setdefault(h, Loop(h, {h}))
                loop.latches.add(b)
                stack = [b]
                while stack:
                    at = stack.pop()
                    if at not in loop.blocks:
                        loop.blocks.add(at)
                        stack += [p for p in self.previous[at] if p in self.dominator]
        loops = sorted(found.values(), key=lambda l: len(l.blocks))
        for n, loop in enumerate(loops):
            for other in loops[:n]:
                if other.blocks < loop.blocks:
                    loop.inner |= other.blocks
        return loops

    def code(self, blocks):
        """Instructions of blocks, in the order of their addresses."""
        return [self.instructions[i] for b in sorted(blocks) for i in self.blocks[b]]

    def busiest_path(self, loop, weight):
        """Instructions of one turn of a loop, inner loops taken once at most: of all ways from its
        header back to it the one with the greatest sum of weight(instruction), of equal ones the
        shortest. What a full tile takes, without the ways for ends and special cases."""
        best = {}  # block -> (weight, -length, the block after it or None); None: no way back
        inner = {l.header: l.blocks for l in self.loops() if l.blocks < loop.blocks}

        def after(block, m):
            """Blocks that follow by the edge to m: of an inner loop's next turn, what comes after it."""
            if m == loop.header or m not in loop.blocks:
                return
            if m not in inner or not self.dominates(m, block):
                yield m
                return
            for exit in self.next[m]:
                if exit not in inner[m]:
                    yield from after(m, exit)

        def go(block):
            if block in best:
                return best[block]
            best[block] = None
            code = [self.instructions[i] for i in self.blocks[block]]
            mine = sum(map(weight, code))
            ways = [(0, 0, None)] if block in loop.latches else []
            for m in (m for edge in self.next[block] for m in after(block, edge)):
                if (way := go(m)) is not None:
                    ways.append((way[0], way[1], m))
            if ways:
                w, length, m = max(ways, key=lambda x: x[:2])
                best[block] = (w + mine, length - len(code), m)
            return best[block]

        go(loop.header)
        path, block = [], loop.header
        while block is not None:
            path += [self.instructions[i] for i in self.blocks[block]]
            block = best[block][2]
        return path
