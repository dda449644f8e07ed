"""Packages that tests compare with, where scripts/setup.sh --checks has put them or the system has them."""
import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / "build/test-python"), str(ROOT / "build/python")]
sys.path += FOLDERS


def is_here(name):
    return find_spec(name) is not None


def environment():
    """For a script that is to find them, too."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])}
