#!/usr/bin/env python3
"""Runs every command that README.md and the pages of the manual show, so that none goes stale.

The first line of a block says how:
  ```sh          as it stands; scripts/bench.sh by the program it would build and run
  ```sh large MACHINE  the program's plan command for that machine, on which it must fit, with those of the
                 options that plan knows; run must know all
  ```sh network  only that the script is there, parses, and knows the names given (--help lists them)
  ```sh gpu      the same
Any other ```sh block fails the test. Every --option of the text must be in somebody's --help, and every
relative link must lead to a file and a heading that are there. The commands of a page share a folder,
and each page has its own.

README.md has one block ```text screen: what scripts/bench.sh without options prints on a terminal of
80 columns. Its lines must be those of a run, but for numbers and warnings. A run at 120 columns must
look alike. With --update-screen the block becomes that of a run, and nothing else is done.
"""

import argparse
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

import pages

COMMANDS = ("run", "sweep", "plan", "perplexity", "inspect", "list-devices", "selftest", "compare",
            "show", "export")
PROGRAM = "build/triforce-bench"
SCREEN = re.compile(r"^```text screen\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH, WIDE = 80, 120
SMALLER = ("--prefill", "2048", "--gen-len", "64")  # of the run whose screen is wide


class Failure(Exception):
    pass


def call(argv, cwd, timeout):
    done = subprocess.run(argv, cwd=cwd, timeout=timeout, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Failure(f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def on_terminal(argv, cwd, timeout, columns):
    """What a command prints to a terminal of so many columns, without its colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
            argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=its, stderr=errors,
            env={**os.environ, "TERM": "xterm"}) as process:
        os.close(its)
        late = threading.Timer(timeout, process.kill)
        late.start()
        out = b""
        try:
            while part := os.read(ours, 65536):
                out += part
        except OSError:  # the terminal's other end is closed
            pass
        process.wait()
        late.cancel()
        os.close(ours)
        errors.seek(0)
        if process.returncode != 0:
            raise Failure(f"exit code {process.returncode}\n{errors.read().decode()[-4000:]}")
    return re.sub("\x1b\\[[0-9;]*m", "", out.decode()).replace("\r\n", "\n")


def shape_of(screen):
    """Lines, wrapped or not, with # for figures; without warnings, what is a machine's own, and what
    check_screen() looks at."""
    lines = []
    for line in screen.splitlines():
        if line.startswith("  ") and lines and lines[-1]:
            lines[-1] += " " + line.strip()
        else:
            lines.append(" ".join(line.split()))
    lines = [re.sub(r"\b(f32|f16|bf16)\b", "TYPE", line) for line in lines]
    return [re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", line) for line in lines
            if line and not re.match(r"!|triforce-bench |machine:|method |-|ar |triforce |TriForce ", line)]


def check_screen(screen, columns):
    """A table and below it, last of all, the headline; nothing wider than the terminal."""
    lines = screen.splitlines()
    wide = [line for line in lines if len(line) > columns]
    if wide:
        raise Failure(f"expected at most {columns} columns, found {len(wide[0])}: {wide[0]}")
    head = next((i for i, line in enumerate(lines) if re.match(r"method +ms/token .*lossless$", line)), None)
    if head is None:
        raise Failure("expected a table of methods, found none")
    cells = [re.split(" {2,}", line) for line in lines[head:head + 4]]
    if not set(lines[head + 1]) <= set("- ") or [row[0] for row in cells[2:]] != ["ar", "triforce"] or len(
            {len(row) for row in cells}) != 1:
        raise Failure(f"expected rows of ar and triforce under all columns, found {cells}")
    if columns >= WIDE and "ms 95% CI" not in cells[0]:  # there is room for all columns
        raise Failure(f"expected a column ms 95% CI, found {cells[0]}")
    last = " ".join(screen[screen.rindex("\n\n"):].split())
    if not re.fullmatch(r"TriForce (is|shows) [^!]* ms/token, output [a-z ]+\.( Not comparable [a-z: ]+\.)?", last):
        raise Failure(f"expected the headline and nothing else after an empty line, found {last[:200]!r}")


def options_of(help_text):
    """Option name -> whether it takes a value, aliases included."""
    known = {}
    text = re.sub(r"\s*\n {6,}", "  ", help_text)
    for name, value, rest in re.findall(r"^  (?:-[a-z], )?--([a-z0-9-]+)( [A-Z0-9a-z|]+)?(.*)$", text,
                                        re.MULTILINE):
        takes_value = bool(value)  # one space, then the placeholder; help text follows more spaces
        known[name] = takes_value
        for alias in re.findall(r"also +--([a-z0-9-]+)", rest):
            known[alias] = takes_value
    return known


class Page:
    def __init__(self, args, name):
        self.name = name
        self.root = pathlib.Path(args.source).resolve()
        self.binary = str(pathlib.Path(args.binary).resolve())
        self.text = (self.root / name).read_text(encoding="utf-8")
        self.timeout = args.timeout
        self.only_large = args.large
        self.known = {}

    def help_of(self, command):
        if command not in self.known:
            self.known[command] = options_of(
                call([self.binary, command, "--help", "all"], self.root, 60))
            if len(self.known[command]) < 3:
                raise Failure(f"the help of {command} lists no options")
        return self.known[command]

    def program_of(self, argv):
        """The command and its options, for lines that run the program."""
        rest = argv[1:]
        if rest and rest[0] in COMMANDS:
            return rest[0], rest[1:]
        return "run", rest

    def plan_of(self, argv, machine):
        """A large run as a plan of the same options for a machine."""
        command, rest = self.program_of(argv)
        if command != "run":
            raise Failure("a large command must be a run")
        run, plan, out = self.help_of("run"), self.help_of("plan"), ["plan", "--machine", machine]
        while rest:
            name = rest.pop(0)
            key = name.removeprefix("--").replace("_", "-").split("=")[0]
            if not name.startswith("--") or key not in run:
                raise Failure(f"run does not know {name}")
            takes = run[key] and "=" not in name
            value = [rest.pop(0)] if takes else []
            if key in plan:
                out += [name] + value
        return out

    def check_script(self, argv, named):
        path = self.root / argv[0]
        if not os.access(path, os.X_OK):
            raise Failure(f"{argv[0]} is not an executable file")
        if path.suffix != ".py":  # --help parses those
            call(["bash", "-n", str(path)], self.root, 60)
        if not named:
            return
        usage = call([str(path), "--help"], self.root, 60)
        for word in argv[1:]:
            if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", usage):
                raise Failure(f"{argv[0]} --help does not mention {word}")

    def run_line(self, mode, line, folder):
        argv = shlex.split(line)
        if mode in ("network", "gpu"):
            return self.check_script([a for a in argv if not a.endswith(".json")], named=True)
        mode, _, machine = mode.partition(" ")
        if mode == "large":
            if argv[0] != PROGRAM or not machine:
                raise Failure(f"a large command must begin with {PROGRAM} and its block name a machine")
            return call([self.binary] + self.plan_of(argv, machine), folder, self.timeout)
        if mode != "":
            raise Failure(f"unknown kind of block: sh {mode}")
        if argv[0] == PROGRAM:
            return call([self.binary] + argv[1:], folder, self.timeout)
        if argv[0] == "./scripts/bench.sh":
            self.check_script(argv, named=False)
            if argv[1:]:
                return call([self.binary] + argv[1:], folder, self.timeout)
            return self.check_screens(folder)
        if argv[0] == "./scripts/test.sh":  # running it here would not end
            return self.check_script(argv, named=False)
        if argv[0] == "python3" and argv[1].startswith("scripts/"):
            return call([sys.executable, str(self.root / argv[1])] + argv[2:], folder, self.timeout)
        raise Failure(f"the test does not know how to run {argv[0]}")

    def refuses_what_does_not_fit(self):
        """Whether a planted large command fails, and passes where it fits."""
        line = f"{PROGRAM} run --method streaming --target llama-7B-128K --prefill %d --budget 4096"
        self.run_line("large a100-80g", line % 122880, self.root)
        try:
            self.run_line("large a100-80g", line % 124928, self.root)
        except Failure as failure:
            return str(failure).startswith("exit code 4\n")
        return False

    def screen(self, folder, columns, *options):
        # Bars are for standard error, which is no terminal here.
        return on_terminal([self.binary, *options], folder, self.timeout, columns)

    def check_screens(self, folder):
        """The default run's screen and the one that is shown, and a wide one."""
        shown = SCREEN.findall(self.text)
        if len(shown) != 1:
            raise Failure(f"expected one block of text screen, found {len(shown)}")
        check_screen(shown[0], WIDTH)
        for spoilt in (shown[0] + "more\n", shown[0].replace("TriForce is", "It is"), "x" * 81 + shown[0],
                       shown[0].replace("\ntriforce  ", "\nother  "), shown[0].replace("\nar  ", "\n  ")):
            try:
                check_screen(spoilt, WIDTH)
            except Failure:
                continue
            raise Failure(f"a screen that was spoilt passes: {spoilt}")
        found = self.screen(folder, WIDTH)
        check_screen(found, WIDTH)
        expected, seen = shape_of(found), shape_of(shown[0])
        for a, b in zip(expected + [None] * len(seen), seen + [None] * len(expected)):
            if a != b:
                raise Failure(f"the screen that is shown: expected {a!r}, found {b!r}")
        check_screen(self.screen(folder, WIDE, *SMALLER), WIDE)

    def update_screen(self, folder):
        screen = self.screen(folder, WIDTH)
        check_screen(screen, WIDTH)
        text, n = SCREEN.subn(lambda _: f"```text screen\n{screen}```", self.text)
        if n != 1:
            raise Failure(f"expected one block of text screen, found {n}")
        (self.root / self.name).write_text(text, encoding="utf-8")

    def explained_options(self):
        """Every --option that a command or script explains."""
        everywhere = set()
        for command in COMMANDS:
            everywhere |= set(self.help_of(command))
        for script in sorted((self.root / "scripts").glob("*.sh")):
            everywhere |= set(re.findall(r"--([a-z][a-z0-9-]*)", script.read_text(encoding="utf-8")))
        for folder, names in (("scripts", "*.py"), ("scripts/lib", "*.py"), ("bench", "*.cpp")):
            for source in sorted((self.root / folder).glob(names)):
                text = source.read_text(encoding="utf-8")
                everywhere |= {o.replace("_", "-") for o in re.findall(r'"--([a-z][a-z0-9_-]*)', text)}
        return everywhere

    def check_options(self):
        ours = re.sub(r"\bgit clone [^`\n]*", "", self.text)
        used = {o.replace("_", "-") for o in re.findall(r"(?<![\w-])--([a-z][a-z0-9_-]*)", ours)}
        unknown = used - self.explained_options()
        if unknown:
            raise Failure(f"options nobody explains: {', '.join(sorted(unknown))}")
        return f"{len(used)} options are explained"

    def check_links(self):
        wrong = pages.broken_links(self.root, self.name)
        if wrong:
            raise Failure("; ".join(wrong))
        return "its links lead somewhere"

    def run_commands(self, folder):
        """The count of the page's commands, and those that failed."""
        failures, count = [], 0
        for mode, lines in pages.commands_of(self.text):
            if self.only_large and not mode.startswith("large"):
                continue
            for line in lines:
                count += 1
                begin = time.monotonic()
                try:
                    self.run_line(mode, line, folder)
                    verdict = "ok"
                except (Failure, OSError, ValueError, IndexError, subprocess.TimeoutExpired) as e:
                    failures.append(line)
                    verdict = f"FAILED: {e}"
                print(f"[{time.monotonic() - begin:6.1f} s] {mode or 'run'}: {line}\n    {verdict}", flush=True)
        return count, failures

    @contextlib.contextmanager
    def folder(self):
        """Where commands see the project as a user who stands in it does, and write their files."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "data").symlink_to(self.root / "data")
            yield folder

    def run(self):
        """The same, with the checks of the page's text."""
        print(f"{self.name}:", flush=True)
        with self.folder() as folder:
            count, failures = self.run_commands(folder)
        for check in (self.check_options, self.check_links):
            try:
                print(f"    {check()}", flush=True)
            except Failure as e:
                failures.append(str(e))
                print(f"    FAILED: {e}", flush=True)
        return count, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, help="root of the project")
    parser.add_argument("--binary", required=True, help="the triforce-bench to run")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one command")
    parser.add_argument("--large", action="store_true", help="only the large commands, which takes seconds")
    parser.add_argument("--update-screen", action="store_true", help="run once, for the block of the screen")
    parser.add_argument("--part", choices=("front", "manual"), help="README.md or the other pages (default: all)")
    args = parser.parse_args()
    if args.update_screen:
        front = Page(args, pages.FRONT)
        with front.folder() as folder:
            try:
                front.update_screen(folder)
            except Failure as e:
                sys.exit(f"FAILED: {e}")
        return
    failures, count = [], 0
    names = {"front": [pages.FRONT], "manual": [n for n in pages.ALL if n != pages.FRONT], None: pages.ALL}
    for name in names[args.part]:
        its_count, its_failures = Page(args, name).run()
        count += its_count
        failures += its_failures
    if args.large and not Page(args, pages.FRONT).refuses_what_does_not_fit():
        failures.append("a command that does not fit passes")
        print(f"FAILED: {failures[-1]}")
    print(f"{count} commands, {len(failures)} failures")
    sys.exit(1 if failures or count < 10 else 0)


if __name__ == "__main__":
    main()
