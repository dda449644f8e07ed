#!/usr/bin/env python3
"""Counts the words of every sentence of the pages and help texts, and fails where one has too many.

A sentence ends with a full stop, a question mark or an exclamation mark, and with the paragraph, the
list's item or the table's cell. Code blocks, headings, addresses and separators of tables are left
out. `code` is one word, and so is a number. In a help text (.txt) each command's and each option's
description is a paragraph, and so is what stands in brackets behind it.
"""
import argparse
import math
import pathlib
import re
import statistics
import subprocess
import sys

import pages

MOST_WORDS = 25
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|vs|et al|cf|approx|no)\.$", re.IGNORECASE)
# A paragraph, a command or an option: "  -n, --name N    what it is", or that on lines of its own.
HELP_ENTRY = re.compile(r"^(?:(?!Usage:|---)(?:\S.*\n)+|  (?!triforce-bench )\S.*\n(?: {3}.*\n)*)", re.MULTILINE)
HELP_NAME = re.compile(r"^  (?:-.{26}|\S+ +)")
END = re.compile(r"(?<=[.!?])[\"')\]*_]*(?=\s|$)")


def units_of(text):
    """(line, text, whether it is a table's cell) of every paragraph, list item and cell."""
    units, words, begin = [], [], 0

    def finish():
        if words:
            units.append((begin, " ".join(words), False))
            words.clear()

    for number, line in enumerate(pages.without_code(text).splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            finish()
        elif bare.startswith("|"):
            finish()
            if not re.fullmatch(r"[|:\s-]+", bare):
                code_safe = re.sub(r"`[^`]*`", lambda m: m[0].replace("|", "/"), bare.replace("\\|", "/"))
                units += [(number, cell.strip(), True) for cell in code_safe.strip("|").split("|")]
        else:
            item = re.match(r"(?:[-*]|\d+\.) +(.*)", bare)
            if item or not words:
                finish()
                begin = number
            words.append(item[1] if item else bare)
    finish()
    return units


def units_of_help(text):
    """The same of a help text: usages, examples, and names, values and defaults are left out."""
    units = []
    for entry in HELP_ENTRY.finditer(text):
        lines = entry[0].splitlines()
        below = [line for line in lines if re.match(r" {6}\S", line)]
        lines[0] = HELP_NAME.sub("", lines[0])
        words = " ".join(line.strip() for line in below or lines)
        described, _, values = words.partition(" [")
        begin = text.count("\n", 0, entry.start()) + 1
        units += [(begin, part, False) for part in (described, values.removesuffix("]"))]
    return units


def sentences_of(text, name="page.md"):
    """[line, count of words, sentence, whether it is of a table] of a page, or of a help text (.txt)."""
    found = []
    for line, unit, cell in (units_of_help if name.endswith(".txt") else units_of)(text):
        plain = re.sub(r"`[^`]*`", "Code", unit)
        plain = pages.LINK.sub(lambda m: f" {m[2]}. " if m[1] else m[2], plain)
        plain = re.sub(r"<?https?://\S+", "", plain)
        part = ""
        for piece in END.sub("\n", plain).split("\n"):
            part += piece
            if ABBREVIATION.search(part.rstrip()):
                continue
            count = sum(1 for word in part.split() if re.search(r"\w", word))
            if count:
                found.append((line, count, " ".join(part.split()), cell))
            part = ""
        if part.strip():
            found.append((line, len(part.split()), part.strip(), cell))
    return found


def numbers_of(counts):
    """"median, 90th percentile, longest" of counts of words."""
    if not counts:
        return "0 sentences"
    counts = sorted(counts)
    ninetieth = counts[math.ceil(0.9 * len(counts)) - 1]
    over = sum(count > MOST_WORDS for count in counts)
    return (f"{len(counts)} sentences, words: median {statistics.median(counts):g}, "
            f"90th percentile {ninetieth}, longest {counts[-1]}; {over} over {MOST_WORDS}")


def print_numbers(name, sentences):
    print(f"{name}: {numbers_of([s[1] for s in sentences])}")
    if any(s[3] for s in sentences):
        print(f"    without tables: {numbers_of([s[1] for s in sentences if not s[3]])}")


def text_at(root, revision, page):
    """The page at a revision of git; None: it was not there."""
    done = subprocess.run(["git", "-C", str(root), "show", f"{revision}:{page}"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout if done.returncode == 0 else None


def compare(root, revision, names):
    all_before, all_now = [], []
    for page in names:
        text = text_at(root, revision, page)
        if text is None:
            print(f"{page} at {revision}: not there")
        else:
            before = sentences_of(text, page)
            print_numbers(f"{page} at {revision}", before)
            all_before += before
        now = sentences_of((root / page).read_text(encoding="utf-8"), page)
        print_numbers(f"{page} now", now)
        all_now += now
    print_numbers(f"all at {revision}", all_before)
    print_numbers("all now", all_now)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).parents[2],
                        help="root of the project")
    parser.add_argument("--compare", metavar="REV",
                        help="print the numbers of a revision and of now; no sentence is too long then")
    parser.add_argument("pages", nargs="*", help="below the root (default: those that must pass)")
    args = parser.parse_args()
    if args.compare:
        compare(args.source, args.compare, args.pages or pages.WRITTEN + pages.HELP)
        return
    everything, long_ones = [], 0
    for page in args.pages or pages.WRITTEN + pages.HELP:
        text = (args.source / page).read_text(encoding="utf-8")
        lines = text.count("\n")
        if page == pages.FRONT and lines > pages.FRONT_LINES:
            sys.exit(f"{page}: expected at most {pages.FRONT_LINES} lines, found {lines}")
        sentences = sentences_of(text, page)
        print_numbers(page, sentences)
        for line, count, sentence, _ in sentences:
            if count > MOST_WORDS:
                print(f"{page}:{line}: expected at most {MOST_WORDS} words, found {count}: {sentence}")
                long_ones += 1
        everything += sentences
    print_numbers("all", everything)
    if not everything:
        sys.exit("expected sentences, found none")
    sys.exit(1 if long_ones else 0)


if __name__ == "__main__":
    main()
