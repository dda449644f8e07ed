"""Microseconds of single kernels on a card: what they read, what issuing takes longer than that, and
what one block does while no other has anything to do. Without loops of the card: bytes at the achieved
rate, and no time for probabilities, draws and the addition of splits.
"""
from gpu.work import splits

# Cycles, as in machine_code/issue.py.
EXCHANGE, BARRIER = 23, 40
# Cycles for which a block of 32 warps does nothing but wait: exchanges and reads of shared memory, 23
# each, and barriers.
WAITS = {
    "reduction": 400,  # two barriers, a read, two trees of five exchanges, as many of the other word
    "search": 900,     # four barriers, one warp's sums over eight bins a lane and the choice among them
    "gathered": 700,   # the same among the ids of one bin, of which there are some ten
    "division": 400,   # of doubles, and what follows from it in every thread
    "choice": 500,     # eight sums of chunks a lane, twice, and votes
}
# What kernels do: passes over the vocabulary, and waits. A draw also adds 32 numbers in order: the
# sums of chunks, then the ids of the chosen one, group by group, of which the second or third of four
# has the token on average.
ORDERED = 32 * (1 + 2.5)
PROBS = (("look", "weigh", "gather", "give"),
         ("reduction",) * 3 + ("search", "gathered", "division"))
SAMPLE = (("sum",), ("choice",))
SPARE_SHARED = 8 << 10  # bytes of a block's shared memory besides the row that it holds, at most
ATTENTION_WARPS = 4     # of a block, each of which adds the splits of every fourth row
SPLITS_AT_ONCE = 16     # that a warp adds in a turn


def alone_us(card, work, loops, kernel, names, waits=()):
    """The time of one block that makes passes over the vocabulary, and waits between them, or one turn
    of a loop that reads no ids; 0 without loops of the card."""
    rows = loops.passes.get((card.loops, kernel), {})
    cycles = sum(WAITS[w] for w in waits)
    for name in names:
        if name not in rows:
            return 0.0
        turns = -(-work.target.vocab // rows[name]["ids"]) if rows[name]["ids"] else 1
        cycles += turns * rows[name]["cycles"]
    return cycles / rows[names[0]]["clock_hz"] * 1e6


def drawn_us(card, work, loops, kernel):
    """What a kernel that draws does once it has probabilities."""
    order = loops.passes.get((card.loops, kernel), {}).get("order")
    in_order = ORDERED / order["ids"] * order["cycles"] / order["clock_hz"] * 1e6 if order else 0.0
    return alone_us(card, work, loops, kernel, *SAMPLE) + in_order


def probs_kernel(card, work, loops, draws):
    """The name of the instance that is launched: one that holds the row where it fits."""
    name = "probs_kernel<{}, " + ("true>" if draws else "false>")
    rows = loops.passes.get((card.loops, name.format("true")), {})
    room = rows["look"]["block_shared_bytes"] if "look" in rows else 0
    return name.format("true" if work.target.vocab * 4 + SPARE_SHARED <= room else "false")


def probs_us(card, work, loops, draws=False):
    """Logits to probabilities, a block a row: start and end of the kernel, passes and waits. draws: a
    token is drawn from the only row."""
    kernel = probs_kernel(card, work, loops, draws)
    return (card.gap + card.small + alone_us(card, work, loops, kernel, *PROBS) +
            (drawn_us(card, work, loops, kernel) if draws else 0))


def sample_us(card, work, loops):
    """A draw from probabilities that another kernel made."""
    return card.gap + card.small + drawn_us(card, work, loops, "sample_kernel")


def verify_us(card, work, loops):
    """Proposals against probabilities, with one draw from what is left of them."""
    return card.gap + card.small + drawn_us(card, work, loops, "verify_kernel")


def issued_gbs(tile):
    """What the whole card could read if it only issued."""
    return tile["nominal_gbs"] * tile["memory_cycles"] / tile["cycles"]


def product_us(card, work, loops, product, rows):
    """A product of 1 to 32 rows at full rate: that of memory, of issuing, or of the second-level
    cache, which gives the weights and every block's rows. Rows that the first-level cache holds
    come to a multiprocessor once; of others, none are there when the next block asks for them."""
    us = product.weight_bytes / work.gbs[card.machine] / 1e3
    tile = loops.tiles.get((card.loops, product.kernel(rows)))
    if tile is None:
        return us
    times, row_bytes = product.blocks(rows), product.row_bytes(rows)
    if row_bytes <= tile["first_level_bytes"]:
        times = min(times, tile["multiprocessors"])
    from_l2 = (product.weight_bytes + times * row_bytes) / tile["l2_gbs"] / 1e3
    return max(us, product.weight_bytes / issued_gbs(tile) / 1e3, from_l2)


def split_kernel(model, rows, rotated):
    """The instance for `rows` tokens, each of which is a row for every query head of a KV head."""
    groups = -(-rows * model.group // 8)
    return f"split_kernel<T, {model.head_dim}, {groups}, {'true' if rotated else 'false'}>"


def added_us(card, loops, model, tokens, rows, rotated=False):
    """The addition of splits by the block that finishes a head last, when no other has anything to do
    any more: its arrival (two barriers, a fence, an atomic operation), then of every row of a warp
    the maxima of its splits, a tree of exchanges, and the splits, some at a time."""
    loop = loops.passes.get((card.loops, split_kernel(model, rows, rotated)), {}).get("add")
    if loop is None:
        return 0.0
    count, _ = splits(loop["multiprocessors"], model.kv_heads, tokens)
    l2 = loop["l2_cycles"]
    row = (-(-count // 32) * l2 + 5 * EXCHANGE + -(-count // SPLITS_AT_ONCE) * loop["cycles"])
    cycles = 2 * (l2 + BARRIER) + -(-rows * model.group // ATTENTION_WARPS) * row
    return cycles / loop["clock_hz"] * 1e6


def wide_attention_us(card, work, loops, which, rows):
    """One layer's attention of more packed rows than a warp has: its keys, and the sums of each
    split's warps, which one kernel writes and another one reads, with its gap and ramp."""
    model, tokens = work.attended(which)
    packed = rows * model.group
    parts = 2 if packed <= 64 else 4
    gbs = work.gbs[card.machine]
    kernel = f"wide_split_kernel<T, {model.head_dim}, {parts}, false>"
    tile = loops.tiles.get((card.loops, kernel))
    read_gbs = min(gbs, issued_gbs(tile)) if tile else gbs
    launches = -(-packed // (32 * parts))
    us = launches * (model.kv_bytes(tokens) / read_gbs / 1e3 + card.gap + card.ramp)
    if tile is None:
        return us
    count, _ = splits(tile["multiprocessors"], model.kv_heads, tokens)
    sums = count * ATTENTION_WARPS * model.kv_heads * packed * model.head_dim * 4
    return us + 2 * sums / gbs / 1e3


def attention_us(card, work, loops, which, rows):
    """One layer's attention of a pass, from its first keys at full rate on."""
    model, tokens = work.attended(which)
    if rows * model.group > 32:
        return wide_attention_us(card, work, loops, which, rows)
    rotated = which == "draft"
    kernel = split_kernel(model, rows, rotated)
    gbs = work.gbs[card.machine]
    if tile := loops.tiles.get((card.loops, kernel)):
        gbs = min(gbs, issued_gbs(tile))
    us = model.kv_bytes(tokens) / gbs / 1e3
    tile = loops.passes.get((card.loops, kernel), {}).get("tile")
    if tile is not None:  # a block turns the keys of its tiles, and has nothing to do meanwhile
        _, length = splits(tile["multiprocessors"], model.kv_heads, tokens)
        us += min(length, tokens) / 64 * alone_us(card, work, loops, kernel, ("tile",))
    return us + added_us(card, loops, model, tokens, rows, rotated)
