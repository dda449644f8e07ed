"""The pages that people read first, and how the tests of this folder take them apart."""
import re

FRONT = "README.md"
ALL = (FRONT, "data/experiments/README.md", "data/schema/README.md", "scripts/README.md",
       "bench/README.md")
FRONT_LINES = 260  # at most: a first page, not a manual
# All that people write, whose links and sentences are checked. What programs print is not here: tables
# of results (bench/results) and the golden files of tests.
WRITTEN = ALL + ("CONTRIBUTING.md", "CHANGELOG.md", "data/README.md", "tests/cases/README.md",
                 "tests/cuda/machine_code/README.md", "tests/cuda_emulator/README.md",
                 "tests/cuda_ptx/README.md")
PRINTED = re.compile(r"bench/results/|.*/golden/")
HELP = ("tests/options/golden/help.txt", "tests/options/golden/options.txt")

FENCE = re.compile(r"^```.*?\n.*?^```$\n?", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4}|\t).*\n|\n(?= {4}))+")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def without_code(text):
    """The page without its code blocks; as many lines are left as there were."""
    def blank(match):
        return "\n" * match[0].count("\n")
    return INDENTED.sub(blank, FENCE.sub(blank, text))


def commands_of(text):
    """(mode, [command line, ...]) of every sh block; modes are "", "large MACHINE", "network", "gpu"."""
    for match in re.finditer(r"^```sh *([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines = match[2].replace("\\\n", " ").splitlines()
        yield match[1].strip(), [line.strip() for line in lines if line.strip()]


def anchors_of(text):
    """The anchors of the headings, as GitHub makes them."""
    found = {}
    for heading in re.findall(r"^#+ +(.*?) *$", without_code(text), re.MULTILINE):
        plain = LINK.sub(r"\2", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = found.setdefault(anchor, 0)
        found[anchor] += 1
        if count:
            found[f"{anchor}-{count}"] = 1
    return set(found)


def broken_links(root, page):
    """What is wrong with each relative link of the page that leads nowhere."""
    path = root / page
    text = re.sub(r"`[^`\n]*`", "", without_code(path.read_text(encoding="utf-8")))
    wrong = []
    for _, _, address in LINK.findall(text):
        if re.match(r"[a-z]+:", address):
            continue
        name, _, anchor = address.partition("#")
        to = (path.parent / name).resolve() if name else path
        if not to.exists():
            wrong.append(f"{page}: ({address}): there is no {name}")
        elif anchor and (to.suffix != ".md" or anchor not in anchors_of(to.read_text(encoding="utf-8"))):
            wrong.append(f"{page}: ({address}): no heading has this anchor")
    return wrong
