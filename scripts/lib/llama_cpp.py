"""llama.cpp for scripts/compare_llama_cpp.sh: the source archive of llama-cpp-python, checked, built for
this processor or for an instruction-set level, and models in its formats. All of it lies in one cache folder, where
each part gets its name only when it is whole."""
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tarfile
import zlib
from pathlib import Path

from children import FAILED, call
from download import BAD_INPUT, RESOURCES, Failure, Server, check_space, make_folder, write_whole

# The release whose figures the project publishes: of PyPI, where it stays.
RELEASE = {
    "name": "llama_cpp_python-0.3.36.tar.gz",
    "path": ("packages", "ec", "e9", "e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3"),
    "size": 76589250,
    "sha256": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
}
SERVER = "https://files.pythonhosted.org"
PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-speculative", "llama-speculative-simple", "llama-lookup",
            "llama-tokenize", "llama-quantize")
# Release; no GPU is looked for unless asked. Servers and HTTPS are not needed.
CMAKE_OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_SERVER=OFF",
                 "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_APP=OFF")
# What ggml's build calls the instructions that each level of --cpu-isa adds to those before it.
LEVELS = {"avx2": ("AVX", "AVX2", "FMA", "F16C", "BMI2", "SSE42"), "avx512": ("AVX512",),
          "avx512-bf16": ("AVX512_VNNI", "AVX512_BF16"), "amx": ("AMX_TILE", "AMX_INT8", "AMX_BF16")}
# Formats of weights that are not quantised: those that triforce-bench has for targets.
WEIGHTS = ("bf16", "f16", "f32")
OWN = "own"  # the format of a quantised file, as it is
REQUIREMENTS = "requirements/requirements-convert_hf_to_gguf.txt"
CONVERTER = Path(__file__).resolve().parents[1] / "convert_checkpoint.py"  # of GGUF to safetensors


def default_cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "triforce-bench" / "llama.cpp"


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


def instructions(level):
    """CMake's options for an instruction-set level; None: for this very processor."""
    if level is None:
        return ("-DGGML_NATIVE=ON",)
    names = list(LEVELS)
    wanted = {name for one in names[:names.index(level) + 1] for name in LEVELS[one]}
    return ("-DGGML_NATIVE=OFF", *(f"-DGGML_{name}={'ON' if name in wanted else 'OFF'}"
                                   for one in names for name in LEVELS[one]))


class LlamaCpp:
    """llama.cpp in the folder `cache`, from `archive`, a file, or from PyPI; `sha256` is what the archive
    must have. `level`: the instructions that it is built for; None: all of this processor."""

    def __init__(self, cache, archive=None, sha256=None, level=None):
        self.archive, self.sha256 = archive, sha256 or RELEASE["sha256"]
        self.options = (*CMAKE_OPTIONS, *instructions(level))
        self.folder = Path(cache).absolute() / self.sha256[:12]
        self.logs = self.folder / "logs"
        self.source = self.folder / "source"
        make_folder(self.folder)
        self.lock = open(self.folder / "lock", "w", encoding="utf-8")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Failure(RESOURCES, f"{self.folder}: another run of this script uses it") from error
        self.build_folder = self.models = self.given = None

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
        """The programs."""
        environment = {"GIT_CEILING_DIRECTORIES": str(self.folder)}  # its build asks git for a commit
        compilers = [os.environ.get(name, "") for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS")]
        folder = self.folder / f"build-{key(processor_flags(), *compilers, *self.options, *PROGRAMS)}"
        self.build_folder, whole = folder, folder / "whole"
        if whole.exists() and all(os.access(self.program(name), os.X_OK) for name in PROGRAMS):
            return
        require_tools()
        check_space(self.folder, 1e9)
        generator = [] if (folder / "CMakeCache.txt").exists() or not shutil.which("ninja") else ["-G", "Ninja"]
        call(["cmake", "-S", self.source, "-B", folder, *generator, *self.options], self.logs / "configure",
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
        def fill(partial, interpreter):
            for weights in WEIGHTS:
                for name, folder in folders.items():
                    call([interpreter, "-B", self.source / "convert_hf_to_gguf.py", folder, "--outtype", weights,
                          "--outfile", partial / f"{name}-{weights}.gguf"], self.logs / f"convert-{name}-{weights}",
                         f"converting the {name} to {weights}")
        files = [path for _, folder in sorted(folders.items()) for path in sorted(Path(folder).iterdir())]
        self.make_models(files, fill, python, ["-r", self.source / REQUIREMENTS], 8e9,
                         "what llama.cpp's converter requires (PyTorch: up to 3 GB, removed again)")

    def adopt(self, file, python):
        """A model that somebody quantised, a GGUF file: in all WEIGHTS beside itself, and as a folder of safetensors
        in bf16, which is returned. `python` is an interpreter with the package gguf; None: one is made, and
        removed."""
        def fill(partial, interpreter):
            call([interpreter, "-B", CONVERTER, file, "--out", partial / "target", "--dtype", "bf16"],
                 self.logs / "convert", f"converting {file.name} to safetensors")
            for weights in WEIGHTS:
                call([self.program("llama-quantize"), "--allow-requantize", file, partial / f"target-{weights}.gguf",
                      weights.upper()], self.logs / f"convert-{weights}", f"converting {file.name} to {weights}")
        self.given = file
        # 10 bytes of each weight, which has 2.5 bits or more.
        self.make_models([file], fill, python, ["gguf"], 1e9 + 32 * file.stat().st_size,
                         "what reads the file (the package gguf, removed again)")
        return self.models / "target"

    def make_models(self, files, fill, python, packages, room, what):
        """The folder of models that are made of these files: fill(folder, interpreter) if it is not there, for which
        `room` bytes must be free."""
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
        self.models = self.folder / f"models-{key(*digests)}"
        if self.models.is_dir():
            return
        check_space(self.folder, room)
        partial = fresh(self.folder / "models.part")
        venv = fresh(self.folder / "venv.part")
        try:
            fill(partial, python or self.environment(venv, packages, what))
        finally:
            shutil.rmtree(venv, ignore_errors=True)
        os.replace(partial, self.models)

    def environment(self, folder, packages, what):
        """An interpreter with these packages."""
        if sys.version_info < (3, 10):
            raise Failure(RESOURCES, "expected Python 3.10 or later for a converter, found "
                                     f"{sys.version_info[0]}.{sys.version_info[1]}; --python names another")
        call([sys.executable, "-m", "venv", folder], self.logs / "venv", "making a Python environment")
        call([folder / "bin" / "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--retries", "2",
              *packages], self.logs / "pip", f"installing {what}")
        return folder / "bin" / "python"

    def model(self, name, weights):
        """The file of a model in one of WEIGHTS; of OWN, the file that was given."""
        return self.given if weights == OWN else self.models / f"{name}-{weights}.gguf"


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
