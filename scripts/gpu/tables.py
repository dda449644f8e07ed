"""The tables of scripts/cuda_model.py, for people."""
from gpu import kernels, passes
from lib import gpu_goals


def _lines(first, columns, rows):
    yield f"| {first} | " + " | ".join(columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for name, cells in rows:
        yield f"| {name} | " + " | ".join(cells) + " |"


def pass_table(work, loops, cards):
    """Passes, steps and TriForce."""
    def floor_us(card, which):
        return work.bytes[which] / work.gbs[card.machine] / 1e3
    predicted = {card.name: passes.times(card, work, loops) for card in cards}
    counts = ", ".join(str(work.kernels[which]) for which in ("full", "draft"))
    rows = [("kernels of a pass: full, drafter", lambda c: counts)]
    for name, key, which, scale, digits in (
            ("AR step, ms (bytes alone)", "ar", "full", 1e3, 2),
            ("verify, 7 rows, ms", "verify", "full", 1e3, 2),
            ("retrieval pass, 2 rows, ms", "retrieval", "retrieval", 1e3, 2),
            ("drafter pass, us", "draft", "draft", 1, 0)):
        rows.append((name, lambda c, k=key, w=which, s=scale, d=digits:
                     f"{predicted[c.name][k] / s:.{d}f} ({floor_us(c, w) / s:.{d}f})"))
    def in_steps(c, n):
        us = passes.pass_us(c, work, loops, "full", n)
        return f"{us / 1e3:.1f} ({us / predicted[c.name]['full']:.2f})"
    for n in (16, 64, 128):
        rows.append((f"verify, {n} rows, ms (in passes of one)", lambda c, n=n: in_steps(c, n)))
    rows.append(("drafter step, us", lambda c: f"{predicted[c.name]['draft step']:.0f}"))
    rows.append(("kernels probs and sample, us (apart)", lambda c: (
        f"{kernels.probs_us(c, work, loops, draws=True):.0f} "
        f"({kernels.probs_us(c, work, loops) + kernels.sample_us(c, work, loops):.0f})")))
    rows.append(("kernel verify, us", lambda c: f"{kernels.verify_us(c, work, loops):.0f}"))
    rows.append(("addition of splits, us of a pass of 1 row (of 7)", lambda c: "{:.0f} ({:.0f})".format(
        *(work.target.layers * kernels.added_us(c, loops, work.target, work.prompt, n)
          for n in (1, 7)))))
    for gammas, rates in ((gpu_goals.PAPER_GAMMAS, gpu_goals.OPTIMISTIC_RATES),
                          ((14, 6), gpu_goals.OPTIMISTIC_RATES),
                          (gpu_goals.PAPER_GAMMAS, gpu_goals.PAPER_RATES)):
        def cell(c, g=gammas, r=rates):
            us = passes.triforce_us(c, work, loops, g, r)
            return f"{us / 1e3:.2f} ({predicted[c.name]['ar'] / us:.2f}x)"
        rows.append((f"TriForce {gammas[0]}/{gammas[1]} at {rates['outer']:g}/{rates['inner']:g}, "
                     "ms a token", cell))
    rows.append((f"prefill of {work.prompt}, s", lambda c: (
        f"{sum(passes.prefill_s(c, work, loops).values()):.1f}")))
    for part in passes.prefill_s(cards[0], work, loops):
        rows.append((f"- {part}", lambda c, p=part: f"{passes.prefill_s(c, work, loops)[p]:.1f}"))
    rows.append(("- attention, TFLOP/s by its machine code, or measured", lambda c: (
        f"{passes.prefill_tflops(c, work, loops):.0f}"
        f"{' (measured)' if c.prefill_tflops else ''}")))
    rows.append(("- products, TFLOP/s of cuBLASLt, **assumed** but on an H200 and a GB10", lambda c: f"{c.cublas_tflops}"))
    return _lines("as if it fitted, achieved",
                  [f"{c.name}, {work.gbs[c.machine] / 1e3:.2f} TB/s" for c in cards],
                  [(name, [cell(c) for c in cards]) for name, cell in rows])


def goal_table(work, loops, cards):
    """Goals of gpu_goals, and whether they are met by what is predicted."""
    found = [passes.goals(card, work, loops) for card in cards]

    def cell(card, goal, value):
        most, least = goal.most_on(card.name), goal.at_least
        text = f"{value:.3g}" if value < 100 else f"{value:.0f}"
        if most is not None:
            return f"{text}, at most {most:g}: {'met' if value <= most else '**exceeded**'}"
        if least is not None:
            return f"{text}, at least {least:g}: {'met' if value >= least else '**missed**'}"
        return text
    return _lines("goal", [c.name for c in cards], [
        (of_goal[0][1], [cell(card, goal, value)
                         for card, (goal, _, value) in zip(cards, of_goal)])
        for of_goal in zip(*found)])


def constants_table(work, loops, cards):
    """What `plan` is to take the passes of its built-in machines for."""
    def cells(card):
        overhead, gap = passes.plan_constants(card, work, loops)
        return f"{overhead:.4f}, {gap:.5f}"
    return _lines("`plan`: pass_overhead_ms, kernel_gap_ms", [c.machine for c in cards],
                  [("of the passes above", [cells(c) for c in cards])])


def kernel_table(work, loops, cards, measured):
    """Kernels by the names of `triforce-cuda-bench`. measured: {card's name: {name: us}}."""
    found = {card.name: passes.benchmark_us(card, work, loops) for card in cards}

    def cell(card, name):
        us, seen = found[card.name][name], measured.get(card.name, {}).get(name)
        return f"{us:.1f}" + (f", measured {seen:.1f} ({seen / us:.2f}x)" if seen is not None else "")
    return _lines("kernels and passes, us", [c.name for c in cards], [
        (name, [cell(c, name) for c in cards]) for name in found[cards[0].name]])
