"""Microseconds of passes, steps, rounds of TriForce, and of a prefill."""
from gpu import kernels
from lib import gpu_goals

PREFILL_ROWS = 4096   # of a pass of a prefill: kPrefillRows of src/cuda/cuda_backend.cpp
PREFILL_QUERIES = 128  # of a block of its attention


def launches_us(card, count, products, attentions):
    """Gaps, ramps and small kernels of a recorded pass."""
    small = count - products - attentions
    us = (products + attentions) * card.ramp + small * card.small + count * card.gap
    if card.early is not None:  # all but the first
        us -= (count - 1) * (card.gap - card.early.gap + card.early.start)
        us -= products * card.early.first
    return us


def alone_in_sequence_us(card, product):
    """What a kernel costs besides its bytes among others of its kind: a gap and a ramp."""
    us = card.gap + card.ramp
    if card.early is not None:
        us -= card.gap - card.early.gap + card.early.start + (card.early.first if product else 0)
    return us


def pass_us(card, work, loops, which, rows):
    """A pass over the full cache, the retrieval cache or the drafter's: its products and attentions,
    and what lies between them."""
    model, _ = work.attended(which)
    of_layer = sum(kernels.product_us(card, work, loops, p, rows) for p in model.layer_products())
    if rows > 32:  # RoPE and SwiGLU are kernels of their own
        of_layer += 2 * (card.gap + card.small)
    return (model.layers * (of_layer + kernels.attention_us(card, work, loops, which, rows)) +
            kernels.product_us(card, work, loops, model.head(), rows) +
            launches_us(card, work.kernels[which], 4 * model.layers + 1, model.layers))


def expected_round(gamma, inner_gamma, outer, inner):
    """(tokens, inner rounds, drafted tokens) of an outer round: inner rounds add what they accept
    and one more until `gamma` are there; `outer` and `inner` are acceptance per token."""
    gain = [inner**k * (1 - inner) for k in range(inner_gamma)] + [inner**inner_gamma]
    reaches = [1.0] + [0.0] * (gamma + inner_gamma)  # probability of having m tokens
    rounds = 0.0
    for m in range(gamma):
        rounds += reaches[m]
        for k, p in enumerate(gain):
            reaches[m + k + 1] += reaches[m] * p
    tokens = sum(reaches[m] * sum(outer**k for k in range(m + 1))
                 for m in range(gamma, gamma + inner_gamma + 1))
    return tokens, rounds, rounds * inner_gamma


def times(card, work, loops):
    """Microseconds of single passes, and of steps with what lies between them."""
    plain = pass_us(card, work, loops, "full", 1)
    draft = pass_us(card, work, loops, "draft", 1)
    drawn = kernels.probs_us(card, work, loops, draws=True) + card.host + card.upload
    return {"full": plain, "ar": plain + drawn,
            "verify": pass_us(card, work, loops, "full", 7),
            "retrieval": pass_us(card, work, loops, "retrieval", 2),
            "draft": draft, "draft step": draft + drawn}


def triforce_us(card, work, loops, gammas, rates):
    """Of a token."""
    t = times(card, work, loops)
    tokens, rounds, drafted = expected_round(*gammas, rates["outer"], rates["inner"])
    verify = pass_us(card, work, loops, "full", gammas[0] + gammas[1] + 1)
    judged = (kernels.probs_us(card, work, loops) + kernels.verify_us(card, work, loops) +
              card.host + card.upload)
    retrieval = pass_us(card, work, loops, "retrieval", gammas[1] + 1)
    return (rounds * (retrieval + judged) + drafted * t["draft step"] + verify + judged) / tokens


def prefill_tflops(card, work, loops):
    """What attention of a prefill achieves: as measured, or operations of a turn of the loop over its
    cycles, less what is idle while the last blocks of a launch end; without loops what cuBLASLt
    does."""
    if card.prefill_tflops:
        return card.prefill_tflops
    tile = loops.tiles.get((card.loops, f"prefill_kernel<T, {work.target.head_dim}, false>"))
    if tile is None:
        return card.cublas_tflops
    at_once = tile["multiprocessors"] * tile["blocks"]
    blocks = -(-min(work.prompt, PREFILL_ROWS) // PREFILL_QUERIES) * work.target.heads
    filled = blocks / at_once / -(-blocks // at_once)
    return (tile["operations"] / tile["cycles"] * tile["clock_hz"] * tile["multiprocessors"] *
            filled / 1e12)


def prefill_s(card, work, loops):
    """{part: seconds}: attention over half a square of the prompt; products, at cuBLASLt's assumed
    rate; before them weights in the library's order, of which the kernel writes two bytes at a time
    into the second-level cache, four times the same sectors; norms, RoPE and SwiGLU, which read and
    write rows."""
    model, gbs = work.target, work.gbs[card.machine]
    weights = model.layers * sum(p.outputs * p.inputs for p in model.layer_products())
    width = model.heads * model.head_dim
    attention = 4 * width * work.prompt**2 / 2 * model.layers
    l2_gbs = next((t["l2_gbs"] for (of, _), t in loops.tiles.items() if of == card.loops), None)
    unpacked_s = max(2 * 2 * weights / gbs, 2 * 5 * weights / l2_gbs if l2_gbs else 0) / 1e9
    qkv = (model.heads + 2 * model.kv_heads) * model.head_dim
    row_bytes = 2 * (4 + 2) * model.hidden + 2 * 2 * qkv + 3 * 2 * model.intermediate
    return {"attention": attention / prefill_tflops(card, work, loops) / 1e12,
            "products": 2 * work.prompt * weights / card.cublas_tflops / 1e12,
            "weights' order": unpacked_s * -(-work.prompt // PREFILL_ROWS),
            "rows": work.prompt * model.layers * row_bytes / gbs / 1e9}


def plan_constants(card, work, loops):
    """(pass_overhead_ms, kernel_gap_ms) with which `plan`, which adds them to the bytes of a pass, has
    an autoregressive step and a drafter's step take what they take here."""
    t = times(card, work, loops)
    rest, counts = [], []
    for step, which in (("ar", "full"), ("draft step", "draft")):
        rest.append(t[step] - work.bytes[which] / work.gbs[card.machine] / 1e3)
        counts.append(work.kernels[which])
    gap = (rest[0] - rest[1]) / (counts[0] - counts[1])
    return (rest[1] - counts[1] * gap) / 1e3, gap / 1e3


def benchmark_us(card, work, loops):
    """{name of `triforce-cuda-bench`: microseconds} of what passes consist of. It waits for the result
    of every draw, and uploads what every pass is about."""
    found = {}
    for model in (work.target, work.draft):
        for product in model.products():
            for rows in (1, 2, 7, 16, 32, 64, 70, 96, 128):
                found[f"linear/{model.name}_{product.name}/{rows}"] = (
                    kernels.product_us(card, work, loops, product, rows) +
                    alone_in_sequence_us(card, True))
    for name, which, all_rows in (("7b_full", "full", (1, 7, 16, 32, 64, 128)),
                                  ("7b_retrieval", "retrieval", (1, 2, 7, 16)),
                                  ("68m_streaming", "draft", (1, 2, 7))):
        for rows in all_rows:
            found[f"attention/{name}/{rows}"] = (
                kernels.attention_us(card, work, loops, which, rows) +
                alone_in_sequence_us(card, False))
    found["to_probs/1"] = kernels.probs_us(card, work, loops)
    found["to_probs_and_sample/1"] = kernels.probs_us(card, work, loops, draws=True) + card.host
    found["sample/1"] = kernels.sample_us(card, work, loops) + card.host
    found["verify/1"] = kernels.verify_us(card, work, loops) + card.host
    for name, which in (("68m_streaming", "draft"), ("7b_retrieval", "retrieval")):
        for rows in (1, 2, 7):
            found[f"pass/{name}/{rows}"] = pass_us(card, work, loops, which, rows) + card.upload
    found["step/68m_streaming/1"] = times(card, work, loops)["draft step"]
    return found


def goals(card, work, loops):
    """[(goal, its name, what is predicted)] of those that are about kernels and passes."""
    t, bench = times(card, work, loops), benchmark_us(card, work, loops)
    gbs = work.gbs[card.machine]
    found = []
    for rows in (1, 7, 16):
        kv = work.target.kv_bytes(work.prompt) / gbs / 1e3
        shares = {p.name: p.weight_bytes / gbs / 1e3 / bench[f"linear/7b_{p.name}/{rows}"]
                  for p in work.target.products()}
        found.append((gpu_goals.ATTENTION, rows, kv / bench[f"attention/7b_full/{rows}"]))
        found.append((gpu_goals.LINEAR, rows, min(shares.values())))
    floor = work.bytes["full"] / gbs / 1e3
    found += [
        (gpu_goals.STEP, None, t["ar"] / floor),
        (gpu_goals.VERIFICATION, None, t["verify"] / t["full"]),
        (gpu_goals.RETRIEVAL, None, t["retrieval"] / 1e3),
        (gpu_goals.DRAFTER, None, t["draft step"]),
        (gpu_goals.TRIFORCE, None, triforce_us(card, work, loops, gpu_goals.PAPER_GAMMAS,
                                               gpu_goals.PAPER_RATES) / 1e3),
        (gpu_goals.PREFILL, None, sum(prefill_s(card, work, loops).values()))]
    return [(goal, goal.name.format(words), value) for goal, words, value in found]
