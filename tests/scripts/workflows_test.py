"""Workflows for GitHub: what they may do, and that what they call is there."""
import re
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.name: path.read_text(encoding="utf-8")
             for path in sorted((SOURCE / ".github/workflows").glob("*.yml"))}


def faults(text):
    """What a workflow of this project must not have."""
    found = []
    actions = re.findall(r"^ +(?:- )?uses: (.*)$", text, re.MULTILINE)
    for action in actions:
        if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[0-9.]+", action):
            found.append(f"not pinned: {action}")
    if not re.search(r"^permissions:\n  contents: read\n\n", text, re.MULTILINE):
        found.append("rights beyond reading")
    if re.search(r"\b(write|secrets|pull_request_target)\b", text):
        found.append("rights beyond reading")
    if text.count("actions/checkout@") != text.count("persist-credentials: false"):
        found.append("credentials stay in the work tree")
    if "timeout-minutes: " not in text:
        found.append("no limit of time")
    for script in re.findall(r"\bscripts/[\w./-]+", re.sub(r"^#.*$", "", text, flags=re.MULTILINE)):
        if not (SOURCE / script).is_file():
            found.append(f"{script} is not there")
    return found


class Workflows(unittest.TestCase):
    def test_they_have_no_faults(self):
        self.assertEqual(sorted(WORKFLOWS), ["regression.yml", "tests.yml"])
        for name, text in WORKFLOWS.items():
            self.assertEqual(faults(text), [], name)
            self.assertRegex(text, r"(?m)^on:\n")
        self.assertRegex(WORKFLOWS["tests.yml"], r"(?m)^  push:\n")
        self.assertRegex(WORKFLOWS["tests.yml"], r"(?m)^        run: scripts/test.sh\n")

    def test_planted_faults_are_found(self):
        good = WORKFLOWS["tests.yml"]
        for old, new in [("@11bd71901bbe5b1630ceea73d27597364c9af683  # v4.2.2", "@v4"),
                         ("contents: read", "contents: write"), ("          persist-credentials: false\n", ""),
                         ("timeout-minutes: 120", ""), ("scripts/test.sh\n", "scripts/tests.sh\n"),
                         ("  push:", "  pull_request_target:")]:
            self.assertNotEqual(faults(good.replace(old, new)), [], new)


if __name__ == "__main__":
    unittest.main()
