"""A small Hugging Face hub, its file server and a storage bucket, in threads of the test."""
import base64
import hashlib
import json
import pickle
import struct
import sys
import threading
import types
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

REVISION = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """repos: repository -> path -> bytes. Large files are redirected to a second server, as the hub does.
    Faults by path: `broken` ends the connection after so many bytes, so many times; `wrong` sends other bytes;
    `deaf` ignores Range; `endless` sends more and more bytes after the file's, and says no length. Of an address
    that begins so `raw` sends these bytes in place of the answer, endlessly again and again if `endless` names it, and
    `moved` the place that it redirects to."""

    def __init__(self):
        self.repos, self.books = {}, {}
        self.large = (".safetensors", ".bin", ".model")
        self.broken, self.wrong, self.deaf, self.status = {}, set(), set(), {}
        self.endless, self.raw, self.moved, self.sent = set(), {}, {}, 0
        self.revision = REVISION
        self.requests, self.tokens = [], {"hub": set(), "files": set()}
        self.hub = self.serve(self.answer_hub)
        self.files = self.serve(self.answer_files)

    def serve(self, answer):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                answer(self)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def close(self):
        for server in (self.hub, self.files):
            server.shutdown()
            server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.hub.server_address[1]}"

    def is_large(self, path):
        return path.endswith(self.large)

    def reply(self, request, code, body=b"", **headers):
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def listing(self, repo):
        out = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "onnx"}]
        for path, data in self.repos[repo].items():
            item = {"type": "file", "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
                    "size": len(data), "path": path}
            if self.is_large(path):
                item["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            out.append(item)
        return out

    def answer_hub(self, request):
        path = unquote(urlsplit(request.path).path)
        self.requests.append(path)
        self.tokens["hub"].add(request.headers.get("Authorization"))
        for part, code in self.status.items():
            if part in path:
                return self.reply(request, code)
        for begin, place in self.moved.items():
            if path.startswith(begin):
                return self.reply(request, 302, Location=place)
        for begin, body in self.raw.items():
            if path.startswith(begin):
                return self.send_endlessly(request, body) if begin in self.endless else self.reply(request, 200, body)
        for repo in self.repos:
            if path == f"/api/models/{repo}/revision/main":
                return self.reply(request, 200, json.dumps({"id": repo, "sha": self.revision}).encode())
            if path == f"/api/models/{repo}/tree/{self.revision}":
                return self.reply(request, 200, json.dumps(self.listing(repo)).encode())
            begin = f"/{repo}/resolve/{self.revision}/"
            name = path.removeprefix(begin)
            if path.startswith(begin) and name in self.repos[repo]:
                if self.is_large(name):
                    place = f"http://localhost:{self.files.server_address[1]}/{repo}/{name}"
                    return self.reply(request, 302, Location=place)
                return self.send(request, name, self.repos[repo][name])
        if path == "/storage/v1/b/deepmind-gutenberg/o":
            items = [{"name": f"test/{n}.txt", "size": str(len(text)),
                      "md5Hash": base64.b64encode(hashlib.md5(text).digest()).decode()}
                     for n, text in self.books.items()]
            return self.reply(request, 200, json.dumps({"items": items}).encode())
        if path.startswith("/deepmind-gutenberg/test/"):
            number = int(path.split("/")[-1].removesuffix(".txt"))
            return self.send(request, f"{number}.txt", self.books[number])
        return self.reply(request, 404)

    def answer_files(self, request):
        self.tokens["files"].add(request.headers.get("Authorization"))
        *repo, name = unquote(request.path).strip("/").split("/")
        self.send(request, name, self.repos["/".join(repo)][name])

    def send_endlessly(self, request, data):
        """`sent` counts what the other side took; it ends with that side, or at 300 MB."""
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True
        try:
            while self.sent < 300_000_000:
                request.wfile.write(data)
                self.sent += len(data)
        except OSError:
            pass

    def send(self, request, name, data):
        wanted = request.headers.get("Range")
        self.requests.append((name, wanted))
        if name in self.wrong:
            data = bytes(255 - b for b in data)
        if name in self.endless:
            return self.send_endlessly(request, data)
        begin, code = 0, 200
        if wanted and name not in self.deaf:
            begin, code = int(wanted.removeprefix("bytes=").removesuffix("-")), 206
        body = data[begin:]
        request.send_response(code)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        limit, times = self.broken.get(name, (0, 0))
        if times > 0:
            limits = limit if isinstance(limit, tuple) else (limit,)  # in turn
            self.broken[name] = (limits[1:] + limits[:1], times - 1)
            body = body[:limits[0]]
            request.close_connection = True
        request.wfile.write(body)


def pytorch_file(path, tensors):
    """Writes name -> (storage class, element format of struct, shape, values) as torch.save() would, without
    PyTorch: the classes that the pickle names are made up for as long as it is written."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2():
        pass

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    storages = {}
    for kind in {t[0] for t in tensors.values()}:
        storages[kind] = type(kind, (), {"__module__": "torch"})
        setattr(torch, kind, storages[kind])

    class Reference(tuple):
        pass

    class Rebuilt:
        def __init__(self, *parts):
            self.parts = parts

        def __reduce__(self):
            return _rebuild_tensor_v2, self.parts

    class Pickler(pickle.Pickler):
        def persistent_id(self, item):
            return tuple(item) if isinstance(item, Reference) else None

    state, data = {}, {}
    for key, (name, (kind, element, shape, values)) in enumerate(tensors.items()):
        stride, step = [], 1
        for size in reversed(shape):
            stride.insert(0, step)
            step *= size
        data[str(key)] = struct.pack(f"<{len(values)}{element}", *values)
        reference = Reference(("storage", storages[kind], str(key), "cpu", len(values)))
        state[name] = Rebuilt(reference, 0, tuple(shape), tuple(stride), False, {})
    sys.modules.update({"torch": torch, "torch._utils": utils})
    try:
        with zipfile.ZipFile(path, "w") as out:
            with out.open("archive/data.pkl", "w") as file:
                Pickler(file, 2).dump(state)
            for key, content in data.items():
                out.writestr(f"archive/data/{key}", content)
            out.writestr("archive/version", "3\n")
    finally:
        del sys.modules["torch"], sys.modules["torch._utils"]
