"""llama.cpp for scripts/compare_llama_cpp.sh: the source archive of llama-cpp-python, checked, built for
this processor, and the built-in pair as llama.cpp's own converter writes it. All of it lies in one
cache folder, where each part gets its name only when it is whole."""
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zlib
from pathlib import Path

from download import BAD_INPUT, RESOURCES, Failure, Server, check_space, make_folder, write_whole

FAILED = 1  # exit code: a program that this one runs has failed

# The release whose figures the project publishes: of PyPI, where it stays.
RELEASE = {
    "name": "llama_cpp_python-0.3.36.tar.gz",
    "path": ("packages", "ec", "e9", "e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3"),
    "size": 76589250,
    "sha256": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
}
SERVER = "https://files.pythonhosted.org"
PROGRAMS = ("llama-bench", "llama-speculative", "llama-tokenize")
# Release, for this very processor; no GPU is looked for unless asked. Servers and HTTPS are not needed.
CMAKE_OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_OPENSSL=OFF",
                 "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_APP=OFF")
# Formats of weights that are tried: those that the program itself knows.
WEIGHTS = ("bf16", "f16", "f32")
REQUIREMENTS = "requirements/requirements-convert_hf_to_gguf.txt"


def default_cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "triforce-bench" / "llama.cpp"


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


def require_tools():
    """Fails with the first of the programs that a build needs and this machine lacks."""
    for what, names in (("cmake", ("cmake",)), ("a build tool", ("ninja", "make")),
                        ("a C compiler", (os.environ.get("CC", ""), "cc", "gcc", "clang")),
                        ("a C++ compiler", (os.environ.get("CXX", ""), "c++", "g++", "clang++"))):
        names = [name for name in names if name]
        if not any(shutil.which(name) for name in names):
            raise Failure(RESOURCES, f"expected {what} ({', '.join(names)}), found none: install it with the "
                                     "package manager")


def key(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


def processor_flags():
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return os.uname().machine
    return "\n".join(sorted({line for line in lines if re.match(r"(model name|cpu family|model|flags)\s*:", line)}))


class LlamaCpp:
    """llama.cpp in the folder `cache`, from `archive`, a file, or from PyPI; `sha256` is what the archive
    must have."""

    def __init__(self, cache, archive=None, sha256=None):
        self.archive, self.sha256 = archive, sha256 or RELEASE["sha256"]
        self.folder = Path(cache).absolute() / self.sha256[:12]
        self.logs = self.folder / "logs"
        self.source = self.folder / "source"
        make_folder(self.folder)
        self.lock = open(self.folder / "lock", "w", encoding="utf-8")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Failure(RESOURCES, f"{self.folder}: another run of this script uses it") from error
        self.build_folder = self.models = None

    def obtain(self):
        """The source."""
        if self.source.is_dir():
            return
        archive = Path(self.archive) if self.archive else self.folder / RELEASE["name"]
        if self.archive:
            with open(archive, "rb") as file:
                found = hashlib.sha256()
                while block := file.read(1 << 20):
                    found.update(block)
            if found.hexdigest() != self.sha256:
                raise Failure(BAD_INPUT, f"{archive}: expected SHA-256 {self.sha256}, found {found.hexdigest()}")
        elif not archive.exists():
            check_space(self.folder, 1e9)
            print(f"fetching {RELEASE['name']} ({RELEASE['size'] / 1e6:.0f} MB)", file=sys.stderr, flush=True)
            server = Server(SERVER, "this needs a network once; --archive names a copy of the file")
            server.fetch(server.url(*RELEASE["path"], RELEASE["name"]), archive, RELEASE["size"],
                         f"sha256:{self.sha256}")
        print(f"unpacking {archive.name}", file=sys.stderr, flush=True)
        partial = fresh(self.folder / "source.part")
        version = unpack(archive, partial)
        write_whole(partial / "release", version + "\n")
        os.replace(partial, self.source)
        if not self.archive:
            archive.unlink()

    def version(self):
        """As in "llama-cpp-python 0.3.36 (llama.cpp 0.5.0)"."""
        release = (self.source / "release").read_text(encoding="utf-8").strip()
        text = (self.source / "CMakeLists.txt").read_text(encoding="utf-8", errors="replace")
        own = [re.search(rf"\bLLAMA_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
        return release + (f" (llama.cpp {'.'.join(m[1] for m in own)})" if all(own) else "")

    def build(self, jobs):
        """The programs, optimised for this processor."""
        environment = {"GIT_CEILING_DIRECTORIES": str(self.folder)}  # its build asks git for a commit
        compilers = [os.environ.get(name, "") for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS")]
        folder = self.folder / f"build-{key(processor_flags(), *compilers, *CMAKE_OPTIONS, *PROGRAMS)}"
        self.build_folder, whole = folder, folder / "whole"
        if whole.exists() and all(os.access(self.program(name), os.X_OK) for name in PROGRAMS):
            return
        require_tools()
        check_space(self.folder, 1e9)
        generator = [] if (folder / "CMakeCache.txt").exists() or not shutil.which("ninja") else ["-G", "Ninja"]
        call(["cmake", "-S", self.source, "-B", folder, *generator, *CMAKE_OPTIONS], self.logs / "configure",
             "configuring llama.cpp", environment)
        call(["cmake", "--build", folder, "--parallel", jobs, "--target", *PROGRAMS], self.logs / "build",
             "building llama.cpp (once: minutes)", environment)
        for name in PROGRAMS:
            if not os.access(self.program(name), os.X_OK):
                raise Failure(FAILED, f"building llama.cpp: expected {self.program(name)}, found no such program")
        write_whole(whole, "")

    def program(self, name):
        return self.build_folder / "bin" / name

    def convert(self, folders, python):
        """Models in GGUF, each in all WEIGHTS: `folders` has {name: folder in Hugging Face layout}. `python`
        is an interpreter with the packages that the converter needs; None: one is made, and removed."""
        digests = [hashlib.sha256(path.read_bytes()).hexdigest()
                   for _, folder in sorted(folders.items()) for path in sorted(Path(folder).iterdir())]
        self.models = self.folder / f"models-{key(*digests)}"
        if self.models.is_dir():
            return
        partial = fresh(self.folder / "models.part")
        venv = fresh(self.folder / "venv.part")
        try:
            python = python or self.environment(venv)
            for weights in WEIGHTS:
                for name, folder in folders.items():
                    call([python, "-B", self.source / "convert_hf_to_gguf.py", folder, "--outtype", weights,
                          "--outfile", partial / f"{name}-{weights}.gguf"], self.logs / f"convert-{name}-{weights}",
                         f"converting the {name} to {weights}")
        finally:
            shutil.rmtree(venv, ignore_errors=True)
        os.replace(partial, self.models)

    def environment(self, folder):
        """An interpreter with what the converter itself says that it requires."""
        if sys.version_info < (3, 10):
            raise Failure(RESOURCES, "expected Python 3.10 or later for llama.cpp's converter, found "
                                     f"{sys.version_info[0]}.{sys.version_info[1]}; --python names another")
        check_space(self.folder, 8e9)
        call([sys.executable, "-m", "venv", folder], self.logs / "venv", "making a Python environment")
        call([folder / "bin" / "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--retries", "2",
              "-r", self.source / REQUIREMENTS], self.logs / "pip",
             "installing what llama.cpp's converter requires (PyTorch: up to 3 GB, removed again)")
        return folder / "bin" / "python"

    def model(self, name, weights):
        return self.models / f"{name}-{weights}.gguf"


def fresh(folder):
    """That folder, new and empty."""
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    return folder


def unpack(archive, folder):
    """What the archive has under vendor/llama.cpp, to `folder`; returns "llama-cpp-python 0.3.36"."""
    members, version = [], None
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                match = re.fullmatch(r"(llama_cpp_python-[^/]+)/vendor/llama\.cpp/(.+)", member.name)
                if match and (member.isfile() or member.isdir()) and ".." not in match[2].split("/"):
                    version, member.name = match[1], match[2]
                    members.append(member)
            if not any(member.name == "CMakeLists.txt" for member in members):
                raise Failure(BAD_INPUT, f"{archive}: expected llama_cpp_python-*/vendor/llama.cpp, found no such "
                                         "folder")
            safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            tar.extractall(folder, members=members, **safe)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Failure(BAD_INPUT, f"{archive}: expected a .tar.gz archive, found something else: {error}") from error
    return version.replace("llama_cpp_python-", "llama-cpp-python ")
