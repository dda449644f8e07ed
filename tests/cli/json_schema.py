"""Checks of documents by their schemas, for tests of the program: the package jsonschema does them."""
import sys

from program import SOURCE

sys.path.insert(0, str(SOURCE / "scripts"))
from plots.schema import errors  # noqa: E402,F401  pylint: disable=wrong-import-position
