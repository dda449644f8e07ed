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

SCHEMA = "triforce-bench.result/3"
WIDTH, LEFT, ROW, TOP = 760, 130, 44, 62
CHARACTER = 7.9  # width of the widest digits of the labels, with room to spare
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


class BadResult(Exception):
    """One line: what was expected and what was found."""


def read_result(path):
    """A result document, or BadResult."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise BadResult(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadResult(f"expected UTF-8, found another byte at {error.start}") from error
    try:
        result = json.loads(text)
    except json.JSONDecodeError as error:
        lines = text.strip().splitlines()
        if len(lines) > 1 and lines[0].startswith('{"schema":"triforce-bench.result/'):
            raise BadResult("expected a file that --json wrote, found lines of --jsonl") from error
        raise BadResult(f"expected JSON, found none at line {error.lineno}: {error.msg}") from error
    found = result.get("schema") if isinstance(result, dict) else None
    if found != SCHEMA:
        raise BadResult(f"schema: expected {SCHEMA}, found {found}")
    if "cases" not in result:
        raise BadResult("expected a file that --json wrote, found a line of --jsonl")
    return result


def rows_of(result):
    """(method, ms per token, low, high, speedup or None) of every case that was measured."""
    rows = []
    for case in result["cases"]:
        ms = case["timing"]["ms_per_token"]
        if ms["geometric_mean"] is None:
            continue
        rows.append((case["method"], ms["geometric_mean"], ms["ci95_low"], ms["ci95_high"],
                     case["speedup"]))
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
    machine = context["gpu_name"] or f"{context['cpu_model']}, {context['threads']} threads"
    model = f"{count(target['n_params'])} parameters, {target['dtype']}" if target else "no model"
    return (f"{model}, prompt of {params['prefill']} tokens, temperature {params['temp']}; "
            f"{machine}")[:115]


def count(n):
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.1f} M"


def label_of(ms, speedup):
    text = f"{ms:.3g} ms"
    if speedup and speedup["value"] is not None:
        text += f", {speedup['value']:.2f}x"
        if speedup["ci95_low"] is not None and speedup["ci95_high"] is not None:
            text += f" ({speedup['ci95_low']:.2f}\u2013{speedup['ci95_high']:.2f})"
    return text


def draw(result):
    rows = rows_of(result)
    if not rows:
        raise BadResult("expected a case with a measured time per token, found none")
    ends = [max(ms, high or ms) for _, ms, _, high, _ in rows]
    labels = [label_of(ms, speedup) for _, ms, _, _, speedup in rows]
    largest = max(ends)
    # Every label must end within the picture.
    scale = min((WIDTH - LEFT - 20 - CHARACTER * len(label)) / end
                for end, label in zip(ends, labels))
    over = {case["timing"]["ms_per_token"]["ci95_over"] for case in result["cases"]} - {None}
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
    for i, (method, ms, low, high, _) in enumerate(rows):
        y = TOP + ROW * i
        kind = "bar triforce" if method == "triforce" else "bar"
        out.append(f'<text x="{LEFT - 10}" y="{y + 21}" text-anchor="end">{html.escape(NAMES.get(method, method))}</text>')
        out.append(f'<rect class="{kind}" x="{LEFT}" y="{y + 4}" width="{ms * scale:.1f}" height="26" rx="3"/>')
        if low is not None and high is not None:
            a, b = LEFT + low * scale, LEFT + high * scale
            out.append(f'<line class="whisker" x1="{a:.1f}" y1="{y + 17}" x2="{b:.1f}" y2="{y + 17}"/>')
        out.append(f'<text x="{LEFT + ends[i] * scale + 8:.1f}" y="{y + 22}">{labels[i]}</text>')
    if over:
        of = "prompts" if over == {"prompts"} else "repetitions of one prompt"
        out.append(f'<text class="small" x="10" y="{bottom + 36}">'
                   f"Lines and brackets: 95% confidence intervals over {of}.</text>")
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", help="a file that --json wrote")
    parser.add_argument("--out", help="the SVG file to write; standard output if not given")
    args = parser.parse_args()
    try:
        result = read_result(args.result)
        try:
            picture = draw(result)
        except (KeyError, TypeError, IndexError) as error:
            raise BadResult(f"expected all fields of {SCHEMA}, found none for {error}") from error
        if args.out is None:
            sys.stdout.write(picture)
            return
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(picture)
    except BadResult as error:
        print(f"plot_result: error: {args.result}: {error}", file=sys.stderr)
        sys.exit(3)
    except OSError as error:
        out = args.out or "standard output"
        print(f"plot_result: error: {out}: cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(4)


if __name__ == "__main__":
    main()
