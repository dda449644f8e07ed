"""scripts/convert_checkpoint.py on .bin files made by hand, instruction by instruction, without PyTorch.
tests/model/checkpoint/convert_test.py has those that PyTorch writes."""
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "convert_checkpoint.py"
FLOATS = struct.pack("<6f", 1, 2, 3, 4, 5, 6)


# Instructions of a pickle, each of which leaves one value on the stack.
def text(value):
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def number(value):
    return b"I%d\n" % value


def sizes(values):
    return b"(" + b"".join(number(v) for v in values) + b"t"


def storage(key="0", elements=6, kind="FloatStorage", view=b""):
    return b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu") + number(elements) + \
        view + b"tQ"


def tensor(of=None, offset=0, shape=(2, 3), stride=(3, 1)):
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + (of or storage()) + number(offset) + sizes(shape) + \
        sizes(stride) + b"I00\n}tR"


def state(**tensors):
    return b"}" + b"".join(text(name) + value + b"s" for name, value in tensors.items())


def built(value, **attributes):
    """The value after BUILD with these attributes."""
    return value + b"}" + b"".join(text(n) + v + b"s" for n, v in attributes.items()) + b"b"


def pickled(value):
    return b"\x80\x02" + value + b"."


class Convert(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="triforce_convert_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.bin = self.dir / "pytorch_model.bin"

    def archive(self, value, storages=(("0", FLOATS),), path=None, compress=zipfile.ZIP_STORED, order=b"little"):
        with zipfile.ZipFile(path or self.bin, "w", compress) as out:
            out.writestr("archive/data.pkl", pickled(value))
            for key, data in storages:
                out.writestr(f"archive/data/{key}", data)
            out.writestr("archive/byteorder", order)

    def old(self, value, keys=b"](" + text("0") + b"e", storages=struct.pack("<q", 6) + FLOATS):
        magic = struct.pack("<B", 0x8a) + b"\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
        self.bin.write_bytes(pickled(magic) + pickled(number(1001)) + pickled(state(little_endian=b"I01\n")) +
                             pickled(value) + pickled(keys) + storages)

    def run_script(self, *args, code=0):
        done = subprocess.run([sys.executable, str(SCRIPT), *map(str, args or [self.dir])], text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("\n"), 0 if code == 0 else 1, done.stderr)
        return done

    def refused(self, *says, code=3):
        line = self.run_script(code=code).stderr
        for part in says:
            self.assertIn(part, line)
        self.assertEqual([p.name for p in self.dir.iterdir() if "safetensors" in p.name], [])

    def converted(self):
        """name -> (dtype, shape, bytes)"""
        self.run_script()
        data = (self.dir / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        body = data[8 + length:]
        (self.dir / "model.safetensors").unlink()
        return {n: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for n, t in header.items()}

    def test_both_formats(self):
        columns = struct.pack("<6f", 1, 4, 2, 5, 3, 6)
        value = state(a=tensor(), b=tensor(shape=(3, 2), stride=(1, 3)), c=tensor(offset=5, shape=(), stride=()),
                      d=tensor(shape=(0, 4), stride=(4, 1)), e=tensor(offset=1, shape=(3, 1), stride=(0, 9)))
        expected = {"a": ("F32", [2, 3], FLOATS), "b": ("F32", [3, 2], columns), "c": ("F32", [], FLOATS[20:]),
                    "d": ("F32", [0, 4], b""), "e": ("F32", [3, 1], FLOATS[4:8] * 3)}
        self.archive(value)
        self.assertEqual(self.converted(), expected)
        self.old(value)
        self.assertEqual(self.converted(), expected)
        # A state of PyTorch is an OrderedDict with attributes.
        self.archive(built(b"ccollections\nOrderedDict\n)R" + text("a") + tensor() + b"s", _metadata=b"}"))
        self.assertEqual(self.converted(), {"a": expected["a"]})

    def test_a_tensor_is_not_changed_after_its_checks(self):
        for value in (built(tensor(), shape=sizes([-7])), built(tensor(), bytes=number(1 << 60)),
                      built(tensor(), stride=b"N"), tensor() + b"N}" + text("shape") + sizes([9]) + b"s\x86b"):
            self.archive(state(a=value))
            self.refused("changes a tensor")
        # Attributes of a dictionary are none of its entries.
        self.archive(built(b"ccollections\nOrderedDict\n)R" + text("a") + tensor() + b"s", items=number(3),
                           values=number(3), keys=number(3)))
        self.assertEqual(list(self.converted()), ["a"])

    def test_names(self):
        for name in ("__metadata__", "\ud800", ""):
            self.archive(state(**{name: tensor()}))
            self.refused("cannot be the name of a tensor")
        self.archive(b"}" + number(3) + tensor() + b"s")
        self.refused("cannot be the name of a tensor")
        self.archive(state(**{"a\n\u2603": tensor()}))
        self.assertEqual(list(self.converted()), ["a\n\u2603"])

    def test_what_is_no_state(self):
        for value, says in [(b"}", "expected tensors, found none"), (b"]", "expected a dictionary"), (number(3), "int"),
                            (state(a=number(3)), "'a' is int"), (state(a=storage()), "'a' is Storage"),
                            (state(a=tensor(b"N")), "unexpected parts"), (b"0", "cannot be loaded"),
                            (b"cos\nsystem\n" + b"(" + text("true") + b"tR", "'os'.'system'")]:
            with self.subTest(value=value[:40]):
                self.archive(value)
                self.refused(says)
                self.old(value)
                self.refused("cannot be loaded")
        self.archive(b"](" * 50_000 + b"e" * 50_000)
        self.refused("list")

    def test_tensors_that_their_storage_does_not_hold(self):
        for change in ({"shape": (2, 4)}, {"offset": 1}, {"offset": -1}, {"shape": (-2, 3)}, {"stride": (3,)},
                       {"shape": (1 << 40,), "stride": (0,)}, {"shape": (7,), "stride": (0,)},
                       {"shape": (0, 1 << 70), "stride": (1, 1)}, {"shape": (1,) * 65, "stride": (1,) * 65},
                       {"of": storage(elements=7)}, {"of": storage(elements=-6)}, {"of": storage(kind="Tensor")},
                       {"of": storage(kind="HalfStorage")}, {"of": storage(key="1")}, {"of": storage(key="../../0")},
                       {"of": storage(key="\ud800")}, {"of": storage(view=sizes([1]))}):
            with self.subTest(change=change):
                self.archive(state(a=tensor(**change)))
                self.refused("cannot be loaded")
        for storages in ((), [("0", FLOATS[:20])], [("0", FLOATS + b"1")]):
            self.archive(state(a=tensor()), storages)
            self.refused("'0'" if storages else "archive/data/0")

    def test_archives_that_are_damaged(self):
        self.archive(state(a=tensor()), order=b"big")
        self.refused("little-endian")
        self.archive(state(a=tensor()), order=b"little" * 1000)
        self.refused("little-endian")
        self.archive(state(a=tensor()), compress=zipfile.ZIP_DEFLATED)
        self.refused("compressed")
        self.archive(state(a=tensor()))
        whole = self.bin.read_bytes()
        spoilt = whole.replace(FLOATS, FLOATS[:-1] + b"\xff")
        self.assertNotEqual(spoilt, whole)
        self.bin.write_bytes(spoilt)
        self.refused("CRC")
        for length in range(0, len(whole), 29):
            self.bin.write_bytes(whole[:length])
            self.refused("pytorch_model.bin: ")

    def test_old_files_that_are_damaged(self):
        value = state(a=tensor())
        for keys, storages in [(b"]", b""), (b"}", b""), (number(3), b""), (b"](" + text("1") + b"e", b""),
                               (b"](" + number(0) + b"e", b""), (b"](" + text("0") + b"e", b"12"),
                               (b"](" + text("0") + b"e", struct.pack("<q", -6) + FLOATS),
                               (b"](" + text("0") + b"e", struct.pack("<q", 1 << 62) + FLOATS),
                               (b"](" + text("0") + b"e", struct.pack("<q", 5) + FLOATS),
                               (b"](" + text("0") + b"e", struct.pack("<q", 6) + FLOATS[:-1])]:
            with self.subTest(keys=keys, storages=storages):
                self.old(value, keys, storages)
                self.refused("cannot be loaded")
        self.bin.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        self.refused("Git LFS pointer")

    def test_indexes(self):
        index = self.dir / "pytorch_model.bin.index.json"
        for content in ("{}", "[" * 200_000, "", "\u2603", '{"weight_map": []}', '{"weight_map": {}}',
                        '{"weight_map": {"a": 3}}', '{"weight_map": {"a": ["x"]}}', '{"weight_map": {"a": "../x.bin"}}',
                        '{"weight_map": {"a": "none.bin"}}', '{"weight_map": {"a": "x.txt"}}',
                        '{"weight_map": {"a": "\\ud800\\n.bin"}}', '{"weight_map": {"a": "x\\u0000.bin"}}'):
            index.write_text(content, encoding="utf-8")
            with self.subTest(content=content[:40]):
                self.refused()
        self.archive(state(a=tensor()), path=self.dir / "1.bin")
        self.archive(state(a=tensor()), path=self.dir / "2.bin")
        index.write_text('{"weight_map": {"a": "1.bin", "b": "2.bin"}}')
        self.refused("'a' is in model-00001-of-00002.safetensors as well")

    def test_exit_codes(self):
        self.run_script(self.dir, "--nonsense", code=2)
        self.run_script(self.dir / "absent", code=3)
        self.refused("no pytorch_model*.bin file")
        self.archive(state(a=tensor()))
        self.run_script(self.dir, "--out", "/proc/none", code=4)
        self.run_script(self.dir, "--out", self.dir / "new")
        self.assertIn("is there already", self.run_script(self.dir, "--out", self.dir / "new", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
