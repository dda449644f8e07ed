"""HTML: elements, tables and the frame of a page that needs nothing but itself."""

import json
from html import escape

from plots import canvas
from plots.words import clean

# A page that could ask a network for something would be refused by the browser itself.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1f2328; --muted: #59636e; --rule: #d1d9e0;
  --good: #1a7f37; --bad: #cf222e; --card: #f6f8fa }
DARK_MODE { :root { --ground: #0d1117; --ink: #f0f6fc;
  --muted: #9198a1; --rule: #3d444d; --good: #3fb950; --bad: #f85149; --card: #151b23 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem 1.5rem 3rem; max-width: 72rem; background: var(--ground);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif }
h1 { font-size: 1.4rem; margin: .5rem 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem;
  border-bottom: 1px solid var(--rule); padding-bottom: .2rem }
p { margin: .4rem 0 } nav a { margin-right: .9rem } a { color: inherit }
.muted, caption { color: var(--muted) } .good { color: var(--good) } .bad { color: var(--bad) }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: 13px } caption { text-align: left; padding-bottom: .3rem }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem .25rem 0;
  border-bottom: 1px solid var(--rule) } th { font-weight: 600 } td.n, th.n { text-align: right }
td.n { white-space: nowrap }
ol { margin: .2rem 0 1rem; font-size: 13px } tr.failed td { background: var(--card) } small { color: var(--muted); white-space: nowrap }
.verdict { background: var(--card); border-left: 4px solid var(--muted); padding: .5rem .8rem;
  margin: .5rem 0 } .verdict.good { border-color: var(--good); color: inherit }
.verdict.bad { border-color: var(--bad); color: inherit } .verdict p { margin: .15rem 0 }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr));
  gap: 1rem } .grid > * { min-width: 0 }
svg { width: 100%; height: auto; min-width: 560px; max-width: 60rem; display: block }
pre { background: var(--card); padding: .8rem; overflow-x: auto; font-size: 12px }
button { font: inherit; padding: .2rem .8rem } code { overflow-wrap: anywhere; font-size: 12px }
@media print { body { max-width: none; padding: 0; font-size: 11px } nav, button { display: none }
  .verdict, svg, tr { break-inside: avoid } h2 { break-after: avoid } .wide { overflow: visible }
  th, td { padding-right: .2rem; overflow-wrap: anywhere } td.n, small { white-space: normal }
  table { font-size: 8px; table-layout: fixed; width: 100% } pre { white-space: pre-wrap } }
""".replace("DARK_MODE", canvas.DARK_MODE)
SCRIPT = """
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copies);
    let copied = false;
    try {
      await navigator.clipboard.writeText(text.textContent);
      copied = true;
    } catch {  // no such interface for files in this browser
      getSelection().selectAllChildren(text);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected: copy it with the keyboard";
  });
}
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
"""


def text(value):
    """Anything from outside, as text of a page."""
    return escape(clean(value))


def element(tag, content, kind=""):
    """`content` is HTML already."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<{tag}{attribute}>{content}</{tag}>"


def table(head, rows, caption="", numeric=()):
    """Rows of cells; a cell is HTML, or (HTML, columns it takes); a row may be (cells, class)."""
    def cells(tag, row):
        out, at = [], 0
        for cell in row:
            content, span = cell if isinstance(cell, tuple) else (cell, 1)
            attribute = f' colspan="{span}"' if span > 1 else ""
            attribute += ' class="n"' if at in numeric and span == 1 else ""
            out.append(f"<{tag}{attribute}>{content}</{tag}>")
            at += span
        return "".join(out)
    out = ['<div class="wide"><table>']
    if caption:
        out.append(element("caption", caption))
    if head:
        out.append(element("thead", element("tr", cells("th", head))))
    out.append("<tbody>")
    for row in rows:
        content, kind = row if isinstance(row, tuple) else (row, "")
        out.append(element("tr", cells("td", content), kind))
    return "\n".join(out + ["</tbody></table></div>"])


def picture(sheet):
    return element("div", canvas.inline(sheet), "wide")


def folded(summary, content):
    return f"<details><summary>{summary}</summary>\n{content}\n</details>"


def panel(anchor, title, content):
    return f'<section id="{anchor}">\n<h2>{text(title)}</h2>\n{content}\n</section>'


def copyable(anchor, content):
    return (f'<p><button type="button" data-copies="{anchor}">Copy</button></p>\n'
            f'<pre id="{anchor}">{escape(content)}</pre>')


def document(title, lead, panels, data):
    """The page as bytes. panels: (anchor, title, HTML); data: what programs may read from it."""
    inline = json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    links = " ".join(f'<a href="#{anchor}">{text(name)}</a>' for anchor, name, _ in panels)
    return canvas.apart("\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title>", f"<style>{STYLE}{canvas.dark_mode('svg ')}</style>", "</head>",
        "<body>", f"<h1>{text(title)}</h1>", lead, f"<nav>{links}</nav>",
        *[panel(*one) for one in panels],
        '<p class="muted">TriForce: <a href="https://arxiv.org/abs/2404.11912">arXiv '
        "2404.11912</a>. This page needs no network.</p>",
        f'<script type="application/json" id="data">{inline}</script>',
        f"<script>{SCRIPT}</script>", "</body>", "</html>", ""])).encode()
