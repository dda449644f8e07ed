"""What audit_server.py prints and writes."""

import json
import statistics

from audit.comparison import unit_of

FORMAT = "triforce-bench.audit/1"
EXIT = {"equal": 0, "different": 1, "undecided": 8}


def clean(text):
    """Text that cannot drive a terminal: what is not printable, as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def figure(value):
    """As in ".87 (95% CI .80 to .92)"."""
    if value is None:
        return "not known"
    ends = "" if value["low"] is None else f" (95% CI {value['low']:.3f} to {value['high']:.3f})"
    return f"{value['value']:.3f}{ends}"


def acceptance(drafted, accepted):
    return f"{accepted / drafted:.3f}" if drafted else ""


def row_cells(number, row):
    reply = row.speculative
    return [str(number), f"{row.prompt_tokens:,}", f"{row.generated:,}" if row.agreed is not None else "",
            f"{row.agreed:,}" if row.agreed is not None else "",
            acceptance(reply.drafted, reply.accepted) if reply else "", row.status]


def aligned(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.rjust(width) if i < len(widths) - 1 else cell
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def difference_line(what, other, found, unit):
    margin = "" if found.margin is None else f"; margin {found.margin:.4f} nats"
    return (f"{what}: {unit} {found.index}: plain {found.plain!r}, {other} {found.other!r}, after {found.before!r}"
            f"{margin}")


def notes(rows, unit):
    """A line for each difference and each doubt."""
    lines = []
    for number, row in enumerate(rows, 1):
        name = f"prompt {number} ({row.prompt.where}, character {row.prompt.start})"
        if row.own:
            lines.append(difference_line(f"{name}, repeat {row.own_repeat}", "again", row.own, unit))
        if row.difference:
            lines.append(difference_line(name, "speculative", row.difference, unit))
        if row.status == "undecided":
            lines.append(f"{name}: {row.reason}")
    return lines


def lengths_of(rows):
    lengths = [row.prompt_tokens for row in rows]
    return {"smallest": min(lengths), "median": statistics.median(lengths), "greatest": max(lengths)}


def last_line(outcome, reasons, rows, unit):
    if outcome == "equal":
        generated = sum(row.generated for row in rows)
        return f"equal: speculation gave the plain server's {unit}s in all {len(rows)} prompts ({generated:,} {unit}s)"
    if outcome == "different":
        different = sum(row.status == "different" for row in rows)
        return f"different: speculation changed the {unit}s of {different} of {len(rows)} prompts"
    return f"undecided: {'; '.join(reasons)}"


def screen(document, rows, short, asked):
    """The table and the sentences below it."""
    unit, found, length = document["unit"], document["totals"], lengths_of(rows)
    lines = [f"{name + ':':<13}{document[name]['url']}, model {document[name]['model']}, "
             f"fields {json.dumps(document[name]['fields'])}" for name in ("speculative", "plain")]
    lines.append(f"prompts:     {len(rows)} of {asked} with {length['smallest']:,} to {length['greatest']:,} tokens "
                 f"(asked for: {document['length']:,})" + (f"; too short: {short} documents" if short else ""))
    lines += ["", *aligned([["prompt", "tokens", f"{unit}s out", "agreed", "acceptance", "outcome"],
                            *(row_cells(number, row) for number, row in enumerate(rows, 1))]), ""]
    lines += [*differences, ""] if (differences := notes(rows, unit)) else []
    lines.append(f"equal prompts: {found['equal']} of {found['decided']}, share {figure(found['equal_share'])}")
    lines.append(f"{unit}s before the first difference: share {figure(found['agreed_share'])}, "
                 f"median {found['agreed_median'] if found['decided'] else 'not known'}")
    lines.append(f"plain server unlike itself: {found['not_repeated']} of {found['prompts']} prompts, "
                 f"{document['repeat']} repeats")
    lines.append("drafts: the server does not count them, so nothing shows that it speculated"
                 if found["drafted"] is None else
                 f"drafts: {found['accepted']:,} of {found['drafted']:,} tokens accepted "
                 f"({acceptance(found['drafted'], found['accepted']) or 'none'})")
    if unit == "character":
        lines.append("characters are compared: the server does not name all tokens")
    lines.append(last_line(document["outcome"], document["reasons"], rows, unit))
    return "".join(f"{clean(line)}\n" for line in lines)


def difference_object(found, repeat=None):
    if found is None:
        return None
    names = {"index": found.index, "plain": found.plain, "other": found.other, "before": found.before,
             "plain_after": found.plain_after, "other_after": found.other_after, "margin_nats": found.margin}
    return names if repeat is None else {**names, "repeat": repeat}


def prompt_object(row):
    reply = row.speculative
    return {"document": row.prompt.where, "start": row.prompt.start, "characters": len(row.prompt.text),
            "prompt_tokens": row.prompt_tokens, "status": row.status, "reason": row.reason,
            "generated": row.generated if row.agreed is not None else None, "agreed": row.agreed,
            "difference": difference_object(row.difference),
            "own_difference": difference_object(row.own, row.own_repeat),
            "drafted": reply.drafted if reply else None, "accepted": reply.accepted if reply else None}


def server_object(server):
    return {"url": server.root, "model": server.model, "fields": server.hide(server.fields),
            "logprobs": server.logprobs > 0}


def document_of(args, servers, rows, found, said):
    """What --json writes."""
    outcome, reasons = said
    return {"schema": FORMAT, "speculative": server_object(servers[0]), "plain": server_object(servers[1]),
            "dataset": args.dataset, "length": args.length, "lengths": lengths_of(rows),
            "gen_len": args.gen_len, "repeat": args.repeat, "unit": unit_of(rows),
            "prompts": [prompt_object(row) for row in rows], "totals": found,
            "outcome": outcome, "exit_code": EXIT[outcome], "reasons": reasons}
