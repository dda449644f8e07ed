#!/usr/bin/env python3
"""Measures whether a server's speculative decoding is lossless: greedy tokens with and without it must be equal.

usage: scripts/audit_server.py URL --model M --dataset FILE.txt|FILE.jsonl --length N
           {--plain-url URL2 [--plain-model M2] | --speculative JSON | --plain JSON} [option...]

URL is the base of an API like OpenAI's, with or without /v1: vLLM, llama.cpp and others. The server without
speculation is another one (--plain-url), or the same one with other JSON fields in its requests. An example is
--plain '{"speculative.n_max": 0}'. A server may ignore a field; only drafted tokens that it counts show that.
Each prompt goes to the plain server, to the speculating one, and to the plain server again. Where the plain
server does not repeat itself, a difference is its own. Tokens are compared where replies name all of them
(logprobs), else characters. The counts of the server say how much text makes a prompt of --length. A key in
OPENAI_API_KEY goes to both servers and into no output.
"""

import json
import os
import re
import sys
import time

from audit.comparison import Row, judge, totals, unit_of, verdict
from audit.prompts import Cutter
from audit.server import Server
from audit.table import EXIT, document_of, screen
from encode_dataset import documents
from plots.command import BadInput, NoAnswer, check_output, parser, run, write_file
from plots.results import parse

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from download import is_url  # noqa: E402  pylint: disable=wrong-import-position

NAME = "audit_server"
KEY = "OPENAI_API_KEY"
# Fields that the script itself decides: others would make a comparison of something else.
OWN_FIELDS = ("model", "prompt", "max_tokens", "temperature", "seed", "logprobs", "stream", "n", "best_of", "echo")
FAILURES = 2  # prompts in a row, after which no more are tried
EPILOG = """exit codes:
  0  all tokens are equal
  1  speculation changed tokens, and the plain server repeats its own
  2  wrong usage
  3  bad input: the data set, or a reply that is not what it should be
  4  a server cannot be reached, is late or reports an error
  8  undecided: the plain server does not repeat itself, a reply is cut or missing, or nothing was drafted"""


class Progress:
    """A line on a terminal's stderr that changes; nothing elsewhere."""

    def __init__(self):
        self.terminal, self.begin = sys.stderr.isatty(), time.monotonic()

    def tell(self, what):
        if self.terminal:
            print(f"\r\033[K{what} ({time.monotonic() - self.begin:.0f} s)", end="", file=sys.stderr, flush=True)

    def end(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def fields_of(options, name, text):
    """The object of --speculative or --plain."""
    try:
        value = parse(text)
    except ValueError as error:
        options.error(f"{name}: expected a JSON object, found {error}")
    if not isinstance(value, dict):
        options.error(f"{name}: expected a JSON object, found {value!r:.40}")
    for field in OWN_FIELDS:
        if field in value:
            options.error(f"{name}: expected fields that this script does not decide, found {field!r}")
    return value


def key_of(options, name):
    """The key of the environment, or None."""
    key = os.environ.get(name or KEY)
    if name and not key:
        options.error(f"--api-key-env: expected a variable that is set, found {name!r}")
    if key and not re.fullmatch("[!-~]+", key):
        options.error(f"{name or KEY}: expected printable ASCII without spaces, found other characters")
    return key or None


def check_numbers(options, args):
    for name, least in (("length", 1), ("prompts", 1), ("gen_len", 1), ("repeat", 0), ("logprobs", 0)):
        if getattr(args, name) < least:
            options.error(f"--{name.replace('_', '-')}: expected at least {least}, found {getattr(args, name)}")
    if not 0 < args.timeout <= 1e6:
        options.error(f"--timeout: expected seconds above 0, found {args.timeout:g}")


def arguments():
    options = parser(NAME, __doc__, EPILOG)
    options.add_argument("url", metavar="URL", help="the server, which speculates unless --plain says otherwise")
    options.add_argument("--model", required=True, metavar="M", help="the model, as the server names it")
    options.add_argument("--dataset", required=True, metavar="FILE", help="FILE.txt or FILE.jsonl")
    options.add_argument("--text-field", metavar="NAME", help="field of a .jsonl file with the text (default: text)")
    options.add_argument("--length", required=True, type=int, metavar="N", help="tokens of each prompt, about")
    options.add_argument("--prompts", type=int, default=10, metavar="K",
                         help="documents of a .jsonl file, or pieces of a .txt file (default: 10)")
    options.add_argument("--gen-len", type=int, default=128, metavar="N", help="tokens generated (default: 128)")
    options.add_argument("--repeat", type=int, default=1, metavar="R",
                         help="how often the plain server repeats each prompt (default: 1)")
    options.add_argument("--plain-url", metavar="URL2", help="the server without speculation (default: URL)")
    options.add_argument("--plain-model", metavar="M2", help="its name of the model (default: M)")
    options.add_argument("--speculative", default="{}", metavar="JSON", help="fields of requests that speculate")
    options.add_argument("--plain", default="{}", metavar="JSON", help="fields of requests that do not")
    options.add_argument("--logprobs", type=int, default=2, metavar="N",
                         help="probable tokens asked for at each place; 2 show a margin, 0 none (default: 2)")
    options.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="for a request (default: 600)")
    options.add_argument("--api-key-env", metavar="NAME", help=f"the variable that has the key (default: {KEY})")
    options.add_argument("--json", metavar="FILE", help="write data/schema/audit.schema.json's document")
    args = options.parse_args()
    for name, url in (("URL", args.url), ("--plain-url", args.plain_url)):
        if url is not None and (not is_url(url) or "@" in url):
            options.error(f"{name}: expected http://HOST[:PORT][/PATH], found something else")
    args.speculative = fields_of(options, "--speculative", args.speculative)
    args.plain = fields_of(options, "--plain", args.plain)
    check_numbers(options, args)
    check_output(options, args.json, [args.dataset], "--json")
    if args.text_field and not args.dataset.endswith(".jsonl"):
        options.error(f"--text-field: expected a .jsonl file, found {args.dataset!r}")
    if args.plain_model and not args.plain_url:
        options.error("--plain-model: expected --plain-url beside it, found none")
    args.key = key_of(options, args.api_key_env)
    return options, args


def servers_of(options, args):
    """The server that speculates and the plain one, which must be two things."""
    found = [Server(url, model, fields, args.logprobs, args.timeout, args.key) for url, model, fields in (
        (args.url, args.model, args.speculative),
        (args.plain_url or args.url, args.plain_model or args.model, args.plain))]
    if found[0].root == found[1].root and found[0].fields == found[1].fields:
        options.error("expected --plain-url of another server, or --speculative or --plain with other fields, "
                      "found neither")
    return found


def ask(row, number, servers, args, tell):
    """Plain, speculative, plain again. A failure is the row's."""
    speculative, plain = servers
    try:
        tell(f"prompt {number}: plain")
        row.plain.append(plain.complete(row.prompt.text, args.gen_len))
        tell(f"prompt {number}: speculative")
        row.speculative = speculative.complete(row.prompt.text, args.gen_len)
        for repeat in range(1, args.repeat + 1):
            tell(f"prompt {number}: plain, repeat {repeat}")
            row.plain.append(plain.complete(row.prompt.text, args.gen_len))
    except (NoAnswer, BadInput) as error:
        row.failure = str(error)
        return error
    return None


def measure(prompts, servers, args, tell):
    """A row for each prompt that was tried. Raises the first failure if nothing else came back."""
    rows, first, in_a_row = [], None, 0
    for number, prompt in enumerate(prompts, 1):
        rows.append(Row(prompt))
        error = ask(rows[-1], number, servers, args, tell)
        first = first or error
        in_a_row = in_a_row + 1 if error else 0
        if in_a_row == FAILURES:
            break
    if all(row.failure for row in rows):
        raise first
    return rows


def main():
    options, args = arguments()
    servers = servers_of(options, args)
    texts = documents(args.dataset, args.text_field)
    progress = Progress()
    try:
        prompts, short = Cutter(servers[1], args.length, progress.tell).of(
            texts, args.prompts, args.dataset.endswith(".txt"))
        rows = measure(prompts, servers, args, progress.tell)
    finally:
        progress.end()
    unit = unit_of(rows)
    for row in rows:
        judge(row, unit, args.gen_len)
    found = totals(rows)
    said = verdict(rows, found, args.repeat, len(prompts) - len(rows))
    document = document_of(args, servers, rows, found, said)
    if args.json:
        write_file(args.json, (json.dumps(document, indent=1) + "\n").encode())
    write_file(None, screen(document, rows, short, args.prompts).encode("utf-8", "backslashreplace"))
    sys.exit(EXIT[said[0]])


if __name__ == "__main__":
    run(NAME, main)
