"""How long triforce-bench takes until its bar first shows a figure."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

COLUMNS = 80
FIGURE = re.compile(rb"\bar [0-9.]+ ms\b")  # beside the bar: ms/token of the baseline, so far


class NoFigure(Exception):
    """The program ended, or its time was over, before there was one; what it said last."""


def cpu_seconds(pid):
    """What the process has used until now, all its threads together."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()  # from the third on: the second is a name in brackets
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_figure(terminal, deadline):
    said = b""
    while not FIGURE.search(said):
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        try:
            part = os.read(terminal, 65536) if ready else b""
        except OSError:  # nobody has its other end
            part = b""
        if not part:
            lines = [line for line in re.split(rb"\x1b\[K|[\r\n]", said) if line.strip()]
            raise NoFigure(f"expected a figure beside its bar, found {lines[-1].decode(errors='replace')!r}"
                           if lines else "expected a figure beside its bar, found no bar")
        said += part


def first_figure(command, timeout_s):
    """(seconds, processor seconds) from the start of `command` to the first figure on its stderr, a terminal;
    its stdout is thrown away. The command is killed then. Throws NoFigure, and OSError where it cannot be started."""
    terminal, its_end = pty.openpty()
    try:
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        begin = time.monotonic()
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=its_end, env={**os.environ, "TERM": "xterm"})
        finally:
            os.close(its_end)
        try:
            wait_for_figure(terminal, begin + timeout_s)
            return time.monotonic() - begin, cpu_seconds(process.pid)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(terminal)
