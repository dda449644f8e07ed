"""What passes of the paper's models read and launch."""
import json
import math
import subprocess
from dataclasses import dataclass

from plots.command import BadInput

STRIP_ROWS = 16     # outputs that a block makes of a strip
HALF = 2            # bytes of f16


@dataclass(frozen=True)
class Product:
    """A matrix [outputs, inputs] and the kernel that multiplies up to 128 rows with it."""
    name: str
    outputs: int
    inputs: int
    epilogue: str

    @property
    def weight_bytes(self):
        return self.outputs * self.inputs * HALF

    def kernel(self, rows):
        """Its instance, as loops files call it."""
        groups = next(n for n in (1, 2, 3, 4, 8, 10, 12, 16) if 8 * n >= rows)
        stores = self.epilogue == "Columns" or rows > 32  # what follows is then a kernel of its own
        epilogue = (f"StoreColumns<float, {self.strips(rows)}>" if stores
                    else f"Store{self.epilogue}<T>")
        return f"linear_kernel<T, {epilogue}, {groups}>"

    def strips(self, rows):
        """Of a block."""
        return 1 if self.epilogue == "Columns" and rows <= 16 else 2

    def blocks(self, rows):
        return -(-self.outputs // (STRIP_ROWS * self.strips(rows)))

    def row_bytes(self, rows):
        """What a block reads of its rows."""
        return rows * self.inputs * HALF


@dataclass(frozen=True)
class Model:
    name: str  # of the benchmarks
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    parameters: int

    @property
    def intermediate(self):
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        of_layers = self.parameters - (2 * self.vocab + 1) * self.hidden
        return (of_layers // self.layers - attention - 2 * self.hidden) // (3 * self.hidden)

    @property
    def group(self):
        """Query heads of a KV head."""
        return self.heads // self.kv_heads

    def layer_products(self):
        """In their order."""
        width = self.heads * self.head_dim
        return (Product("qkv", width + 2 * self.kv_heads * self.head_dim, self.hidden, "Rotated"),
                Product("out", self.hidden, width, "Columns"),
                Product("gate_up", 2 * self.intermediate, self.hidden, "Swiglu"),
                Product("down", self.hidden, self.intermediate, "Columns"))

    def head(self):
        return Product("head", self.vocab, self.hidden, "Columns")

    def products(self):
        return (*self.layer_products(), self.head())

    @property
    def weight_bytes(self):
        return (self.layers * sum(p.weight_bytes for p in self.layer_products()) +
                self.head().weight_bytes)

    def kv_bytes(self, tokens):
        """Of a layer."""
        return 2 * tokens * self.kv_heads * self.head_dim * HALF


@dataclass(frozen=True)
class Work:
    target: Model
    draft: Model
    prompt: int
    budget: int           # tokens of the retrieval cache
    window: int           # of the drafter's
    bytes: dict           # of a pass over the full cache (with the whole prompt), the retrieval
                          # cache, the drafter: of `plan`
    kernels: dict         # of each
    gbs: dict             # machine -> achieved bandwidth
    constants: dict       # machine -> (pass_overhead_ms, kernel_gap_ms)

    def attended(self, which):
        """(model, tokens) of a pass."""
        return {"full": (self.target, self.prompt), "retrieval": (self.target, self.budget),
                "draft": (self.draft, self.window)}[which]


def read_work(program, prompt):
    """Work of the 7B model of the paper and its drafter."""
    command = [program, "plan", "--target", "llama-7B-128K", "--draft", "llama-68M", "--prefill",
               str(prompt), "--budget", "4096", "--dtype", "f16", "--method", "ar,triforce", "-o",
               "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as e:
        raise BadInput(f"--program: expected the program, found {program}: {e.strerror}") from e
    if done.returncode != 0:
        raise BadInput(f"{program} plan: {done.stderr.strip()}")
    plan = json.loads(done.stdout)
    target, draft = (Model(name, *(plan[key][k] for k in (
        "layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "n_params")))
        for name, key in (("7b", "target"), ("68m", "draft")))
    machines = {m["id"]: m["machine"] for m in plan["machines"]}
    return Work(
        target, draft, prompt, plan["budget"], plan["params"]["draft_cache_budget"],
        {k: v for k, v in plan["pass_bytes"].items() if v is not None},
        {k: v for k, v in plan["pass_kernels"].items() if v is not None},
        {i: m["gpu_gbs"] for i, m in machines.items()},
        {i: (m["pass_overhead_ms"], m["kernel_gap_ms"]) for i, m in machines.items()})


def splits(multiprocessors, kv_heads, tokens):
    """(how many splits, their tokens) of a cache of that capacity, as split_tokens() of
    kernels/attention.cu cuts it."""
    most = max(1, 8 * multiprocessors // kv_heads)
    tiles = math.ceil(tokens / 64)
    one_wave = math.ceil(tiles * kv_heads / (2 * multiprocessors))
    each = max(math.ceil(tiles / most), min(one_wave, 6), 2)
    return math.ceil(tokens / (each * 64)), each * 64
