"""Mistakes planted in the PTX of the kernels: the tests that execute it find each."""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

OPTIONS = None

# What is wrong, file, what stands there, what takes its place, how often at most (0: everywhere), what
# the test says. Files of sm_80, or of sm_90 where that alone has them.
DIFFERS = r"PTX leaves"
MISTAKES = [
    ("operands of an asm string swapped", "attention_prefill",
     r"(mma\.sync[^{]*\{[^}]*\}, \{)(%r\d+),(%r\d+),", r"\1\3,\2,", 0, DIFFERS),
    ("another conversion", "attention_prefill", r"cvt\.rn\.f16\.f32", "cvt.rn.bf16.f32", 0, DIFFERS),
    ("wait_group one too high", "attention_prefill",
     r"cp\.async\.wait_group 1", "cp.async.wait_group 2", 0, r"copy is not waited for"),
    ("no barrier after a wait", "attention_prefill",
     r"(cp\.async\.wait_group 1;\n(?:\s*//.*\n)*)\s*bar\.sync\s+0;", r"\1", 0, r"not waited for|PTX leaves"),
    ("matrices not transposed", "attention_prefill",
     r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans", "ldmatrix.sync.aligned.m8n8.x4", 0, DIFFERS),
    ("another predicate of a branch", "attention_prefill",
     r"@(%p\d+) (bra\s+\S+;)", r"@!\1 \2", 1, r"PTX leaves|written by|[Oo]ut of bounds|no live"),
    ("copies that read what is not there", "attention_prefill",
     r"(cp\.async\.cg\.shared\.global \[[^]]*\], \[[^]]*\], 16), %r\d+;", r"\1;", 0,
     r"out of bounds|PTX leaves"),
    ("values not transposed", "attention_prefill_wgmma",
     r"(wgmma\.mma_async[^;]*\}, \{%r[^;]*), 1;", r"\1, 0;", 0, DIFFERS),
    ("scores used before they are there", "attention_prefill_wgmma",
     r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;", 0, DIFFERS),
    ("products without a fence", "attention_prefill_wgmma",
     r"wgmma\.fence\.sync\.aligned;", "", 0, r"no fence before a product"),
    ("tiles that are not waited for", "attention_prefill_wgmma",
     r"mbarrier\.try_wait[^;]*;\n*selp\.u32 (%r\d+), 1, 0, over;", r"mov.u32 \1, 1;", 0,
     r"not waited for|arrivals in a phase"),
    ("tiles that are never set free", "attention_prefill_wgmma",
     r"mbarrier\.arrive\.shared::cta\.b64 _, [^;]*;", "", 0, r"for each other for ever"),
]
WGMMA = "attention_prefill_wgmma"


def architecture_of(file):
    return "90" if file == WGMMA else "80"


def run(ptx, architecture, test):
    """The status and the output of one test with the PTX of a folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_EMULATOR_")}
    environment.update(TF_EMULATOR_PTX=str(ptx), TF_EMULATOR_PTX_MODE="both",
                       TF_EMULATOR_ARCHITECTURE=architecture)
    done = subprocess.run([OPTIONS.program, f"--gtest_filter={test}", "--gtest_fail_fast"],
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.returncode, done.stdout


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ptx = Path(folder.name)
        for architecture in ("80", "90"):
            (self.ptx / architecture).mkdir()
            for file in Path(OPTIONS.ptx, f"sm_{architecture}").glob("*.ptx"):
                (self.ptx / architecture / file.name).symlink_to(file.resolve())

    def test_without_a_mistake_nothing_is_found(self):
        for architecture in ("80", "90"):
            status, said = run(self.ptx / architecture, architecture, OPTIONS.test)
            self.assertEqual(status, 0, said)

    def test_every_mistake_is_found(self):
        for what, file, stands, instead, count, expected in MISTAKES:
            with self.subTest(what):
                architecture = architecture_of(file)
                path = self.ptx / architecture / f"{file}.ptx"
                right = Path(OPTIONS.ptx, f"sm_{architecture}", path.name).read_text()
                wrong, changed = re.subn(stands, instead, right, count=count)
                self.assertGreater(changed, 0, "nothing to change")
                path.unlink()
                path.write_text(wrong)
                status, said = run(self.ptx / architecture, architecture, OPTIONS.test)
                self.assertNotEqual(status, 0, said)
                self.assertRegex(said, expected)
                path.write_text(right)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ptx", required=True, help="folder of what nvcc made, by architecture")
    parser.add_argument("--program", required=True, help="cuda_attention_test of an emulated build")
    parser.add_argument("--test", required=True, help="what to run of it, as --gtest_filter has it")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
