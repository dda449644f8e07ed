#!/usr/bin/env python3
"""Runs every command that README.md shows, so that none of them goes stale.

The first line of a block says how:
  ```sh          as it stands; scripts/bench.sh by the program it would build and run
  ```sh large    the program's plan command with those of the options that plan knows; run must know all
  ```sh network  only that the script is there, parses, and knows the names given (--help lists them)
  ```sh gpu      the same
Any other ```sh block fails the test. Every --option of the text must be in somebody's --help.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

COMMANDS = ("run", "sweep", "plan", "perplexity", "inspect", "list-devices", "selftest", "compare",
            "export")
PROGRAM = "build/triforce-bench"


class Failure(Exception):
    pass


def blocks_of(text):
    """(mode, [command line, ...]) of every sh block; modes are "", "large", "network", "gpu"."""
    for match in re.finditer(r"^```sh *(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines = match[2].replace("\\\n", " ").splitlines()
        yield match[1], [line.strip() for line in lines if line.strip()]


def call(argv, cwd, timeout):
    done = subprocess.run(argv, cwd=cwd, timeout=timeout, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Failure(f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def options_of(help_text):
    """Option name -> whether it takes a value, aliases included."""
    known = {}
    text = re.sub(r"\s*\n {6,}", "  ", help_text)
    for name, value, rest in re.findall(r"^  (?:-[a-z], )?--([a-z0-9-]+)( [A-Z0-9a-z|]+)?(.*)$", text,
                                        re.MULTILINE):
        takes_value = bool(value)  # one space, then the placeholder; help text follows more spaces
        known[name] = takes_value
        for alias in re.findall(r"also --([a-z0-9-]+)", rest):
            known[alias] = takes_value
    return known


class Readme:
    def __init__(self, args):
        self.root = pathlib.Path(args.source).resolve()
        self.binary = str(pathlib.Path(args.binary).resolve())
        self.text = (self.root / "README.md").read_text(encoding="utf-8")
        self.timeout = args.timeout
        self.known = {}

    def help_of(self, command):
        if command not in self.known:
            self.known[command] = options_of(call([self.binary, command, "--help"], self.root, 60))
            if len(self.known[command]) < 3:
                raise Failure(f"the help of {command} lists no options")
        return self.known[command]

    def program_of(self, argv):
        """The command and its options, for lines that run the program."""
        rest = argv[1:]
        if rest and rest[0] in COMMANDS:
            return rest[0], rest[1:]
        return "run", rest

    def plan_of(self, argv):
        """A large run as a plan of the same options."""
        command, rest = self.program_of(argv)
        if command != "run":
            raise Failure("a large command must be a run")
        run, plan, out = self.help_of("run"), self.help_of("plan"), ["plan"]
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
        if mode == "large":
            if argv[0] != PROGRAM:
                raise Failure(f"a large command must begin with {PROGRAM}")
            return call([self.binary] + self.plan_of(argv), folder, self.timeout)
        if mode != "":
            raise Failure(f"unknown kind of block: sh {mode}")
        if argv[0] == PROGRAM:
            return call([self.binary] + argv[1:], folder, self.timeout)
        if argv[0] == "./scripts/bench.sh":
            self.check_script(argv, named=False)
            return call([self.binary] + argv[1:], folder, self.timeout)
        if argv[0] == "./scripts/test.sh":  # running it here would not end
            return self.check_script(argv, named=False)
        if argv[0] == "python3" and argv[1].startswith("scripts/"):
            return call([sys.executable, str(self.root / argv[1])] + argv[2:], folder, self.timeout)
        raise Failure(f"the test does not know how to run {argv[0]}")

    def check_options(self):
        """Every --option anywhere in the text is one that a command or script explains."""
        everywhere = set()
        for command in COMMANDS:
            everywhere |= set(self.help_of(command))
        for script in sorted((self.root / "scripts").glob("*.sh")):
            everywhere |= set(re.findall(r"--([a-z][a-z0-9-]*)", script.read_text(encoding="utf-8")))
        for script in sorted((self.root / "scripts").glob("*.py")):
            everywhere |= set(re.findall(r'"--([a-z][a-z0-9-]*)"', script.read_text(encoding="utf-8")))
        used = {o.replace("_", "-") for o in re.findall(r"(?<![\w-])--([a-z][a-z0-9_-]*)", self.text)}
        if used - everywhere:
            raise Failure(f"options nobody explains: {', '.join(sorted(used - everywhere))}")
        return len(used)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, help="root of the project")
    parser.add_argument("--binary", required=True, help="the triforce-bench to run")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one command")
    args = parser.parse_args()
    readme, failures, count = Readme(args), [], 0
    with tempfile.TemporaryDirectory() as name:
        # Commands see the project where a user stands in it, and write their files elsewhere.
        folder = pathlib.Path(name)
        (folder / "data").symlink_to(readme.root / "data")
        for mode, lines in blocks_of(readme.text):
            for line in lines:
                count += 1
                begin = time.monotonic()
                try:
                    readme.run_line(mode, line, folder)
                    verdict = "ok"
                except (Failure, OSError, ValueError, IndexError, subprocess.TimeoutExpired) as e:
                    failures.append(line)
                    verdict = f"FAILED: {e}"
                print(f"[{time.monotonic() - begin:6.1f} s] {mode or 'run'}: {line}\n    {verdict}", flush=True)
    try:
        print(f"{readme.check_options()} options are explained")
    except Failure as e:
        failures.append(str(e))
        print(f"FAILED: {e}")
    print(f"{count} commands, {len(failures)} failures")
    sys.exit(1 if failures or count < 10 else 0)


if __name__ == "__main__":
    main()
