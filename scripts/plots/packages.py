"""Packages from outside of Python's own library (scripts/requirements.txt), imported where they are used."""

import importlib
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "python")


class MissingPackage(Exception):
    """A package that is not there; one line that says how to get it."""


def package(name):
    """The module of that name: of the system, else where scripts/setup.sh puts it, else MissingPackage."""
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        raise MissingPackage(f"expected the Python package {root} (apt-get install python3-{root}, or pip install "
                             f"{root}), found: {error}") from error
