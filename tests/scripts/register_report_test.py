#!/usr/bin/env python3
"""The report of registers (tests/cuda/register_report.py) finds planted mistakes: kernels that spill
registers, sources that do not compile. What needs nvcc is skipped without it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cuda"))
import register_report as report  # noqa: E402


class Judge(unittest.TestCase):
    def test_a_spill_fails(self):
        self.assertEqual(report.judge([("f", "sm_90", 0, 32)], report.NVCC), [])
        self.assertEqual(report.judge([("f", "sm_90", 4, 32), ("g", "sm_90", 0, 32)], report.NVCC),
                         ["f (sm_90): 4 bytes, at most 0"])

    def test_another_compiler_or_architecture_may_spill_but_where_nothing_may(self):
        for architecture, release in (("sm_90", "12.0"), ("sm_75", report.NVCC)):
            self.assertEqual(report.judge([("f", architecture, 4, 32)], release), [])
            for kernel in ("split_kernel<__half, 128, 1, false>",
                           "linear_kernel<__half, StoreColumns<float, 1>, 2>"):
                self.assertEqual(report.judge([(kernel, architecture, 4, 128)], release),
                                 [f"{kernel} ({architecture}): 4 bytes, at most 0"])
                many = kernel.replace("1, false>", "4, false>").replace("2>", "4>")
                self.assertEqual(report.judge([(many, architecture, 4, 128)], release), [])


class Compiler(unittest.TestCase):
    """Over the folders of a project of the test's own."""
    # 96 values that live through a loop, and 32 registers for them.
    SPILLS = """__global__ void __launch_bounds__(1024, 2) f(float* x, int n) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[i];
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 1) % 96] + x[j];
  }
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i] = v[i];
}
"""

    def run_over(self, source):
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not os.access(nvcc, os.X_OK):
            self.skipTest("no nvcc on this machine")
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "kernels").mkdir()
        (folder / "tests" / "cuda").mkdir(parents=True)
        program = shutil.copy(report.__file__, folder / "tests" / "cuda")
        file = folder / "kernels" / "f.cu"
        file.write_text(source, encoding="utf-8")
        commands = folder / "compile_commands.json"
        commands.write_text(json.dumps([{
            "directory": str(folder), "file": str(file),
            "command": f"{nvcc} -arch=sm_80 -c {file} -o f.o"}]), encoding="utf-8")
        return subprocess.run([sys.executable, program, "--commands", commands, "--jobs", "1"],
                              capture_output=True, text=True, check=False)

    def test_a_spill_is_read_and_fails(self):
        done = self.run_over(self.SPILLS)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"f +sm_80 +[1-9]\d* bytes spilled, +32 registers")
        if f"nvcc {report.NVCC}\n" in done.stdout:
            self.assertRegex(done.stderr, r"f \(sm_80\): [1-9]\d* bytes, at most 0")

    def test_what_does_not_compile_fails(self):
        done = self.run_over("__global__ void f() { nothing(); }\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("f.cu does not compile", done.stderr)
        self.assertIn("1 files do not compile", done.stderr)


if __name__ == "__main__":
    unittest.main()
