"""The validator of the scripts, for tests of the program."""
import sys

from program import SOURCE

sys.path.insert(0, str(SOURCE / "scripts"))
from plots.json_schema import errors  # noqa: E402,F401  pylint: disable=wrong-import-position
