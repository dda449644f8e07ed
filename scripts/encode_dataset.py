#!/usr/bin/env python3
"""Text to token ids for --dataset FILE.ids, and ids back to text, with a tokenizer.json.

For models whose tokenizer the program does not read: it takes their documents as ids.

  scripts/encode_dataset.py encode book.txt --tokenizer tokenizer.json -o book.ids
  scripts/encode_dataset.py encode books.jsonl --text-field body --tokenizer MODEL -o books.ids
  scripts/encode_dataset.py decode book.ids --tokenizer tokenizer.json -o book.txt
  scripts/encode_dataset.py decode RESULT.json --tokenizer tokenizer.json

An .ids file has one document a line: decimal token ids with spaces between them. A .txt file is one
document, a .jsonl file has one a line. A field "prefix" is put before the text, as in the program; a
field "suffix" is refused, because a line of ids is cut at its end. No special token is added or read
out of the text but the one that --bos names; the program itself puts the target's BOS first, whether
a line begins with it or not. decode writes a line {"text": ...} for each document (a .txt file: the
text of the only one), or for each output of a result {"case", "prompt", "repetition", "text"}.

Needs the Python package tokenizers (pip install tokenizers).
"""

import json
import os

from plots.command import BadInput, check_output, parser, read_text, run, write_file
from plots.results import parse, read_results

NAME = "encode_dataset"


class Tokenizer:
    """A tokenizer.json, and how many ids the model knows."""

    def __init__(self, path, vocab):
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        read_text(file)  # whether it can be read, said in our words
        try:
            import tokenizers  # pylint: disable=import-outside-toplevel
        except ImportError as error:
            raise BadInput("expected the Python package tokenizers (pip install tokenizers), found "
                           "none") from error
        try:
            self.of = tokenizers.Tokenizer.from_file(file)
        except Exception as error:  # the package raises nothing more exact
            raise BadInput(f"{file}: expected a tokenizer.json, found: {error}") from error
        # Text that looks like a special token is text.
        self.of.encode_special_tokens = True
        self.of.no_truncation()
        self.of.no_padding()
        self.file = file
        self.vocab, self.vocab_from = vocab, "--vocab"
        if vocab is None:
            self.vocab, self.vocab_from = self.model_vocab(os.path.join(folder, "config.json"))

    def model_vocab(self, config):
        """Ids that the model has by its config.json beside the tokenizer, or the tokenizer's own."""
        if not os.path.exists(config):
            return self.of.get_vocab_size(with_added_tokens=True), self.file
        try:
            size = parse(read_text(config)).get("vocab_size")
        except (ValueError, AttributeError) as error:
            raise BadInput(f"{config}: expected a JSON object, found {error}") from error
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise BadInput(f"{config}: vocab_size: expected a positive integer, found {size!r:.40}")
        return size, config

    def bos(self, word):
        """The id that --bos names, or None."""
        if word == "none":
            return None
        token = int(word) if word.isascii() and word.isdecimal() else self.of.token_to_id(word)
        if token is None:
            raise BadInput(f"--bos: expected none, an id or a token of {self.file}, found {word!r}")
        return self.check([token], "--bos")[0]

    def check(self, ids, where):
        for token in ids:
            if not 0 <= token < self.vocab:
                raise BadInput(f"{where}: expected token ids in 0..{self.vocab - 1} "
                               f"({self.vocab_from}), found {token}")
        return ids

    def encode(self, text, where):
        return self.check(self.of.encode(text, add_special_tokens=False).ids, where)

    def decode(self, ids, where):
        for token in ids:
            if self.of.id_to_token(token) is None:
                raise BadInput(f"{where}: expected ids of {self.file}, found {token}")
        return self.of.decode(ids, skip_special_tokens=False)


def text_of(line, field, where):
    """The text of one line of .jsonl, with what is to stand before it."""
    try:
        value = parse(line)
    except ValueError as error:
        raise BadInput(f"{where}: expected JSON, found {error}") from error
    if not isinstance(value, dict) or field not in value:
        found = ("keys " + ", ".join(map(repr, list(value)[:8])) if isinstance(value, dict)
                 else f"{value!r:.40}")
        raise BadInput(f"{where}: expected an object with the field {field!r} (--text-field), "
                       f"found {found}")
    if value.get("suffix"):
        raise BadInput(f"{where}: expected no suffix, which only the program itself keeps, found one")
    parts = [value.get("prefix", ""), value[field]]
    if not all(isinstance(part, str) for part in parts):
        raise BadInput(f"{where}: expected strings as prefix and {field}, found others")
    return "".join(parts)


def documents(path, field):
    """(text, where) of each document of a file."""
    text = read_text(path)
    if text.startswith("\ufeff"):
        raise BadInput(f"{path}: expected UTF-8 text, found a byte order mark")
    if path.endswith(".txt"):
        found = [(text, path)]
    elif path.endswith(".jsonl"):
        found = [(text_of(line, field or "text", f"{path}:{i + 1}"), f"{path}:{i + 1}")
                 for i, line in enumerate(text.split("\n")) if line.strip()]
    else:
        raise BadInput(f"{path}: expected a .txt or .jsonl file")
    for document, where in found:
        if not document:
            raise BadInput(f"{where}: expected a text that is not empty, found an empty one")
    if not found:
        raise BadInput(f"{path}: expected a document, found none")
    return found


def encode(args):
    tokenizer = Tokenizer(args.tokenizer, args.vocab)
    bos = tokenizer.bos(args.bos)
    lines = []
    for text, where in documents(args.input, args.text_field):
        ids = ([] if bos is None else [bos]) + tokenizer.encode(text, where)
        lines.append(" ".join(map(str, ids)) + "\n")
    write_file(args.out, "".join(lines).encode())


def ids_of(path):
    """(ids, where) of each document of an .ids file."""
    found = []
    for i, line in enumerate(read_text(path).split("\n")):
        where = f"{path}:{i + 1}"
        words = line.split()
        for word in words:
            if not (word.isascii() and word.isdecimal()) or len(word) > 9:
                raise BadInput(f"{where}: expected decimal token ids, found {word!r:.40}")
        if words:
            found.append(([int(word) for word in words], where))
    if not found:
        raise BadInput(f"{path}: expected a document, found none")
    return found


def decode(args):
    tokenizer = Tokenizer(args.tokenizer, args.vocab)
    bos = tokenizer.bos(args.bos)
    if bos is not None and not args.input.endswith(".ids"):
        raise BadInput(f"--bos: expected an .ids file, found {args.input}: outputs begin without BOS")
    records = []
    if args.input.endswith(".ids"):
        for ids, where in ids_of(args.input):
            first = 1 if bos is not None and ids[0] == bos else 0
            records.append({"text": tokenizer.decode(tokenizer.check(ids[first:], where), where)})
    else:
        for row in read_results([args.input]).rows():
            for output in row.case["output"]["prompts"] if row.case else []:
                where = f"{args.input}: {row.name}, prompt {output['prompt']}"
                records.append({"case": row.name, "prompt": output["prompt"],
                                "repetition": output["repetition"],
                                "text": tokenizer.decode(tokenizer.check(output["tokens"], where),
                                                         where)})
        if not records:
            raise BadInput(f"{args.input}: expected outputs of cases, found none")
    if args.out and args.out.endswith(".txt"):
        if len(records) != 1:
            raise BadInput(f"{args.input}: expected one document for {args.out}, found "
                           f"{len(records)}; a .jsonl file takes several")
        write_file(args.out, records[0]["text"].encode("utf-8", "replace"))
        return
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    write_file(args.out, "".join(lines).encode("utf-8", "replace"))


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def main():
    options = parser(NAME, __doc__)
    commands = options.add_subparsers(dest="command", required=True, metavar="encode|decode")
    for name, call, what in (("encode", encode, "text to .ids"),
                             ("decode", decode, "an .ids file or a result to text")):
        command = commands.add_parser(name, description=what, help=what, allow_abbrev=False)
        command.add_argument("input", metavar="INPUT")
        command.add_argument("--tokenizer", metavar="FILE|FOLDER", required=True,
                             help="a tokenizer.json, or a model's folder with one and a config.json")
        command.add_argument("--bos", metavar="none|ID|TOKEN", default="none",
                             help="encode: put it before each document; decode: leave it out there "
                             "(default: none)")
        command.add_argument("--vocab", metavar="N", type=positive,
                             help="ids the model knows; an id beyond is refused (default: vocab_size "
                             "of the config.json beside the tokenizer, else the tokenizer's size)")
        command.add_argument("-o", "--out", metavar="FILE", required=name == "encode",
                             help="encode: the .ids file; decode: FILE.txt or any other name for "
                             "lines of JSON (default: standard output)")
        if name == "encode":
            command.add_argument("--text-field", metavar="NAME",
                                 help="field of a .jsonl file that holds the text (default: text)")
        command.set_defaults(call=call)
    args = options.parse_args()
    check_output(options, args.out, [args.input, args.tokenizer])
    if args.command == "encode" and args.out != "-" and not args.out.endswith(".ids"):
        options.error(f"--out: expected FILE.ids, found {args.out!r}")
    if args.command == "encode" and args.text_field and not args.input.endswith(".jsonl"):
        options.error(f"--text-field: expected a .jsonl file, found {args.input!r}")
    args.call(args)


if __name__ == "__main__":
    run(NAME, main)
