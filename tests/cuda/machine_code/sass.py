"""Machine code of kernels as NVIDIA's cuobjdump lists it."""
import os
import pathlib
import re
import shutil
import subprocess
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Where scripts/setup.sh --checks installs what no CUDA package of the machine brings.
INSTALLED_TOOLS = ROOT / "build" / "check-tools" / "nvidia" / "cu13" / "bin"
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")


class NoTools(Exception):
    """cuobjdump or nvdisasm is missing."""


@dataclass
class Instruction:
    """One instruction; `control`: what ptxas says of its issue, the upper half of its second word."""
    address: int
    predicate: str  # "P0", "!UP1"; empty: always
    opcode: str     # with its modifiers: "LDG.E.128.CONSTANT"
    operands: str
    control: int = 0

    @property
    def never(self):
        """Whether it is there for its wait alone."""
        return self.predicate in ("!PT", "!UPT")

    @property
    def stall(self):
        """Cycles until the warp's next instruction."""
        return self.control >> 41 & 15

    @property
    def written(self):
        """The scoreboard that is set free when the result is there, 0 to 5; 7: none."""
        return self.control >> 46 & 7

    @property
    def read(self):
        """The same for when the operands were read."""
        return self.control >> 49 & 7

    @property
    def waits(self):
        """Bit i: scoreboard i must be free."""
        return self.control >> 52 & 63

    def target(self):
        """Address of the code that it names, or None."""
        found = re.search(r"\b(0x[0-9a-f]+)\b", self.operands)
        return int(found[1], 16) if found else None

    def starts(self, *names):
        """Whether the opcode is one of the names, whatever its modifiers."""
        return self.opcode.split(".")[0] in names


@dataclass
class Kernel:
    """A kernel for one architecture."""
    symbol: str
    name: str  # "split_kernel<__half, 128, 1>"
    architecture: str
    instructions: list = field(default_factory=list)
    registers: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0  # static

    @property
    def of_any_type(self):
        """The name, with T for f16 and bf16."""
        return re.sub(r"__half|__nv_bfloat16", "T", self.name)

    @property
    def code_bytes(self):
        return len(self.instructions) * 16


def find_tool(name):
    """The path of cuobjdump or nvdisasm: of CUDA, of PATH, or what setup.sh installed."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    places = [pathlib.Path(nvcc).resolve().parent, *os.environ.get("PATH", "").split(os.pathsep),
              INSTALLED_TOOLS]
    for place in places:
        path = pathlib.Path(place) / name
        if os.access(path, os.X_OK):
            return path
    raise NoTools(f"{name}: expected in CUDA's bin folder, in PATH or in {INSTALLED_TOOLS}, "
                  "found nowhere; scripts/setup.sh --checks installs it")


def cuobjdump(option, path):
    """What cuobjdump says of an object; it calls nvdisasm."""
    tool, other = find_tool("cuobjdump"), find_tool("nvdisasm")
    search = os.pathsep.join([str(other.parent), os.environ.get("PATH", "")])
    done = subprocess.run([tool, option, path], capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": search})
    if done.returncode != 0:
        raise RuntimeError(f"{tool} {option} {path}: {done.stderr.strip()}")
    return done.stdout


def demangle(symbols):
    """Names of kernels without namespaces and parameters."""
    done = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True,
                          check=True)
    for line in done.stdout.splitlines():
        name = line.replace("(anonymous namespace)::", "").replace("triforce::", "")
        yield re.sub(r"\(.*|^void ", "", name.replace("kernels::", ""))


def parse_instruction(line):
    """"  /*0010*/  @P0 LDG.E R2, [R4.64] ;  /* 0x... */": the second word is on the next line."""
    text = line[:line.rindex("/* 0x")].rstrip(" ;")
    address, _, text = text.lstrip()[2:].partition("*/")
    opcode, _, operands = text.lstrip().partition(" ")
    predicate = ""
    if opcode.startswith("@"):
        predicate = opcode[1:]
        opcode, _, operands = operands.lstrip().partition(" ")
    return Instruction(int(address, 16), predicate, opcode, operands.strip())


def of_cards(architecture):
    """The architecture of the cards that run code of one: those of sm_90 that of sm_90a."""
    return re.sub(r"^(sm_\d+)[af]$", r"\1", architecture)


def parse_listing(text):
    """Kernels of what `cuobjdump -sass` printed, unnamed."""
    kernels, architecture, code = [], None, None
    for line in text.splitlines():
        if line.startswith("        /*"):
            code.append(parse_instruction(line))
        elif line.endswith("*/") and code:
            code[-1].control = int(line[line.rindex("0x"):-2], 16)
        elif "code for sm_" in line:
            architecture = of_cards(line.split()[-1])
        elif "Function : " in line:
            kernels.append(Kernel(line.split()[-1], "", architecture))
            code = kernels[-1].instructions
    return kernels


def read_object(path):
    """Kernels of an object file, for every architecture it has. Throws NoTools, RuntimeError."""
    kernels = parse_listing(cuobjdump("-sass", path))
    architecture, usage = None, {}
    for line in cuobjdump("-res-usage", path).splitlines():
        if line.startswith("arch = "):
            architecture = of_cards(line.split()[-1])
        elif "Function " in line:
            symbol = line.split()[1].rstrip(":")
        elif found := USAGE.search(line):
            usage[symbol, architecture] = tuple(map(int, found.groups()))
    for kernel, name in zip(kernels, demangle([k.symbol for k in kernels])):
        kernel.name = name
        kernel.registers, kernel.stack_bytes, kernel.shared_bytes = usage[
            kernel.symbol, kernel.architecture]
        if not kernel.instructions:
            raise RuntimeError(f"{path}: {name} for {kernel.architecture} has no instructions")
    return kernels
