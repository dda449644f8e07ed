"""scripts/download_models.sh and download_data.sh against a server of our own, offline."""
import hashlib
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from hub import Hub, pytorch_file

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SMALL, LARGE = "JackFram/llama-68m", "NousResearch/Yarn-Llama-2-7b-128k"


def noise(seed, size):
    return random.Random(seed).randbytes(size)


class DownloadTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="triforce_download_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.hub.repos[SMALL] = {"config.json": b'{"model_type": "llama"}\n', "README.md": b"text",
                                 "tokenizer.model": noise(1, 5000), "model.safetensors": noise(2, 300_000),
                                 "pytorch_model.bin": noise(3, 1000), "onnx/model.safetensors": noise(4, 10)}

    def call(self, script, *args, code=0, endpoint=None, token=None, limit=None):
        url = endpoint or self.hub.url
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "HF_TOKEN"}
        env.update(HF_ENDPOINT=url, STORAGE_EMULATOR_HOST=url)
        if token:
            env["HF_TOKEN"] = token
        limits = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
        done = subprocess.run([str(SCRIPTS / script), *map(str, args)], env=env, text=True, timeout=60, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limits)
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        self.assertEqual(done.stderr.count("\n"), 0 if code == 0 else 1, done.stderr)
        if code:
            self.assertTrue(done.stderr.startswith(f"{script}: error: "), done.stderr)
        return done

    def models(self, *args, **kwargs):
        return self.call("download_models.sh", "--to", self.folder, *args, **kwargs)

    def data(self, *args, **kwargs):
        return self.call("download_data.sh", "--to", self.folder, *args, **kwargs)

    def names(self, folder="."):
        return sorted(p.name for p in (self.folder / folder).iterdir())


class ModelsTest(DownloadTest):
    def check_whole(self, name="llama-68M", repo=SMALL):
        record = json.loads((self.folder / name / "download.json").read_text())
        self.assertEqual((record["complete"], record["repository"], record["revision"]),
                         (True, repo, self.hub.revision))
        for path, entry in record["files"].items():
            data = (self.folder / name / path).read_bytes()
            self.assertEqual(data, self.hub.repos[repo][path])
            self.assertEqual(entry, {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        self.assertEqual([n for n in self.names(name) if n.endswith(".part")], [])
        return sorted(record["files"])


class Models(ModelsTest):
    def test_safetensors_before_bin_and_again_nothing(self):
        self.models("llama-68M", token="secret")
        self.assertEqual(self.check_whole(), ["config.json", "model.safetensors", "tokenizer.model"])
        self.assertEqual(self.names("llama-68M"),
                         ["config.json", "download.json", "model.safetensors", "tokenizer.model"])
        self.assertEqual(self.hub.tokens, {"hub": {"Bearer secret"}, "files": {None}})
        before = len(self.hub.requests)
        self.assertIn("already", self.models("llama-68M", "llama-68M").stdout)
        self.assertEqual(len(self.hub.requests), before)
        self.models("llama-68M", endpoint="http://127.0.0.1:1")  # needs no network

    def test_shards(self):
        shards = {f"model-0000{i}-of-00002.safetensors": noise(i, 100_000) for i in (1, 2)}
        self.hub.repos[LARGE] = {"config.json": b"{}", "model.safetensors.index.json": b"{}", **shards}
        self.models("llama-7B-128K")
        self.assertEqual(self.check_whole("llama-7B-128K", LARGE),
                         ["config.json", *shards, "model.safetensors.index.json"])
        del self.hub.repos[LARGE]["model.safetensors.index.json"]
        shutil.rmtree(self.folder / "llama-7B-128K")
        self.assertIn("index.json", self.models("llama-7B-128K", code=3).stderr)

    def test_any_repository_by_its_name(self):
        self.hub.repos["Some-One/Model.v2"] = {"config.json": b"{}", "model.safetensors": noise(5, 1000),
                                               "tokenizer.json": b"{}", "special.json": b"{}"}
        self.models("Some-One/Model.v2")
        self.assertEqual(self.check_whole("Model.v2", "Some-One/Model.v2"),
                         ["config.json", "model.safetensors", "tokenizer.json"])
        for name in ("nothing", "a/b/c", "../x", "/x", "x/"):
            self.assertIn("OWNER/NAME", self.models(name, code=2).stderr)

    def test_a_repository_that_asks_for_a_token(self):
        for status in (401, 403):
            self.hub.status["config.json"] = status
            self.assertIn("HF_TOKEN", self.models("llama-68M", code=4).stderr)

    def test_every_preset_is_listed(self):
        presets = json.loads((SCRIPTS.parent / "data" / "presets.json").read_text())["presets"]
        names = [p["name"] for p in presets]
        self.assertEqual(self.call("download_models.sh", "--list").stdout.split(), names)
        said = self.call("download_models.sh", "--help").stdout
        for preset in presets:
            self.assertIn(preset["repository"], said)

    def test_a_broken_connection_is_resumed(self):
        self.hub.broken["model.safetensors"] = (70_000, 3)
        self.models("llama-68M")
        self.check_whole()
        ranges = [r[1] for r in self.hub.requests if r[0] == "model.safetensors"]
        self.assertEqual(ranges, [None, "bytes=70000-", "bytes=140000-", "bytes=210000-"])

    def test_an_interrupted_download_goes_on(self):
        self.hub.broken["model.safetensors"] = (1000, 1)
        self.hub.status["model.safetensors"] = 404
        self.assertIn("404", self.models("llama-68M", code=4).stderr)
        part = self.folder / "llama-68M" / "model.safetensors.part"
        part.write_bytes(self.hub.repos[SMALL]["model.safetensors"][:123_456])
        self.hub.status.clear()
        self.models("llama-68M")
        self.check_whole()
        ranges = [r[1] for r in self.hub.requests if r[0] == "model.safetensors"]
        self.assertEqual(ranges[0], "bytes=123456-")
        self.assertEqual(len([r for r in self.hub.requests if r[0] == "config.json"]), 1)

    def test_a_server_without_ranges(self):
        self.hub.broken["model.safetensors"] = (70_000, 1)
        self.hub.deaf.add("model.safetensors")
        self.models("llama-68M")
        self.check_whole()

    def test_a_connection_that_never_brings_anything(self):
        self.hub.broken["model.safetensors"] = (0, 1000)
        line = self.models("llama-68M", code=4).stderr
        self.assertIn("the connection broke", line)
        self.assertNotIn("model.safetensors", self.names("llama-68M"))

    def test_wrong_bytes_are_refused(self):
        for name in ("model.safetensors", "config.json"):  # by SHA-256, and by git's id
            self.hub.wrong = {name}
            line = self.models("llama-68M", code=3).stderr
            self.assertIn(name, line)
            self.assertIn("nothing was kept", line)
            self.assertEqual([n for n in self.names("llama-68M") if n.startswith(name)], [])
            shutil.rmtree(self.folder / "llama-68M")
        self.hub.wrong.clear()
        self.models("llama-68M")
        self.check_whole()

    def test_what_was_recorded_must_come_again(self):
        self.models("llama-68M")
        model = self.folder / "llama-68M" / "model.safetensors"
        good = model.read_bytes()
        # A hub whose file changed under the same revision.
        self.hub.repos[SMALL]["model.safetensors"] = noise(9, 300_000)
        model.unlink()
        line = self.models("llama-68M", code=3).stderr
        self.assertIn(hashlib.sha256(good).hexdigest(), line)
        self.assertFalse(model.exists())
        self.hub.repos[SMALL]["model.safetensors"] = good
        self.models("llama-68M")
        # A file that rotted on the disk is found when asked for, and is not what the hub has.
        model.write_bytes(good[:-1] + b"\0")
        self.models("llama-68M")
        self.assertIn("model.safetensors", self.models("--verify", "llama-68M", code=3).stderr)
        model.unlink()
        self.models("--verify", "llama-68M")
        self.check_whole()

    def test_only_bin_is_converted(self):
        tensors = {"model.norm.weight": ("HalfStorage", "e", (4,), (1.0, 2.0, -0.5, 0.25)),
                   "lm_head.weight": ("FloatStorage", "f", (2, 3), (1, 2, 3, 4, 5, 6))}
        pytorch_file(self.folder / "made.bin", tensors)
        self.hub.repos[SMALL] = {"config.json": b"{}", "pytorch_model.bin": (self.folder / "made.bin").read_bytes()}
        self.models("llama-68M")
        data = (self.folder / "llama-68M" / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        for name, (_, element, shape, values) in tensors.items():
            self.assertEqual(header[name]["shape"], list(shape))
            begin, end = header[name]["data_offsets"]
            self.assertEqual(struct.unpack(f"<{len(values)}{element}", data[8 + length + begin:8 + length + end]),
                             tuple(values))
        self.assertEqual({n: t["dtype"] for n, t in header.items() if n in tensors},
                         {"model.norm.weight": "F16", "lm_head.weight": "F32"})
        before = (self.folder / "llama-68M" / "model.safetensors").stat().st_mtime_ns
        self.models("llama-68M")
        self.assertEqual((self.folder / "llama-68M" / "model.safetensors").stat().st_mtime_ns, before)

    def test_a_bin_that_is_none(self):
        del self.hub.repos[SMALL]["model.safetensors"]
        self.assertIn("pytorch_model.bin", self.models("llama-68M", code=3).stderr)
        self.assertNotIn("model.safetensors", self.names("llama-68M"))

    def test_bin_shards_with_their_index(self):
        names = [f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
        files = {"config.json": b"{}"}
        for i, name in enumerate(names):
            pytorch_file(self.folder / name, {f"w{i}": ("BFloat16Storage", "H", (2,), (16256, i))})
            files[name] = (self.folder / name).read_bytes()
        files["pytorch_model.bin.index.json"] = json.dumps(
            {"weight_map": {f"w{i}": n for i, n in enumerate(names)}}).encode()
        self.hub.repos[LARGE] = files
        self.models("llama-7B-128K")
        index = json.loads((self.folder / "llama-7B-128K" / "model.safetensors.index.json").read_text())
        self.assertEqual(index["weight_map"], {"w0": "model-00001-of-00002.safetensors",
                                               "w1": "model-00002-of-00002.safetensors"})

    def test_no_network(self):
        line = self.models("llama-68M", code=4, endpoint="http://127.0.0.1:1").stderr
        self.assertIn("needs a network", line)
        self.assertEqual(self.names(), [])
        for code in (401, 404):
            self.hub.status = {"/api/": code}
            self.assertIn(str(code), self.models("llama-68M", code=4).stderr)
        self.hub.status.clear()
        self.assertIn("URL", self.models("llama-68M", code=2, endpoint="ftp:/x").stderr)

    def test_a_listing_that_is_none(self):
        self.hub.repos[SMALL] = {"README.md": b"no weights"}
        self.assertIn("neither", self.models("llama-68M", code=3).stderr)
        self.hub.revision = "main"
        self.assertIn("revision", self.models("llama-68M", code=3).stderr)

    def test_no_room(self):
        self.assertIn("cannot write", self.models("llama-68M", code=4, limit=100_000).stderr)
        self.assertNotIn("model.safetensors", self.names("llama-68M"))
        self.models("llama-68M")
        self.check_whole()
        self.assertIn("/dev/null", self.models("--to", "/dev/null", "llama-68M", code=4).stderr)

    def test_usage(self):
        self.assertIn("llama-68M", self.models("--list").stdout)
        self.assertIn("lama", self.models("lama", code=2).stderr)
        self.models(code=2)
        self.assertIn("--budget", self.models("--budget", "3", code=2).stderr)


class DataSetsTest(DownloadTest):
    def setUp(self):
        super().setUp()
        self.hub.books = {n: (f"Book {n}.\n" * 200).encode() for n in range(100, 125)}
        self.hub.books[7] = b"too short"


class DataSets(DataSetsTest):
    def read(self, name):
        return [json.loads(line) for line in (self.folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]

    def test_books(self):
        self.hub.broken["100.txt"] = (500, 1)
        self.data("gs", "one-shot", "128k", "--min-bytes", "1000")
        gs = self.read("gs")
        self.assertEqual([d["text"] for d in gs], [self.hub.books[n].decode() for n in range(100, 120)])
        self.assertEqual(self.read("one-shot"), gs[:1])
        self.assertEqual(len(self.read("128k")), 25)
        self.assertEqual(len([r for r in self.hub.requests if r[0] == "100.txt"]), 2)  # once, and resumed
        record = json.loads((self.folder / "downloads.json").read_text())
        self.assertEqual(record["gs"]["sha256"], hashlib.sha256((self.folder / "gs.jsonl").read_bytes()).hexdigest())
        before = len(self.hub.requests)
        self.data("gs", "128k", "--min-bytes", "1000")
        self.assertEqual(len(self.hub.requests), before)

    def test_books_that_are_not_what_was_listed(self):
        self.hub.wrong.add("100.txt")
        self.assertIn("100.txt", self.data("one-shot", "--min-bytes", "1000", code=3).stderr)
        self.assertEqual(self.names("pg19"), [])
        self.assertIn("no book", self.data("gs", code=3).stderr)
        self.assertIn("needs a network", self.data("gs", code=4, endpoint="http://127.0.0.1:1").stderr)

    def test_a_file_of_ones_own_is_left_alone(self):
        (self.folder / "gs.jsonl").write_text("mine")
        self.assertIn("left alone", self.data("gs").stdout)
        self.assertEqual((self.folder / "gs.jsonl").read_text(), "mine")

    def test_stories(self):
        documents = self.folder / "train.jsonl"
        documents.write_text("".join(json.dumps({"document": {"text": f"xyzStory {i} \u00e9"}}) + "\n"
                                     for i in range(4600)), encoding="utf-8")
        self.data("lwm", "demo", "--documents", documents)
        lwm = self.read("lwm")
        self.assertEqual(len(lwm), 20)
        self.assertEqual([d["text"] for d in lwm[:4]], [f"Story {i} \u00e9" for i in (0, 50, 300, 800)])
        self.assertEqual(self.read("demo"), lwm[2:3])
        self.assertTrue(lwm[0]["prefix"].endswith("[start of the book]\n"))
        self.assertTrue(lwm[0]["suffix"].startswith("\n[end of the book]\n"))
        self.assertTrue(lwm[0]["suffix"].endswith("ASSISTANT: "))
        documents.write_text('{"text": "only one"}\n')
        (self.folder / "demo.jsonl").unlink()
        self.assertIn("[300]", self.data("demo", "--documents", documents, code=3).stderr)
        documents.write_text("no json\n")
        self.assertIn("train.jsonl:1", self.data("demo", "--documents", documents, code=3).stderr)
        self.assertFalse((self.folder / "demo.jsonl").exists())
        self.data("demo", "--documents", self.folder / "absent", code=3)

    def test_usage(self):
        self.data("gs", "--min-bytes", "0", code=2)
        self.data("gs", "--min-bytes", "x", code=2)
        self.assertIn("synthetic", self.data("synthetic", code=2).stderr)
        self.assertIn("NarrativeQA", self.data("--help").stdout)


if __name__ == "__main__":
    unittest.main()
