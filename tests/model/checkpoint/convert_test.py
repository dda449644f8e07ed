"""scripts/convert_checkpoint.py on small .bin checkpoints that PyTorch writes. Exits 77 (skipped) without
PyTorch; tests/scripts/convert_test.py needs none."""
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "convert_checkpoint.py"


def run(*args):
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, args)], capture_output=True, text=True,
                          check=False)


def read(path):
    """name -> (dtype, shape, bytes) of a .safetensors file, by the format's README alone."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    body = data[8 + length:]
    assert length % 8 == 0 and max(t["data_offsets"][1] for t in header.values()) == len(body)
    return {n: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for n, t in header.items()}


class Convert(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = Path(self.folder.name)
        (self.dir / "config.json").write_text("{}")
        torch.manual_seed(1)
        self.a = {"x.weight": torch.randn(3, 5), "y": torch.randn(7).to(torch.bfloat16)}
        self.b = {"z": torch.randn(2, 2, 2).half(), "n": torch.arange(3), "t": torch.randn(4, 6).t(),
                  "empty": torch.zeros(0, 4), "scalar": torch.tensor(2.5)}

    def tearDown(self):
        self.folder.cleanup()

    def check(self, tensors, stored):
        self.assertEqual(set(tensors), set(stored))
        for name, tensor in tensors.items():
            dtype, shape, data = stored[name]
            self.assertEqual(shape, list(tensor.shape))
            size = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8}[dtype]
            self.assertEqual(size, tensor.element_size())
            flat = tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor
            self.assertEqual(data, flat.numpy().tobytes(), name)

    def test_single_file(self):
        torch.save({**self.a, **self.b}, self.dir / "pytorch_model.bin")
        done = run(self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check({**self.a, **self.b}, read(self.dir / "model.safetensors"))
        again = run(self.dir)
        self.assertEqual(again.returncode, 2)
        self.assertIn("is there already", again.stderr)

    def test_old_format_that_cannot_be_mapped(self):
        torch.save(self.a, self.dir / "pytorch_model.bin", _use_new_zipfile_serialization=False)
        done = run(self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check(self.a, read(self.dir / "model.safetensors"))

    def shards(self, second="pytorch_model-00002-of-00002.bin"):
        first = "pytorch_model-00001-of-00002.bin"
        torch.save(self.a, self.dir / first)
        torch.save(self.b, self.dir / "pytorch_model-00002-of-00002.bin")
        weight_map = {**{n: first for n in self.a}, **{n: second for n in self.b}}
        (self.dir / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))

    def test_shards_into_another_folder(self):
        self.shards()
        out = self.dir / "converted"
        done = run(self.dir, "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check(self.a, read(out / "model-00001-of-00002.safetensors"))
        self.check(self.b, read(out / "model-00002-of-00002.safetensors"))
        index = json.loads((out / "model.safetensors.index.json").read_text())
        self.assertEqual(index["weight_map"]["z"], "model-00002-of-00002.safetensors")
        self.assertEqual(set(index["weight_map"]), set(self.a) | set(self.b))
        self.assertEqual(index["metadata"]["total_size"],
                         sum(t.numel() * t.element_size() for t in {**self.a, **self.b}.values()))
        self.assertTrue((out / "config.json").is_file())

    def test_refusals_leave_nothing_behind(self):
        self.shards(second="../escape.bin")
        self.assertIn("is not the name of a .bin file", run(self.dir).stderr)
        self.shards()
        (self.dir / "pytorch_model-00002-of-00002.bin").write_bytes(b"not a checkpoint")
        failed = run(self.dir)
        self.assertEqual(failed.returncode, 3)
        self.assertEqual(failed.stderr.count("\n"), 1, failed.stderr)
        self.assertEqual(list(self.dir.glob("*.safetensors*")), [])
        self.assertIn("no such folder", run(self.dir / "absent").stderr)
        with tempfile.TemporaryDirectory() as empty:
            self.assertIn("no pytorch_model*.bin file", run(empty).stderr)

    def test_code_in_a_pickle_is_not_run(self):
        marker = self.dir / "ran"

        class Evil:
            def __reduce__(self):
                return (os.mkdir, (str(marker),))

        (self.dir / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Evil()}))
        self.assertEqual(run(self.dir).returncode, 3)
        torch.save({"x": Evil()}, self.dir / "pytorch_model.bin")
        self.assertEqual(run(self.dir).returncode, 3)
        self.assertFalse(marker.exists())


if __name__ == "__main__":
    unittest.main()
