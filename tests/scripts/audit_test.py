"""scripts/audit_server.py against a server of the test's own, whose tokens are words and follow from the prompt."""
import hashlib
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))
from audit.comparison import share_over_prompts, student95, wilson  # noqa: E402
from plots.schema import errors  # noqa: E402

SCHEMA = json.loads((SOURCE / "data/schema/audit.schema.json").read_text(encoding="utf-8"))
SECRET = "sk-secret-0123456789"
PLAIN = '{"speculate": false}'


def words(text):
    return re.findall(r"\s*\S+", text)


class Model:
    """A server. `planted`, by the first word of a prompt, is (index, token) of what speculation changes there, and
    `drift` the same of the plain server's every second reply. Faults: `status`, `raw` and `late` by the number of
    the request, from 0, or None for all."""

    def __init__(self):
        self.planted, self.drift, self.stop = {}, {}, {}
        self.logprobs, self.counters, self.tokenize, self.usage = "list", None, None, True
        self.refuses_logprobs = self.drip = False
        self.drafted = (12, 9)
        self.status, self.raw, self.late, self.moved = {}, {}, {}, None
        self.finish, self.byte_tokens = None, {}
        self.requests, self.keys, self.asked = [], [], {}
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                model.answer(self)

            def do_GET(self):
                model.requests.append(("GET", self.path))
                self.send_error(405)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def of(self, table, number):
        return table.get(number, table.get(None))

    def answer(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        self.keys.append(request.headers.get("Authorization"))
        number = sum(path == "/v1/completions" for path, _ in self.requests)
        self.requests.append((request.path, body))
        if self.moved:
            request.send_response(307)
            request.send_header("Location", self.moved)
            return request.end_headers()
        if request.path != "/v1/completions":
            number = "tokenize"
        time.sleep(self.of(self.late, number) or 0)
        status, raw = self.of(self.status, number) or 200, self.of(self.raw, number)
        if number == "tokenize" and status == 200:
            raw, status = self.count(body), 200 if self.tokenize else 404
        elif raw is None and self.refuses_logprobs and body.get("logprobs"):
            status = 500
        if raw is None:
            raw = json.dumps(self.reply(body)).encode() if status == 200 else (
                f"no: {request.headers.get('Authorization')} \x1b[31m\n".encode())
        request.send_response(status)
        request.end_headers()
        for part in ([raw[i:i + 1] for i in range(len(raw))] if self.drip else [raw]):
            try:
                request.wfile.write(part)
                time.sleep(0.05 if self.drip else 0)
            except OSError:
                return None
        return None

    def count(self, body):
        if self.tokenize == "vllm":
            return json.dumps({"count": len(words(body["prompt"])), "max_model_len": 4096}).encode()
        return json.dumps({"tokens": [1] * len(words(body["content"]))}).encode()

    def generate(self, body):
        """Words that are a function of the whole prompt and, where planted, of who is asked."""
        prompt, speculates = body["prompt"], body.get("speculate", True)
        first = prompt.split()[0]
        count = min(body["max_tokens"], self.stop.get(first, 1 << 30))
        tokens = [" " + hashlib.sha256(f"{prompt}{i}".encode()).hexdigest()[:4] for i in range(count)]
        changed = None
        if speculates:
            changed = self.planted.get(first)
        elif body["max_tokens"] > 1:
            self.asked[first] = self.asked.get(first, 0) + 1
            changed = self.drift.get(first) if self.asked[first] % 2 == 0 else None
        if changed:
            tokens[changed[0]:] = [changed[1], *(f" x{i}" for i in range(count - changed[0] - 1))]
        return tokens

    def reply(self, body):
        tokens = self.generate(body)
        finish = self.finish or ("length" if len(tokens) == body["max_tokens"] else "stop")
        choice = {"text": "".join(tokens), "index": 0, "finish_reason": finish}
        if body.get("logprobs") and self.logprobs:
            choice["logprobs"] = self.named(tokens)
        reply = {"choices": [choice]}
        if self.usage:
            reply["usage"] = {"prompt_tokens": len(words(body["prompt"])), "completion_tokens": len(tokens)}
        drafted, accepted = self.drafted if body.get("speculate", True) else (0, 0)
        if self.counters == "llama":
            reply["timings"] = {"prompt_n": 1, "draft_n": drafted, "draft_n_accepted": accepted}
        elif self.counters == "vllm":
            reply["metrics"] = {"speculative_decoding": {"num_draft_tokens": drafted, "num_accepted_draft_tokens": accepted}}
        return reply

    def named(self, tokens):
        if self.logprobs == "list":
            return {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens),
                    "top_logprobs": [{token: -0.5, "other": -0.75} for token in tokens]}
        return {"content": [{"token": token, "logprob": -0.5, **({} if self.logprobs != "ids" else {"id": i}),
                             "top_logprobs": [{"token": token, "logprob": -0.5}, {"token": "o", "logprob": -0.625}]}
                            for i, token in enumerate(tokens)]}


class AuditTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="triforce_audit_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.model = self.make()
        lines = [{"text": f"doc{d} " + " ".join(f"w{d * i % 97}" for i in range(400))} for d in range(5)]
        self.data = self.write("d.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def make(self):
        model = Model()
        self.addCleanup(model.close)
        return model

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return str(self.folder / name)

    def call(self, *args, code=0, url=None, length=50, prompts=5, data=None, key=SECRET, plain=PLAIN):
        """The script on the jsonl file; checks what every call must show, and returns (stdout or stderr, document)."""
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "OPENAI_API_KEY"}
        env.update({"OPENAI_API_KEY": key} if key else {})
        out = self.folder / "audit.json"
        out.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-B", str(SOURCE / "scripts/audit_server.py"), url or self.model.url, "--model", "m",
             "--dataset", data or self.data, "--length", str(length), "--prompts", str(prompts), "--gen-len", "24",
             "--json", str(out), *(["--plain", plain] if plain else []), *args],
            env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        shown, said = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, code, f"{shown}\n{said}")
        for text in (shown, said, out.read_text(encoding="utf-8") if out.exists() else ""):
            self.assertNotIn(SECRET, text)
        for text in (shown, said):
            self.assertTrue(text.replace("\n", "").isprintable(), repr(text))
        if code not in (0, 1, 8):
            self.assertEqual((shown, said.count("\n"), out.exists()), ("", 1, False), said)
            self.assertRegex(said, "^audit_server: error: ")
            return said, None
        self.assertEqual(said, "")
        document = json.loads(out.read_text(encoding="utf-8"))
        self.assertEqual(errors(document, SCHEMA), [])
        self.assertEqual(document["exit_code"], code)
        self.assertEqual(shown.splitlines()[-1].split(":")[0], document["outcome"])
        return shown, document


class Outcomes(AuditTest):
    def test_no_difference(self):
        shown, document = self.call("--repeat", "2")
        self.assertIn("in all 5 prompts (120 tokens)", shown)
        found = document["totals"]
        self.assertEqual((found["equal"], found["decided"], found["not_repeated"]), (5, 5, 0))
        self.assertEqual(document["unit"], "token")
        low, high = wilson(1, 5)
        self.assertEqual(found["equal_share"], {"value": 1, "low": low, "high": high})
        self.assertAlmostEqual(low, 0.5655, 4)
        self.assertEqual(found["agreed_median"], 24)
        self.assertIsNone(found["drafted"])
        self.assertEqual({p["prompt_tokens"] for p in document["prompts"]} - {49, 50, 51}, set())
        bodies = [body for path, body in self.model.requests if body.get("max_tokens") == 24]
        self.assertEqual(len(bodies), 5 * 4)
        self.assertEqual([b.get("speculate", True) for b in bodies[:4]], [False, True, False, False])
        for body in bodies:
            self.assertEqual((body["temperature"], body["seed"], body["logprobs"], body["model"]), (0, 0, 2, "m"))

    def test_a_planted_difference_is_named(self):
        self.model.planted["doc2"] = (17, " wrong")
        shown, document = self.call(code=1)
        self.assertRegex(shown, r"prompt 3 \(.*d\.jsonl:3, character 0\): token 17: plain ' [0-9a-f]{4}', "
                                r"speculative ' wrong', after '.*'; margin 0\.2500 nats")
        self.assertEqual(shown.count(": token "), 1)
        self.assertEqual([p["status"] for p in document["prompts"]],
                         ["equal", "equal", "different", "equal", "equal"])
        found = document["prompts"][2]["difference"]
        self.assertEqual((found["index"], found["other"], found["margin_nats"]), (17, " wrong", 0.25))
        self.assertTrue(found["plain_after"].startswith(found["plain"]))
        self.assertTrue(found["other_after"].startswith(" wrong x0"))
        prompt = next(b["prompt"] for _, b in self.model.requests
                      if b.get("max_tokens") == 24 and b["prompt"].startswith("doc2 "))
        text = "".join(self.model.generate({"prompt": prompt, "speculate": False, "max_tokens": 24})[:17])
        self.assertEqual(found["before"], text[-40:])
        totals = document["totals"]
        self.assertEqual(totals["equal_share"]["value"], 0.8)
        self.assertAlmostEqual(totals["agreed_share"]["value"], (4 * 24 + 17) / 120)
        self.assertLess(totals["agreed_share"]["low"], totals["agreed_share"]["value"])
        self.assertEqual(totals["agreed_median"], 24)

    def test_the_first_and_the_last_token(self):
        self.model.planted = {"doc0": (0, " a"), "doc4": (23, " b")}
        _, document = self.call(code=1)
        self.assertEqual([p["agreed"] for p in document["prompts"]], [0, 24, 24, 24, 23])

    def test_a_reply_that_ends_earlier(self):
        plain = self.make()
        self.model.stop = {"doc1": 9}
        _, document = self.call("--plain-url", plain.url, code=1, plain=None)
        found = document["prompts"][1]["difference"]
        self.assertEqual((found["index"], found["other"]), (9, "(end)"))

    def test_a_plain_server_that_does_not_repeat(self):
        self.model.drift["doc1"] = (5, " drift")
        self.model.planted["doc3"] = (2, " wrong")  # which may be the server's own, then
        shown, document = self.call(code=8)
        self.assertRegex(shown, r"prompt 2 .*, repeat 1: token 5: plain .* again ' drift'")
        self.assertEqual([p["status"] for p in document["prompts"]], ["equal", "own", "equal", "different", "equal"])
        self.assertEqual(document["prompts"][1]["own_difference"]["repeat"], 1)
        self.assertIn("did not repeat itself in 1 of 5 prompts", shown.splitlines()[-1])

    def test_without_repeats_a_difference_is_undecided(self):
        self.call("--repeat", "0")
        self.model.planted["doc3"] = (2, " wrong")
        shown, _ = self.call("--repeat", "0", code=8)
        self.assertIn("--repeat 0", shown.splitlines()[-1])

    def test_two_servers(self):
        plain = self.make()
        self.model.planted["doc4"] = (3, " wrong")
        _, document = self.call("--plain-url", f"{plain.url}/v1/", "--plain-model", "other", code=1, plain=None,
                                url=f"{self.model.url}/v1")
        self.assertEqual(document["prompts"][4]["difference"]["index"], 3)
        self.assertEqual(document["plain"]["url"], plain.url)
        self.assertEqual({b["model"] for p, b in plain.requests}, {"other"})
        self.assertEqual({b["model"] for p, b in self.model.requests}, {"m"})

    def test_the_fields_of_speculation(self):
        self.model.planted["doc0"] = (3, " wrong")
        self.call("--speculative", '{"speculate": true, "x": [1]}', code=1, plain='{"speculate": false}')
        self.assertIn([1], [b.get("x") for _, b in self.model.requests])


class Replies(AuditTest):
    def test_without_logprobs(self):
        for say in ({"logprobs": None}, {"refuses_logprobs": True}):
            with self.subTest(say=say):
                self.model = self.make()
                vars(self.model).update(say)
                shown, document = self.call()
                self.assertEqual(document["unit"], "character")
                self.assertIn("characters are compared", shown)
                self.model.planted["doc2"] = (4, " wrong")
                _, document = self.call(code=1)
                self.assertEqual(document["prompts"][2]["difference"]["index"], 4 * 5 + 1)
        self.assertFalse(document["plain"]["logprobs"])

    def test_logprobs_as_a_list_of_objects(self):
        self.model.logprobs = "content"
        self.call()
        self.model.planted["doc2"] = (4, " wrong")
        _, document = self.call(code=1)
        found = document["prompts"][2]["difference"]
        self.assertEqual((document["unit"], found["index"], found["margin_nats"]), ("token", 4, 0.125))

    def test_equal_ids_do_not_hide_other_texts(self):
        self.model.logprobs = "ids"  # which are those of the places, so all are equal
        self.model.planted["doc2"] = (4, " wrong")
        _, document = self.call(code=1)
        self.assertEqual(document["prompts"][2]["difference"]["index"], 4)

    def test_tokens_that_are_not_all(self):
        plain, whole = self.make(), self.model.named
        self.model.logprobs = "list"
        self.model.named = lambda tokens: whole(tokens[::2])
        _, document = self.call("--plain-url", plain.url, plain=None)
        self.assertEqual(document["unit"], "character")

    def test_acceptance(self):
        for counters in ("llama", "vllm"):
            with self.subTest(counters=counters):
                self.model.counters = counters
                shown, document = self.call()
                self.assertIn("drafts: 45 of 60 tokens accepted (0.750)", shown)
                self.assertEqual((document["totals"]["acceptance"], document["prompts"][0]["drafted"]), (0.75, 12))

    def test_nothing_drafted_and_a_plain_server_that_drafts(self):
        self.model.counters, self.model.drafted = "llama", (0, 0)
        self.assertIn("no token was drafted", self.call(code=8)[0])
        plain = self.make()
        plain.counters = "llama"
        self.assertIn("the plain server drafted", self.call("--plain-url", plain.url, code=8, plain=None)[0])

    def test_counters_that_contradict_themselves(self):
        self.model.counters, self.model.drafted = "llama", (3, 9)
        self.assertIsNone(self.call()[1]["totals"]["drafted"])

    def test_replies_that_are_cut(self):
        for finish, says in (("abort", "finish_reason abort"), ("content_filter", "content_filter")):
            self.model.finish = finish
            self.assertIn(says, self.call(code=8)[0].splitlines()[-1])
        self.model.finish, self.model.stop = "length", {"doc1": 9}
        _, document = self.call(code=8)
        self.assertEqual([p["status"] for p in document["prompts"]],
                         ["equal", "undecided", "equal", "equal", "equal"])

    def test_one_of_two_replies_that_is_cut(self):
        plain = self.make()
        self.model.finish, self.model.stop = "length", {"doc1": 9}
        _, document = self.call("--plain-url", plain.url, code=8, plain=None)
        self.assertEqual((document["prompts"][1]["status"], document["prompts"][1]["reason"]),
                         ("undecided", "a reply was cut"))

    def test_a_cut_reply_still_shows_a_difference_before_its_end(self):
        self.model.finish, self.model.stop, self.model.planted = "length", {"doc1": 9}, {"doc1": (3, " wrong")}
        _, document = self.call(code=1)
        self.assertEqual(document["prompts"][1]["difference"]["index"], 3)

    def test_an_empty_reply_shows_nothing(self):
        self.model.stop = {f"doc{d}": 0 for d in range(5)}
        self.assertIn("nothing was generated", self.call(code=8)[0].splitlines()[-1])

    def test_other_ends(self):
        plain = self.make()
        plain.finish = "stop"
        self.assertIn("finish_reason stop and length", self.call("--plain-url", plain.url, code=8, plain=None)[0])

    def test_control_characters_and_bytes_stay_off_the_terminal(self):
        self.model.planted["doc2"] = (4, "\x1b[31m\u202e\ud800")
        shown, document = self.call(code=1)
        self.assertIn("\\x1b[31m\\u202e\\ud800", shown)
        self.assertEqual(document["prompts"][2]["difference"]["other"], "\x1b[31m\u202e\ud800")

    def test_bytes_that_are_no_utf8_are_told_apart(self):
        plain = self.make()
        for model, byte in ((self.model, b"\xff"), (plain, b"\xfe")):
            model.raw[None] = (b'{"choices": [{"text": "a' + byte + b'b", "finish_reason": "stop"}], '
                               b'"usage": {"prompt_tokens": 50}}')
        _, document = self.call("--plain-url", plain.url, code=1, plain=None)
        self.assertEqual(document["prompts"][0]["difference"]["index"], 1)

    def test_a_key_that_comes_back(self):
        self.model.planted["doc2"] = (4, f" {SECRET}")
        _, document = self.call(code=1)
        self.assertEqual(document["prompts"][2]["difference"]["other"], " ***")
        self.assertEqual(set(self.model.keys), {f"Bearer {SECRET}"})
        self.model.planted.clear()
        os.environ["OTHER"] = "other-key"
        self.addCleanup(os.environ.pop, "OTHER")
        self.call("--api-key-env", "OTHER")
        self.assertEqual(self.model.keys[-1], "Bearer other-key")
        self.call(key=None)
        self.assertIsNone(self.model.keys[-1])


class Lengths(AuditTest):
    def lengths(self, **kwargs):
        return [p["prompt_tokens"] for p in self.call(**kwargs)[1]["prompts"]]

    def test_by_usage_and_by_tokenize(self):
        for tokenize in (None, "llama", "vllm"):
            with self.subTest(tokenize=tokenize):
                self.model = self.make()
                self.model.tokenize = tokenize
                for found in self.lengths(length=200):
                    self.assertAlmostEqual(found, 200, delta=2 if tokenize is None else 0)
                ones = sum(body["max_tokens"] == 1 for path, body in self.model.requests if path != "/tokenize")
                self.assertEqual(ones > 0, tokenize is None)
                self.assertLess(ones, 5 * 4)

    def test_pieces_of_a_text_follow_each_other(self):
        text = " ".join(f"w{i}" for i in range(1000))
        shown, document = self.call(data=self.write("d.txt", text), length=150, prompts=10)
        end = 0
        for prompt in document["prompts"]:
            self.assertEqual(prompt["start"], end)
            end += prompt["characters"]
        self.assertEqual(len(document["prompts"]), 6)
        self.assertIn("6 of 10 with ", shown)

    def test_short_documents_are_counted(self):
        data = self.write("d.jsonl", (self.folder / "d.jsonl").read_text(encoding="utf-8") + '{"text": "too short"}\n')
        shown, document = self.call(data=data, prompts=6)
        self.assertEqual(len(document["prompts"]), 5)
        self.assertIn("too short: 1 documents", shown)
        self.assertIn("expected a document of 5000 tokens, found 401", self.call(data=data, length=5000, code=3)[0])

    def test_usage_that_is_missing_or_wrong(self):
        self.model.usage = False
        self.assertIn("usage.prompt_tokens: expected a count, found None", self.call(code=3)[0])
        self.model.tokenize = "llama"
        self.assertEqual(self.call()[1]["lengths"]["median"], 50)

    def test_prompts_of_two_servers_must_be_equally_long(self):
        plain, reply = self.make(), self.model.reply
        self.model.reply = lambda body: {**reply(body), "usage": {"prompt_tokens": 7}}
        self.assertIn("expected prompts of equal length", self.call("--plain-url", plain.url, code=8, plain=None)[0])


class Errors(AuditTest):
    def test_usage(self):
        cases = [((), None, "expected --plain-url of another server"),
                 (("--plain-url", self.model.url + "/v1"), None, "expected --plain-url of another server"),
                 (("--speculative", "[1]"), None, "--speculative: expected a JSON object"),
                 ((), "{", "--plain: expected a JSON object"), ((), '{"temperature": 1}', "found 'temperature'"),
                 (("--length", "0"), PLAIN, "--length: expected at least 1"),
                 (("--timeout", "nan"), PLAIN, "--timeout: expected seconds above 0"),
                 (("--plain-url", "file:///etc/passwd"), None, "--plain-url: expected http://HOST"),
                 (("--plain-url", f"http://me:{SECRET}@host"), None, "--plain-url: expected http://HOST"),
                 (("--plain-model", "x"), PLAIN, "--plain-model: expected --plain-url"),
                 (("--api-key-env", "NOT_THERE"), PLAIN, "--api-key-env: expected a variable that is set"),
                 (("--json", self.data), PLAIN, "--json: expected another file")]
        for args, plain, says in cases:
            with self.subTest(args=args):
                self.assertIn(says, self.call(*args, plain=plain, code=2)[0])
        self.assertIn("found other characters", self.call(key=SECRET + " ", code=2)[0])
        self.assertEqual(self.model.requests, [])

    def test_data(self):
        self.assertIn("cannot be read", self.call(data=self.write("d.txt", "x") + ".txt", code=3)[0])
        self.assertIn("expected an object with the field 'text'", self.call(data=self.write("e.jsonl", "1"), code=3)[0])

    def test_a_refused_connection(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{held.getsockname()[1]}"
            said, _ = self.call(url=url, code=4)
        self.assertIn(f"{url}/tokenize: expected an answer, found Connection refused", said)

    def test_an_http_error(self):
        self.model.status[None] = 500
        said, _ = self.call(code=4)
        self.assertIn("/v1/completions: expected an answer, found HTTP 500", said)
        self.assertIn("no: Bearer ***", said)

    def test_a_redirect_is_not_followed(self):
        other = self.make()
        self.model.moved = f"{other.url}/v1/completions"
        self.assertIn("found HTTP 307", self.call(code=4)[0])
        self.assertEqual(other.requests, [])

    def test_replies_that_are_none(self):
        for raw, says in [(b"<html>", "expected JSON, found '<html>'"), (b"", "expected JSON"),
                          (b"[" * 100000, "expected JSON"), (b"null", "expected a reply with choices"),
                          (b'{"choices": []}', "choices"), (b'{"choices": [{"text": 1}]}', "choices[0].text"),
                          (b'{"error": "\x1b"}', "expected JSON"),
                          (b'{"choices": {"0": {"text": "a"}}}', "choices"), (b'\xff\xfe', "expected JSON"),
                          (b'{"choices": [{"text": ""}], "usage": {"prompt_tokens": true}}', "prompt_tokens"),
                          (b'{"choices": [{"text": ""}], "usage": [1]}', "prompt_tokens"),
                          (f'{{"error": "{SECRET}"}}'.encode(), "'***'")]:
            with self.subTest(raw=raw[:40]):
                self.model.raw[None] = raw
                self.assertIn(says, self.call(code=3)[0])

    def test_odd_logprobs(self):
        for odd in (None, 1, {"tokens": 1}, {"tokens": ["a"], "top_logprobs": 3}, {"content": [None]},
                    {"content": [{"token": 1}]}, {"tokens": [], "top_logprobs": [[]]}):
            with self.subTest(odd=odd):
                self.model.named = lambda _, odd=odd: odd
                self.assertEqual(self.call()[1]["unit"], "character")

    def test_an_endless_reply(self):
        self.model.raw[None] = b" " * ((64 << 20) + 1)
        self.assertIn("expected at most 67108864 bytes", self.call(code=3)[0])

    def test_a_late_reply(self):
        self.model.late[None] = 30
        begin = time.monotonic()
        said, _ = self.call("--timeout", "0.5", code=4)
        self.assertIn("expected an answer within 0.5 s (--timeout), found none", said)
        self.assertLess(time.monotonic() - begin, 20)

    def test_a_reply_that_drips(self):
        self.model.drip = True
        said, _ = self.call("--timeout", "0.5", code=4)
        self.assertIn("expected an answer within 0.5 s", said)

    def test_one_failure_leaves_the_rest(self):
        self.call()
        count = sum(path == "/v1/completions" for path, _ in self.model.requests)
        self.model.requests.clear()
        self.model.status[count - 1] = 500  # the last request
        shown, document = self.call(code=8)
        self.assertEqual([p["status"] for p in document["prompts"]], ["equal"] * 4 + ["undecided"])
        self.assertIn("found HTTP 500", shown)
        self.model.requests.clear()
        self.model.planted["doc0"] = (1, " wrong")
        self.call(code=1)

    def test_two_failures_in_a_row_end_it(self):
        self.call()
        count = sum(path == "/v1/completions" for path, _ in self.model.requests)
        self.model.requests.clear()
        self.model.raw.update({number: b"<" for number in range(count - 12, count)})
        shown, document = self.call(code=8)
        self.assertEqual(len(document["prompts"]), 3)
        self.assertIn("2 prompts were not tried", shown)

    def test_progress_is_for_terminals(self):
        ours, its = pty.openpty()
        done = subprocess.run([sys.executable, "-B", str(SOURCE / "scripts/audit_server.py"), self.model.url, "--model",
                               "m", "--dataset", self.data, "--length", "50", "--plain", PLAIN],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its, timeout=60, check=False)
        os.close(its)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"prompt 3: plain", os.read(ours, 65536))
        os.close(ours)


class Statistics(unittest.TestCase):
    def test_intervals(self):
        # Of tables, and by hand.
        for freedom, value in ((1, 12.706), (5, 2.571), (6, 2.447), (9, 2.262), (30, 2.042), (1000, 1.962)):
            self.assertAlmostEqual(student95(freedom), value, delta=0.002)
        low, high = wilson(0.8, 10)
        self.assertAlmostEqual(low, 0.4902, 4)
        self.assertAlmostEqual(high, 0.9433, 4)
        self.assertEqual(share_over_prompts([(3, 4)]), (0.75, None, None))
        share, low, high = share_over_prompts([(5, 5)] * 10)
        self.assertEqual((share, low, high), (1, *wilson(1, 10)))
        wide, narrow = ([(a, 100) for a in values] for values in ((10, 90, 50, 100), (60, 65, 61, 64)))
        self.assertEqual(share_over_prompts(wide)[0], share_over_prompts(narrow)[0])
        self.assertGreater(*(share_over_prompts(pairs)[2] - share_over_prompts(pairs)[1] for pairs in (wide, narrow)))


if __name__ == "__main__":
    unittest.main()
