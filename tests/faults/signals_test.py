"""A signal at any moment of a run: a typed end, and a result file that is the old one or a valid new one.

FAULT_SIGNALS=N moments are tried (24), spread over the length of a run."""
import os
import signal
import subprocess
import sys
import time
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from program import BINARY, ProgramTest, strict_json  # noqa: E402

MOMENTS = int(os.environ.get("FAULT_SIGNALS", "24"))
OLD = '{"old": true}\n'


class Signals(ProgramTest):
    def test_nothing_is_torn(self):
        out = self.folder / "out"
        out.mkdir()
        result, lines = out / "r.json", out / "r.jsonl"
        options = self.tiny(json=result, jsonl=lines, csv=out / "r.csv", prompts=3, repetitions=6)
        begin = time.monotonic()
        self.run_program(*options)
        length = time.monotonic() - begin
        ends = Counter()
        for i in range(MOMENTS):
            number = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP][i % 3]
            if i % 4 == 3 and i > MOMENTS // 2:
                number = signal.SIGKILL
            result.write_text(OLD)
            lines.write_text(OLD)
            with subprocess.Popen([BINARY, *options], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                time.sleep(length * 1.2 * i / MOMENTS)
                process.send_signal(number)
                _, err = process.communicate(timeout=60)
            code = process.returncode
            written = result.read_text() != OLD
            ends[(number.name, code, "new file" if written else "old file")] += 1
            # A negative code but for SIGKILL: it came before the handlers were installed.
            typed = code == 128 + number and (written or b"triforce-bench: " in err)
            self.assertTrue(code in (0, -number) or typed, (code, number, err))
            if written:
                strict_json(result.read_text())
            kept = lines.read_text()
            self.assertTrue(kept.startswith(OLD) and kept.endswith("\n"), kept[-100:])
            for line in kept.splitlines():
                strict_json(line)
            # Only SIGKILL leaves what the place was claimed with...
            if number != signal.SIGKILL and code >= 0 and not any(
                    name == "SIGKILL" for name, _, _ in ends):
                self.assertEqual([p.name for p in out.iterdir() if p.name.startswith(".")], [])
        print(dict(ends), file=sys.stderr)
        self.run_program(*options)  # ...until the next run that writes there
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["r.csv", "r.json", "r.jsonl"])


if __name__ == "__main__":
    unittest.main()
