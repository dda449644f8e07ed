"""Programs that a script starts: what they are doing on stderr, what they wrote in files, and their end with it."""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from download import RESOURCES, Failure, make_folder

FAILED = 1  # exit code: a program that this one runs has failed


class Progress:
    """What is being done, on stderr: one line that changes on a terminal, else one at the beginning
    and one every 20 seconds."""

    def __init__(self, what, log):
        self.what, self.log = what, log
        self.begin = self.shown = time.monotonic()
        self.terminal = sys.stderr.isatty()
        print(what, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def tick(self):
        now = time.monotonic()
        if now - self.shown < (1 if self.terminal else 20):
            return
        self.shown = now
        steps = re.findall(rb"^\[ *(\d+/\d+|\d+%)\]", tail(self.log), re.MULTILINE)
        line = f"{self.what} {steps[-1].decode() if steps else ''} ({now - self.begin:.0f} s)"
        print(f"\r\033[K{line}" if self.terminal else line, end="" if self.terminal else "\n",
              file=sys.stderr, flush=True)

    def end(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def tail(path, size=8192):
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - size))
        return file.read()


def call(command, log, what, env=None):
    """What `command` wrote on stdout and stderr, which also stay in `log`.out and `log`.err. One that fails
    ends the program; whatever ends this call ends the command and all that it started."""
    paths = [Path(f"{log}.{end}") for end in ("out", "err")]
    make_folder(paths[0].parent)
    command = [str(word) for word in command]
    progress = Progress(what, paths[0])
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                     env={**os.environ, **(env or {})}, start_new_session=True)
        except OSError as error:
            progress.end()
            raise Failure(RESOURCES, f"{command[0]}: cannot be started: {error.strerror}") from error
        wait(child, progress)
    if child.returncode != 0:
        words = last_words(paths[1]) or last_words(paths[0]) or "it said nothing"
        raise Failure(FAILED, f"{what}: {Path(command[0]).name} ended with {ending(child.returncode)}: {words} "
                              f"(all of it: {paths[1]})")
    return tuple(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def wait(child, progress=None):
    """Until the child, which leads a session of its own, has ended. An exception ends its session."""
    try:
        while child.poll() is None:
            try:
                child.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                if progress:
                    progress.tick()
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if progress:
            progress.end()


def ending(code):
    return f"exit status {code}" if code >= 0 else f"signal {-code}"


def last_words(path):
    """The last line that says error, or the last one."""
    lines = [line.strip() for line in tail(path).decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|fatal|failed)\b", line, re.IGNORECASE)]
    return (errors or lines or [""])[-1][:300]
