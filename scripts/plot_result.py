#!/usr/bin/env python3
"""Draws milliseconds per token of each method, with speedups, from a result of triforce-bench.

usage: scripts/plot_result.py RESULT.json [--out PICTURE.svg]

The picture is plain SVG that follows the reader's light or dark theme; it needs no packages.
"""

import argparse
import html
import json
import math
import sys

WIDTH, LEFT, RIGHT, ROW, TOP = 760, 130, 190, 44, 62
NAMES = {"ar": "autoregressive", "draft": "drafter alone"}
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 16px }
.small { font-size: 12px; fill: #59636e }
.axis { stroke: #d1d9e0 }
.bar { fill: #8c959f } .triforce { fill: #0969da } .whisker { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .axis { stroke: #3d444d }
  .bar { fill: #656c76 } .triforce { fill: #4493f8 } .whisker { stroke: #f0f6fc }
}"""


def rows_of(result):
    """(method, ms per token, low, high, speedup or None) of every case that was measured."""
    rows = []
    for case in result["cases"]:
        ms = case["timing"]["ms_per_token"]
        if ms["median"] is None:
            continue
        rows.append((case["method"], ms["median"], ms["ci95_low"], ms["ci95_high"], case["speedup"]))
    return rows


def axis_step(largest):
    """A round step that gives four to eight ticks up to `largest`."""
    step = 10 ** math.floor(math.log10(largest))
    for divisor in (1, 2, 5, 10):
        if largest / (step / divisor) >= 4:
            return step / divisor
    return step / 10


def subtitle(result):
    case, context = result["cases"][0], result["context"]
    params, target = case["params"], case["model"]["target"]
    size = f"{target['n_params'] / 1e6:.1f} M parameters" if target else "unknown target"
    return (f"{size}, {target['dtype'] if target else '?'}, prompt of {params['prefill']} tokens, "
            f"temperature {params['temp']}; {context['cpu_model']}, {context['threads']} threads")


def draw(result):
    rows = rows_of(result)
    if not rows:
        raise ValueError("no case of the result has a measured time per token")
    largest = max(max(ms, high or ms) for _, ms, _, high, _ in rows)
    scale = (WIDTH - LEFT - RIGHT) / largest
    bottom = TOP + ROW * len(rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 44}" role="img">',
           f"<style>{STYLE}</style>",
           f'<text class="title" x="10" y="22">Milliseconds per token (less is better)</text>',
           f'<text class="small" x="10" y="42">{html.escape(subtitle(result))}</text>']
    step = axis_step(largest)
    for i in range(int(largest / step) + 1):
        x = LEFT + i * step * scale
        out.append(f'<line class="axis" x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}"/>')
        out.append(f'<text class="small" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{i * step:g}</text>')
    for i, (method, ms, low, high, speedup) in enumerate(rows):
        y = TOP + ROW * i
        kind = "bar triforce" if method == "triforce" else "bar"
        out.append(f'<text x="{LEFT - 10}" y="{y + 21}" text-anchor="end">{html.escape(NAMES.get(method, method))}</text>')
        out.append(f'<rect class="{kind}" x="{LEFT}" y="{y + 4}" width="{ms * scale:.1f}" height="26" rx="3"/>')
        end = max(ms, high or ms)
        if low is not None and high is not None:
            a, b = LEFT + low * scale, LEFT + high * scale
            out.append(f'<line class="whisker" x1="{a:.1f}" y1="{y + 17}" x2="{b:.1f}" y2="{y + 17}"/>')
        label = f"{ms:.3g} ms"
        if speedup and speedup["value"] is not None:
            label += f", {speedup['value']:.2f}x"
            if speedup["ci95_low"] is not None:
                label += f" ({speedup['ci95_low']:.2f}\u2013{speedup['ci95_high']:.2f})"
        out.append(f'<text x="{LEFT + end * scale + 8:.1f}" y="{y + 22}">{label}</text>')
    out.append(f'<text class="small" x="10" y="{bottom + 36}">Lines and brackets: 95% intervals.</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", help="a file that --json wrote")
    parser.add_argument("--out", help="the SVG file to write; standard output if not given")
    args = parser.parse_args()
    with open(args.result, encoding="utf-8") as file:
        result = json.load(file)
    if result.get("schema") != "triforce-bench.result/1":
        sys.exit(f"{args.result}: expected schema triforce-bench.result/1, found {result.get('schema')}")
    picture = draw(result)
    if args.out is None:
        sys.stdout.write(picture)
        return
    with open(args.out, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
