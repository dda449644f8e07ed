"""Pages and pictures in headless Chromium: nothing on its console, nothing asked of a network, no text
cut off in the fonts of this machine. Exits 77 (skipped) where there is no Chromium or Chrome."""
import io
import json
import os
import re
import subprocess
import sys
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

from drawn import GOLDEN, ScriptTest, image
from plots import browser

BROWSER = browser.find()
# What a page says of itself once it is loaded.
PROBE = """<script>
addEventListener("load", () => {
  const outside = [];
  let texts = 0;
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  for (const svg of document.querySelectorAll("svg")) {
    const all = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      texts += 1;
      if (box.left < all.left || box.top < all.top || box.right > all.right || box.bottom > all.bottom) {
        outside.push(text.textContent);
      }
    }
  }
  document.querySelector("button[data-copies]")?.click();
  setTimeout(() => {
    const said = document.createElement("pre");
    said.id = "probe";
    said.textContent = JSON.stringify({outside, texts,
      loaded: performance.getEntriesByType("resource").map(entry => entry.name),
      button: document.querySelector("button[data-copies]")?.textContent});
    document.body.append(said);
  }, 300);
});
</script>"""


class Visits(BaseHTTPRequestHandler):
    """A network of our own, to see that a request would be seen."""
    seen = []

    def do_GET(self):  # pylint: disable=invalid-name
        self.seen.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class InBrowser(ScriptTest):
    def visit(self, path):
        """(lines of the console, what PROBE said)."""
        done = subprocess.run(
            browser.command(BROWSER, self.path("profile"), "--enable-logging=stderr", "--v=0",
                            "--virtual-time-budget=5000", "--dump-dom", f"file://{path}"),
            capture_output=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(self.folder)})
        dom = done.stdout.decode()
        console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
        found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
        self.assertIsNotNone(found, f"{done.stderr.decode(errors='replace')[-2000:]}\n{dom[-500:]}")
        said = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return console, json.loads(said)

    def probed(self, text, end="</body>"):
        return self.write("probed.html", text.replace(end, PROBE + end))

    def check(self, text, least):
        console, said = self.visit(self.probed(text))
        self.assertEqual(console, [])
        self.assertEqual((said["outside"], said["loaded"]), ([], []))
        self.assertGreaterEqual(said["texts"], least)
        return said

    def results(self):
        """A sweep of the built-in pair at toy size, and long names."""
        for budget in (64, 128, 256):
            self.run_program("run", "--prefill", "512", "--gen-len", "16", "--prompts", "2",
                             "--repetitions", "1", "--budget", str(budget), "--threads", "1",
                             "--method", "ar,triforce,retrieval", "--jsonl", "sweep.jsonl",
                             "--progress", "none")
        golden = self.golden()
        golden["cases"][1]["name"] = "MW" * 40
        golden["context"]["gpu_name"] = "\u6f22\u5b57 " * 40
        return ["sweep.jsonl", self.write("long.json", json.dumps(golden))]

    def test_report(self):
        files = self.results()
        self.script("report", *files, "--base", GOLDEN / "result.json", "-o", "report.html")
        said = self.check(self.read("report.html"), 100)
        self.assertIn(said["button"], ("Copied", "Selected: copy it with the keyboard"))

    def test_pictures(self):
        files = self.results()
        for y in ("acceptance", "ms-per-token", "length"):
            self.script("plot_sweep", *files, "--x", "budget", "--y", y, "--out", "a.svg")
            self.check(f"<!DOCTYPE html><title>a</title><body>{self.read('a.svg')}</body>", 10)
        self.script("plot_result", files[1], "--out", "a.svg")
        self.check(f"<!DOCTYPE html><title>a</title><body>{self.read('a.svg')}</body>", 5)

    def test_recipe(self):
        self.run_program("sweep", "tiny-fig6a", "--prefill", "512", "--budget", "64,128", "--gen-len", "16",
                         "--prompts", "2", "--threads", "1", "--progress", "none", "--json", "s.json")
        self.script("report", "s.json", "-o", "report.html")
        self.check(self.read("report.html"), 50)

    def test_picture(self):
        files = self.results()
        self.script("report_picture", files[0], "--out", "a.png")
        png = (self.folder / "a.png").read_bytes()
        self.assertLess(len(png), 200_000)
        row = image.imread(io.BytesIO(png))[0, :, :3] * 255
        width = len(row)
        self.assertGreater(width, 1000)
        # Light on the left, dark on the right.
        self.assertEqual(row[[0, width // 2 - 2]].round().tolist(), [[255, 255, 255]] * 2)
        self.assertEqual(row[[width // 2 + 2, width - 1]].round().tolist(), [[13, 17, 23]] * 2)

    def test_these_checks_can_fail(self):
        self.script("report", GOLDEN / "result.json", "-o", "report.html")
        page = self.read("report.html")
        server = HTTPServer(("127.0.0.1", 0), Visits)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        image = f'<img src="http://127.0.0.1:{server.server_port}/seen">'
        # The page's own policy refuses a request, and the console says so.
        console, said = self.visit(self.probed(page))
        self.assertEqual((console, said["outside"]), ([], []))
        console, _ = self.visit(self.probed(page.replace("</body>", f"{image}</body>")))
        self.assertTrue(any("Content Security Policy" in line for line in console), console)
        self.assertEqual(Visits.seen, [])
        # Without the policy it would be made, and is seen here.
        open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        _, said = self.visit(self.probed(open_page.replace("</body>", f"{image}</body>")))
        self.assertEqual(Visits.seen, ["/seen"])
        self.assertEqual(len(said["loaded"]), 1)
        console, _ = self.visit(self.probed(page.replace("</body>", "<script>oops()</script></body>")))
        self.assertTrue(any("oops" in line for line in console), console)
        wide = page.replace('x="6" ', 'x="460" ')
        self.assertNotEqual(wide, page)
        _, said = self.visit(self.probed(wide))
        self.assertGreater(len(said["outside"]), 0)


if __name__ == "__main__":
    if BROWSER is None:
        print(f"skipped: {browser.NONE_FOUND}")
        sys.exit(77)
    unittest.main()
