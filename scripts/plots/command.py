"""What every script does alike: one line for what is wrong, the program's exit codes, whole files."""

import argparse
import errno
import os
import stat
import sys
import tempfile

from plots.packages import MissingPackage

EXIT_USAGE, EXIT_BAD_INPUT, EXIT_RESOURCES, EXIT_INTERRUPTED = 2, 3, 4, 130


class BadInput(Exception):
    """A file that is not what it should be: one line of what was expected and what was found."""


class CannotWrite(Exception):
    """A place that takes no file; one line."""


class NoAnswer(Exception):
    """A server that cannot be reached, is late or reports an error; one line."""


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line too."""

    def error(self, message):
        print(f"{self.prog}: error: {message}; see --help", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def parser(name, description, epilog=None):
    return Parser(prog=name, description=description, epilog=epilog,
                  formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)


PICTURES = (".svg", ".pdf", ".png")


def check_name(options, path):
    """Ends with a line on wrong usage unless the name says which kind of picture it is."""
    if not path.lower().endswith(PICTURES):
        options.error(f"--out: expected FILE.svg, FILE.pdf or FILE.png, found {path!r}")


def check_output(options, out, inputs, option="--out"):
    """Ends with a line on wrong usage where the output would replace something that is read."""
    for path in inputs:
        if out and path and os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            options.error(f"{option}: expected another file than those that are read, found {out!r}")


def read_text(path):
    """A whole file as text, or BadInput that names it."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):  # opening one may wait for ever
            raise BadInput(f"{path}: expected a file, found a pipe")
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: expected UTF-8, found another byte at {error.start}") from error


def write_file(path, data):
    """Bytes to a file, which is as it was until they are all there; None and "-" are stdout.

    What is no plain file (/dev/stdout, a pipe) is written to as it stands.
    """
    try:
        if path in (None, "-"):
            if sys.stdout is None:  # closed before Python began
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            # Not sys.stdout itself, which may be unbuffered and then write a part alone.
            with open(sys.stdout.fileno(), "wb", closefd=False) as file:
                file.write(data)
        elif os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                file.write(data)
        else:
            replace(os.path.realpath(path), data)
    except OSError as error:
        where = "standard output" if path in (None, "-") else path
        raise CannotWrite(f"{where}: cannot be written: {error.strerror}") from error


def replace(path, data):
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".writing.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def run(name, main):
    """Calls main() and exits as the program would."""
    try:
        main()
    except (BadInput, CannotWrite, NoAnswer, MissingPackage, MemoryError) as error:
        said = "not enough memory" if isinstance(error, MemoryError) else str(error)
        said = "".join(c if c.isprintable() else "?" for c in said)  # a file must not drive the terminal
        print(f"{name}: error: {said}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_RESOURCES)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
