"""Options of train_pair.py and evaluate_pair.py, and their types: each says what it expected and what it found."""

import argparse
import os
import pathlib
import shutil

MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.model")


def expect(condition, what, found):
    if not condition:
        raise argparse.ArgumentTypeError(f"expected {what}, found {found}")


def add(options, name, type_, default, text):
    options.add_argument(name, type=type_, default=default, help=f"{text} [default: {default}]")


def check(options, args, condition, name, what):
    """Ends with a line on wrong usage unless the condition on the value of option `name` holds."""
    if not condition:
        options.error(f"{name}: expected {what}, found {getattr(args, name[2:].replace('-', '_'))}")


def number(text, kind, what, fits):
    try:
        value = kind(text)
    except ValueError:
        value = None
    expect(value is not None and fits(value), what, repr(text))
    return value


def portion(text):
    return number(text, float, "a number from 0 to 1", lambda x: 0 <= x <= 1)


def positive(text):
    return number(text, float, "a positive number", lambda x: 0 < x < float("inf"))


def count(text):
    return number(text, int, "a whole number of at least 1", lambda n: n >= 1)


def whole(text):
    return number(text, int, "a whole number of at least 0", lambda n: n >= 0)


def counts(text):
    return [count(part) for part in text.split(",")]


def some_of(*names):
    """A list of some of the names, with commas between them."""
    def parse(text):
        parts = text.split(",")
        for part in parts:
            expect(part in names, f"some of {', '.join(names)}", repr(part))
        return parts
    return parse


def present(text):
    expect(os.path.exists(text), "a folder or file", f"nothing at {text}")
    return text


def program(text):
    expect(shutil.which(text) is not None, "a program", f"none at {text}")
    return text


def model_folder(text):
    for name in MODEL_FILES:
        expect(pathlib.Path(text, name).is_file(), f"a folder with {', '.join(MODEL_FILES)}",
               f"no {name} in {text}")
    return text
