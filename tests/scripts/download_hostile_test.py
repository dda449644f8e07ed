"""The download scripts against a server, records, documents and an environment that are not what they should be."""
import base64
import json
import shutil
import unittest

from download_test import SMALL, DataSetsTest, ModelsTest


class Models(ModelsTest):
    def test_a_body_that_never_ends(self):
        for name in ("model.safetensors", "config.json"):
            self.hub.endless, self.hub.sent = {name}, 0
            line = self.models("llama-68M", code=3).stderr
            self.assertIn(f"{name}: expected {len(self.hub.repos[SMALL][name])} bytes, found more", line)
            self.assertLess(self.hub.sent, 30_000_000)  # what buffers on the way hold
            self.assertEqual([n for n in self.names("llama-68M") if n.startswith(name)], [])
            shutil.rmtree(self.folder / "llama-68M")
        self.hub.endless.clear()
        self.models("llama-68M")
        self.check_whole()

    def test_more_bytes_after_an_interrupted_download(self):
        self.hub.repos[SMALL]["model.safetensors"] += b"more"
        whole = self.hub.listing(SMALL)
        for item in whole:
            if item["path"] == "model.safetensors":
                item["size"] -= 4
        self.hub.raw = {f"/api/models/{SMALL}/tree": json.dumps(whole).encode()}
        part = self.folder / "llama-68M" / "model.safetensors.part"
        part.parent.mkdir()
        part.write_bytes(self.hub.repos[SMALL]["model.safetensors"][:1000])
        self.assertIn("expected 300000 bytes, found more", self.models("llama-68M", code=3).stderr)
        self.assertFalse(part.exists())

    def test_a_server_without_ranges_that_breaks_off_here_and_there(self):
        self.hub.deaf.add("model.safetensors")
        self.hub.broken["model.safetensors"] = ((1000, 2000), 10_000)
        self.assertIn("the connection broke", self.models("llama-68M", code=4).stderr)
        self.assertLess(len([r for r in self.hub.requests if r[0] == "model.safetensors"]), 10)

    def test_a_listing_that_never_ends(self):
        for begin in (f"/api/models/{SMALL}/revision", f"/api/models/{SMALL}/tree"):
            self.hub.raw, self.hub.endless, self.hub.sent = {begin: b"[" * (1 << 20)}, {begin}, 0
            self.assertIn("bytes, found more", self.models("llama-68M", code=3).stderr)
            self.assertLess(self.hub.sent, 100_000_000)

    def test_answers_that_are_not_what_was_expected(self):
        tree, revision = f"/api/models/{SMALL}/tree", f"/api/models/{SMALL}/revision"
        deep = b"[" * 200_000
        for body in (deep, b"", b"\xff", b"{", b"1" * 5000, b"[]", b"3", b'{"sha": 5}', b'{"sha": "' + b"A" * 40 + b'"}'):
            self.hub.raw = {revision: body}
            with self.subTest(revision=body[:20]):
                self.models("llama-68M", code=3)

        def listing(**changes):
            items = self.hub.listing(SMALL)
            for item in items:
                if item["path"] == "model.safetensors":
                    item.update(changes)
            return json.dumps(items).encode()
        for body in (deep, b"", b"{}", b"[[]]", b"[null]", b"7", listing(path=5), listing(path=None), listing(size=-5),
                     listing(size=0), listing(size="1"), listing(size=1.5), listing(size=True), listing(size=None),
                     listing(size=1e300).replace(b"1e+300", b"1e999"), listing(size=10**400), listing(lfs=3),
                     listing(lfs={}), listing(lfs={"oid": "x" * 64}), listing(lfs=None, oid=["a"])):
            self.hub.raw = {tree: body}
            with self.subTest(listing=body[:200]):
                self.assertIn("JSON" if body in (deep, b"") else "listing",
                              self.models("llama-68M", code=3).stderr)
        self.assertEqual(self.names(), [])
        self.hub.raw, self.hub.moved = {}, {revision: "http://[::1"}
        self.assertIn("URL", self.models("llama-68M", code=3).stderr)

    def test_records_that_this_script_did_not_write(self):
        self.models("llama-68M")
        path = self.folder / "llama-68M" / "download.json"
        good = json.loads(path.read_text())
        entry = good["files"]["config.json"]
        outside = self.folder / "outside"
        outside.write_bytes(self.hub.repos[SMALL]["config.json"])
        for bad in ([], {}, 5, None, {**good, "revision": "../../../x"}, {**good, "revision": 7}, {**good, "files": []},
                    {**good, "files": None}, {**good, "files": {"config.json": 3}}, {**good, "complete": "yes"},
                    {**good, "files": {"config.json": {"size": entry["size"]}}},
                    {**good, "files": {"config.json": {**entry, "size": -1}}},
                    {**good, "files": {"config.json": {**entry, "sha256": 5}}},
                    {**good, "files": {"../outside": entry}}, {**good, "files": {str(outside): entry}},
                    {**good, "files": {"..": entry}}, {**good, "files": {"a/b": entry}},
                    {k: v for k, v in good.items() if k != "repository"}, {**good, "repository": "other/model"}):
            path.write_text(json.dumps(bad))
            with self.subTest(record=bad):
                self.assertIn("remove it to start anew", self.models("--verify", "llama-68M", code=3).stderr)
        for text in (b"[" * 200_000, b"\xff\xfe", b""):
            path.write_bytes(text)
            self.assertIn("remove it to start anew", self.models("llama-68M", code=3).stderr)
        # A file that it names and the hub does not have any more.
        path.write_text(json.dumps({**good, "files": {**good["files"], "gone.json": entry}}))
        self.models("--verify", "llama-68M")
        self.check_whole()

    def test_bad_variables_of_the_environment(self):
        for token in ("a\nb", "\u2603", "a b", "\x7f"):
            line = self.models("llama-68M", code=2, token=token).stderr
            self.assertIn("HF_TOKEN: expected", line)
            self.assertNotIn(token, line)
        for endpoint in ("http://[::1", "http://", "https:///x", "http://h:port", "http://h:99999", "http://a b",
                         "http://h\n", "http://h?q=1", "file:///etc", "ftp://h", "http://\u2603"):
            with self.subTest(endpoint=endpoint):
                self.assertIn("HF_ENDPOINT: expected the URL of a server",
                              self.models("llama-68M", code=2, endpoint=endpoint).stderr)
                self.assertIn("STORAGE_EMULATOR_HOST: expected the URL of a server",
                              self.data("gs", code=2, endpoint=endpoint).stderr)
        self.assertEqual(self.names(), [])


class DataSets(DataSetsTest):
    def test_listings_that_are_not_what_was_expected(self):
        begin = "/storage/v1/b"
        md5 = base64.b64encode(bytes(16)).decode()

        def item(**changes):
            return {"name": "test/9.txt", "size": "500000", "md5Hash": md5, **changes}
        for answer in ([], {}, 5, None, {"items": None}, {"items": [3]}, {"items": [{}]}, {"items": [item(name=5)]},
                       {"items": [item(size="-5")]}, {"items": [item(size="0")]}, {"items": [item(size="x")]},
                       {"items": [item(size="9" * 400)]}, {"items": [item(size=None)]}, {"items": [item(md5Hash=5)]},
                       {"items": [item(md5Hash="AAAA")]}, {"items": [item(md5Hash="?")]},
                       {"items": [item()], "nextPageToken": "x"}):
            self.hub.raw = {begin: json.dumps(answer).encode()}
            with self.subTest(answer=answer):
                self.assertIn("listing", self.data("gs", code=3).stderr)
        for body in (b'{"items": [{"name": "test/9.txt", "size": 1e999}]}', b"[" * 200_000, b"\xff"):
            self.hub.raw = {begin: body}
            self.data("gs", code=3)
        self.hub.raw, self.hub.endless = {begin: b"[" * (1 << 20)}, {begin}
        self.assertIn("found more", self.data("gs", code=3).stderr)

    def test_a_book_that_never_ends(self):
        self.hub.endless.add("100.txt")
        self.assertIn("found more", self.data("one-shot", "--min-bytes", "1000", code=3).stderr)
        self.assertLess(self.hub.sent, 30_000_000)
        self.assertEqual(self.names("pg19"), [])

    def test_records_that_this_script_did_not_write(self):
        entry = {"bytes": 5, "sha256": "0" * 64, "made_of": []}
        for record in (b"[" * 200_000, b"\xff", b"", b"[]", b"{}", b'{"gs": 3}', b'{"gs": {}}', b'{"gs": null}',
                       json.dumps({"gs": {**entry, "bytes": "5"}}).encode(),
                       json.dumps({"gs": {**entry, "sha256": None}}).encode()):
            (self.folder / "downloads.json").write_bytes(record)
            with self.subTest(record=record[:40]):
                self.assertIn("remove it to start anew", self.data("gs", code=3).stderr)

    def test_documents_that_are_none(self):
        documents = self.folder / "train.jsonl"
        good = b'{"text": "xyzStory"}\n'
        for line in (b"\xff\n", b"[" * 200_000 + b"\n", b"5\n", b"null\n", b"[]\n", b"{}\n", b'{"text": 5}\n',
                     b'{"document": {"text": null}}\n', b'{"text": ""}\n', b'{"text": "xyz"}\n',
                     b'{"text": "xyz \\n\\t "}\n', b'{"text": "xyz \\ud800"}\n'):
            documents.write_bytes(good * 300 + line)
            with self.subTest(line=line[:40]):
                self.data("demo", "--documents", documents, code=3)
                self.assertEqual(self.names(), ["train.jsonl"])
        documents.write_bytes(good * 301)
        self.data("demo", "--documents", documents)


if __name__ == "__main__":
    unittest.main()
