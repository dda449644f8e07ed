"""Loops files: what tests/cuda/machine_code/check.py wrote by --json."""
import json
from dataclasses import dataclass

from plots.command import BadInput, read_text

TILE = ("nominal_gbs", "l2_gbs", "multiprocessors", "clock_hz", "blocks", "first_level_bytes",
        "operations", "cycles", "memory_cycles")
PASS = ("ids", "cycles", "clock_hz", "l2_cycles", "multiprocessors", "block_shared_bytes")


@dataclass(frozen=True)
class Loops:
    tiles: dict   # (card, kernel) -> its row of the file, of loops over tiles that are timed
    passes: dict  # (card, kernel) -> {pass: its row of the file}

    def cards(self):
        return {card for card, _ in (*self.tiles, *self.passes)}


def read_loops(paths):
    tiles, passes = {}, {}
    for path in paths:
        try:
            found = json.loads(read_text(path))
            for row in found["tiles"]:
                if row["cycles"] is not None:
                    tiles[row["card"], row["kernel"]] = {key: row[key] for key in TILE}
            for row in found["passes"]:
                passes.setdefault((row["card"], row["kernel"]), {})[row["pass"]] = {
                    key: row[key] for key in PASS}
        except (ValueError, KeyError, TypeError) as e:
            raise BadInput(f"{path}: expected what machine_code/check.py --json wrote, found "
                           f"{type(e).__name__}: {e}") from e
    return Loops(tiles, passes)
