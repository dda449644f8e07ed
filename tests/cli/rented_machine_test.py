"""What a rented machine may lack, on the emulated device: a run works all the same, or one line says what
is missing and what to do."""
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from program import BINARY, SOURCE, ProgramTest, strict_json

SHAPE = {"hidden_size": 40, "intermediate_size": 56, "num_attention_heads": 2,
         "num_key_value_heads": 2, "head_dim": 64}  # heads that two ranks share
TWO_DEVICES = {"TF_EMULATOR_DEVICES": "2", "TF_EMULATOR_ORDER": "eager"}


def with_mounts(commands, *args):
    """The command with other mounts, which no other process sees."""
    return ["unshare", "--mount", "sh", "-ec", f'{commands}; exec "$@"', "sh", *map(str, args)]


def may_mount():
    try:
        return subprocess.run(with_mounts("mount -t tmpfs none /mnt", "true"), check=False,
                              stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


needs_mounts = unittest.skipUnless(may_mount(), "this process may not mount")


class RentedMachine(ProgramTest):
    def options(self, **changes):
        return self.tiny(SHAPE, **{"device": "cuda", "gen-len": 4, "gamma": 2, "repetitions": 1,
                                   "warmup": 0, "prompts": 1, "prefill": 64, "budget": 32,
                                   "draft-cache-budget": 24, "method": "ar,triforce", **changes},
                         **{"output-format": "json"})

    def ends(self, code, *args, mounts=None, **environment):
        """The run's result, if any, and its one line on stderr, if any."""
        command = [BINARY, *args] if mounts is None else with_mounts(mounts, BINARY, *args)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder,
                              stdin=subprocess.DEVNULL, env={**os.environ, **environment})
        self.assertEqual(done.returncode, code, done.stderr)
        lines = done.stderr.splitlines()
        self.assertLessEqual(len(lines), 1, done.stderr)
        return strict_json(done.stdout) if done.stdout else None, "".join(lines)

    def tokens(self, result):
        self.assertEqual([c["status"] for c in result["cases"]], ["ok", "ok"])
        return [c["output"] for c in result["cases"]]

    def test_a_driver_that_is_too_old(self):
        reason = ("the NVIDIA driver is for CUDA 12.4, this program needs one for CUDA 13.0 (580 or "
                  "newer); a CUDA Toolkit 12 makes a program for this driver")
        _, said = self.ends(5, *self.options(), TF_EMULATOR_DRIVER="12040")
        self.assertEqual(said, f"triforce-bench: error: --device cuda: {reason}")
        listed = self.run_program("list-devices", env={**os.environ, "TF_EMULATOR_DRIVER": "12040"})
        self.assertIn(f"cuda     none: {reason}\n", listed.out)

    def test_no_registered_memory(self):
        usual, _ = self.ends(0, *self.options(**{"on-chip": 0}))
        without, said = self.ends(0, *self.options(**{"on-chip": 0}),
                                  TF_EMULATOR_REGISTER_ERROR="801")
        self.assertEqual(said, "")
        self.assertEqual(self.tokens(without), self.tokens(usual))

    def test_one_memory_of_host_and_device(self):
        # cudaMemGetInfo says that 42 MiB of 8 GiB are free, less than the driver is left.
        one_memory = {"TF_EMULATOR_INTEGRATED": "8150"}
        save_none = ": host and device memory are one, so KV rows in host memory save none"
        near, said = self.ends(0, *self.options(**{"kv-offload": True}), **one_memory)
        self.assertEqual(said, f"triforce-bench: --kv-offload{save_none}")
        self.assertIn("in the host's memory", near["context"]["backend"])
        self.assertEqual(near["cases"][0]["memory"]["peak"]["kv_far"], 0)
        # What is far counts as what is near does.
        options = self.options(**{"on-chip": 0})
        far, said = self.ends(0, *options, **one_memory)
        self.assertEqual(said, f"triforce-bench: --on-chip{save_none}")
        self.assertEqual(self.tokens(far), self.tokens(near))
        planned = far["cases"][0]["memory"]["planned"]["total"]
        for limit, code in [(planned, 0), (planned - 1, 4)]:
            self.run_program("plan", *options, "--memory-limit", str(limit), code=code,
                             env={**os.environ, **one_memory})

    @needs_mounts
    def test_the_shared_memory_of_a_container(self):
        for size, advice in [("64m", "/dev/shm has 64 MiB, of which cards without access to each "
                                     "other need more: start the container with --shm-size=1g"),
                             ("2g", "NCCL_DEBUG=WARN in the environment makes NCCL say why")]:
            result, said = self.ends(6, *self.options(tp=2), **TWO_DEVICES, TF_EMULATOR_NCCL_ERROR="2",
                                     mounts=f"mount -t tmpfs -o size={size} none /dev/shm")
            self.assertIsNone(result)
            self.assertEqual(said, "triforce-bench: error: NCCL: expected to start, found: unhandled "
                                   f"system error; {advice}")

    @needs_mounts
    def test_a_home_that_cannot_be_written(self):
        home = self.folder / "home"
        home.mkdir()
        # Where the driver compiles the kernels, what it makes of them has no place.
        result, said = self.ends(0, *self.options(), HOME=str(home), TF_EMULATOR_CODE="70",
                                 mounts=f"mount -t tmpfs -o ro none '{home}'")
        self.assertEqual([c["status"] for c in result["cases"]], ["ok", "ok"])
        start = "cuda:0: this program has no machine code for sm_80, so the driver compiles its kernels"
        self.assertTrue(said.startswith(f"triforce-bench: {start}"), said)
        self.assertTrue(said.endswith(
            "ComputeCache\" cannot be written: set CUDA_CACHE_PATH to a folder that can be written"), said)
        listed = self.run_program("list-devices", env={
            **os.environ, "TF_EMULATOR_CODE": "70", "CUDA_CACHE_PATH": str(self.folder)}).out
        self.assertIn(f"! {start}", listed)
        self.assertIn(f"\"{self.folder}\" keeps them for the next start\n", listed)

    def test_a_bundle_without_nvcc(self):
        done = subprocess.run([SOURCE / "scripts/gpu_bundle.sh", "--out", self.path("bundle.tar.gz")],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "CUDACXX": self.path("nvcc")})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "error: expected nvcc, found none: install the CUDA Toolkit 12 "
                                      "or newer, or name its nvcc in CUDACXX\n")

    @needs_mounts
    def test_a_build_without_nvcc(self):
        self.write("bin/nvidia-smi", "#!/bin/bash\necho 9.0\n")
        Path(self.path("bin/nvidia-smi")).chmod(0o755)
        path = [self.path("bin"), *(p for p in os.environ["PATH"].split(":")
                                    if not Path(p, "nvcc").exists())]
        environment = {**os.environ, "PATH": ":".join(path)}
        environment.pop("CUDACXX", None)
        toolkit = Path("/usr/local/cuda")
        hide = f"mount -t tmpfs none '{toolkit.resolve()}'" if toolkit.exists() else "true"
        script = f"source '{SOURCE}/scripts/lib/common.sh'; tf_cuda_options"
        done = subprocess.run(with_mounts(hide, shutil.which("bash"), "-c", script),
                              capture_output=True, text=True, check=True, env=environment)
        self.assertEqual(done.stdout, "-DTRIFORCE_CUDA=OFF\n")
        self.assertEqual(done.stderr,
                         "a CUDA device was found but no nvcc: building for the CPU alone; install the "
                         "CUDA Toolkit 12 or newer, or name its nvcc in CUDACXX, or bring an archive "
                         "of scripts/gpu_bundle.sh\n")


if __name__ == "__main__":
    unittest.main()
