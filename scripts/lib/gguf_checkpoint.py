"""A GGUF file as a checkpoint: its tensors by their names in Hugging Face's layout, and its config.json.

The package gguf reads the file and its quantised blocks. llama.cpp's converter changes the order of the
rows of q and k of Llama models, for another way to rotate them; here they come back to where they were.
"""
import math

from lib.gguf_file import fail

# Architectures of GGUF: the class of transformers, model_type, and whether rows of q and k have moved.
ARCHITECTURES = {"llama": ("LlamaForCausalLM", "llama", True), "qwen2": ("Qwen2ForCausalLM", "qwen2", False),
                 "qwen3": ("Qwen3ForCausalLM", "qwen3", False)}
WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
# Tensors by their names in GGUF: those of the model, of every layer, and of every layer of an architecture.
HEAD, ROPE_FACTORS = "output.weight", "rope_freqs.weight"  # may be missing
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         HEAD: "lm_head.weight"}
INNER = {"attn_norm.weight": "input_layernorm.weight", "attn_q.weight": "self_attn.q_proj.weight",
         "attn_k.weight": "self_attn.k_proj.weight", "attn_v.weight": "self_attn.v_proj.weight",
         "attn_output.weight": "self_attn.o_proj.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
         "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight",
         "ffn_down.weight": "mlp.down_proj.weight"}
OWN = {"llama": {},
       "qwen2": {f"attn_{part}.bias": f"self_attn.{part}_proj.bias" for part in "qkv"},
       "qwen3": {f"attn_{part}_norm.weight": f"self_attn.{part}_norm.weight" for part in "qk"}}
# What is read under the architecture's name, and what says nothing that is not known from elsewhere.
READ = ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
        "attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count",
        "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
        "rope.scaling.original_context_length", "vocab_size")
IDLE = ("tensor_data_layout", "rope.scaling.finetuned")
BLOCK_ELEMENTS = 1 << 22  # of rows that are dequantised at a time


class Rows:
    """A tensor of the file, with the face of those of .bin files: dtype, width, shape, bytes, blocks()."""

    def __init__(self, file, tensor, dtype, order=None):
        self.file, self.tensor, self.order = file, tensor, order
        self.kind = tensor.tensor_type.name
        if self.kind not in WIDTHS and self.kind not in QUANTISED:
            fail(f"{file.path}: {tensor.name!a:.200} has type {self.kind}; only "
                 f"{', '.join((*WIDTHS, *QUANTISED))} are supported")
        self.dtype = dtype or (self.kind if self.kind in WIDTHS else "F32")
        self.shape = tuple(int(n) for n in reversed(tensor.shape))
        self.width = WIDTHS[self.dtype]
        self.bytes = math.prod(self.shape) * self.width

    def blocks(self):
        """Its bytes in C order."""
        import numpy  # pylint: disable=import-outside-toplevel
        rows = self.shape[0]
        step = max(1, BLOCK_ELEMENTS // max(1, math.prod(self.shape[1:])))
        for begin in range(0, rows, step):
            places = slice(begin, begin + step) if self.order is None else self.order[begin:begin + step]
            block = numpy.ascontiguousarray(self.tensor.data[places])
            with numpy.errstate(all="ignore"):  # infinite scales are the file's own
                values = self.file.gguf.quants.dequantize(block, self.tensor.tensor_type)
                stored = self.stored(numpy, values.astype(numpy.float32, copy=False))
            yield stored

    def stored(self, numpy, values):
        if self.dtype == "F32":
            return values.astype("<f4").tobytes()
        stored = values.astype("<f2") if self.dtype == "F16" else to_bf16(numpy, values)
        finite = numpy.isfinite(stored) if self.dtype == "F16" else (stored & 0x7F80) != 0x7F80
        if not numpy.array_equal(finite, numpy.isfinite(values)):
            fail(f"{self.file.path}: {self.tensor.name!a:.200} has values beyond {self.dtype.lower()}; "
                 "choose another --dtype")
        return stored.tobytes()


def to_bf16(numpy, values):
    """Bits of the nearest values, of two the even one. What is no number stays none."""
    bits = values.astype("<f4").view("<u4").astype(numpy.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return numpy.where(numpy.isnan(values), 0x7FC0, rounded).astype("<u2")


def restored_rows(heads, rows):
    """Where rows of q or k were before llama.cpp put the two halves of a head in turn."""
    import numpy  # pylint: disable=import-outside-toplevel
    return numpy.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


class Checkpoint:
    """The model in a GGUF file. `dtype`: F32, F16 or BF16, or None for the types of the file, where what is
    quantised becomes F32."""

    def __init__(self, file, dtype):
        self.file = file
        name = file.value("general.architecture", str)
        if name not in ARCHITECTURES:
            fail(f"{file.path}: general.architecture is {name!a:.80}; only {', '.join(ARCHITECTURES)} are supported")
        self.name = name
        self.architecture, self.model_type, self.has_moved = ARCHITECTURES[name]
        for key in file.metadata:
            if key.startswith(f"{name}.") and key[len(name) + 1:] not in READ + IDLE:
                fail(f"{file.path}: {key} is not supported")
        self.heads = self.number("attention.head_count", 1024)
        self.kv_heads = self.number("attention.head_count_kv", self.heads, self.heads)
        self.hidden = self.number("embedding_length", 1 << 16)
        self.head_dim = self.number("attention.key_length", 1 << 16, max(1, self.hidden // self.heads))
        for key in ("attention.value_length", "rope.dimension_count"):
            if self.number(key, 1 << 16, self.head_dim) != self.head_dim:
                fail(f"{file.path}: {name}.{key}: expected {self.head_dim}, the size of a head")
        self.layers = self.number("block_count", 10_000)
        self.factors = None
        self.tensors = self.read_tensors(dtype)

    def number(self, key, most, default=None):
        value = self.file.value(f"{self.name}.{key}", int, default)
        if not 1 <= value <= most:
            fail(f"{self.file.path}: {self.name}.{key}: expected 1 to {most}, found {value}")
        return value

    def decimal(self, key, default=None):
        """A number that is stored in single precision, with the fewest digits that say which."""
        import numpy  # pylint: disable=import-outside-toplevel
        value = float(str(numpy.float32(self.file.value(f"{self.name}.{key}", float, default))))
        if not 0 < value < math.inf:
            fail(f"{self.file.path}: {self.name}.{key}: expected a positive number, found {value}")
        return value

    def names(self):
        """Name in the file -> published name, of all tensors that the model can have."""
        names = dict(OUTER)
        for i in range(self.layers):
            for part, published in {**INNER, **OWN[self.name]}.items():
                names[f"blk.{i}.{part}"] = f"model.layers.{i}.{published}"
        return names

    def read_tensors(self, dtype):
        names, found = self.names(), {tensor.name: tensor for tensor in self.file.reader.tensors}
        if ROPE_FACTORS in found:
            self.factors = Rows(self.file, found.pop(ROPE_FACTORS), "F32")
        for name in found:
            if name not in names:
                fail(f"{self.file.path}: {name!a:.200} is no tensor of a {self.architecture} of {self.layers} layers")
        for name in names:
            if name not in found and name != HEAD:
                fail(f"{self.file.path}: expected {name}, found none")
        return {names[name]: Rows(self.file, tensor, dtype, self.order_of(tensor)) for name, tensor in found.items()}

    def order_of(self, tensor):
        if not self.has_moved or not tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            return None
        heads = self.heads if "attn_q" in tensor.name else self.kv_heads
        rows = int(tensor.shape[-1])
        if rows != heads * self.head_dim or self.head_dim % 2:
            fail(f"{self.file.path}: {tensor.name!a:.200}: expected {heads * self.head_dim} rows, found {rows}")
        return restored_rows(heads, rows)

    def rope_scaling(self):
        """The member of config.json, or None."""
        prefix = f"{self.name}.rope.scaling."
        kind = self.file.value(prefix + "type", str, "none")
        if self.factors is not None:
            if kind != "none":
                fail(f"{self.file.path}: {ROPE_FACTORS} beside {prefix}type {kind!a} is not supported")
            return self.scaling_of_factors()
        if kind == "none":
            return None
        if kind not in ("linear", "yarn"):
            fail(f"{self.file.path}: {prefix}type is {kind!a:.80}; only none, linear and yarn are supported")
        scaling = {"rope_type": kind, "factor": self.decimal("rope.scaling.factor")}
        if kind == "yarn":
            scaling["original_max_position_embeddings"] = self.number("rope.scaling.original_context_length", 1 << 30)
        return scaling

    def scaling_of_factors(self):
        """Llama 3.1's scaling, which the file holds as a divisor of each frequency (the model's own code,
        apply_scaling). Its parameters are Meta's but for the factor; they must give these divisors."""
        import numpy  # pylint: disable=import-outside-toplevel
        found = numpy.frombuffer(b"".join(self.factors.blocks()), "<f4")
        factor, low, high, original = float(found.max()), 1.0, 4.0, 8192
        theta = self.decimal("rope.freq_base", 10000.0)
        turns = original / (2 * math.pi) * theta ** (-numpy.arange(0, self.head_dim, 2) / self.head_dim)
        smooth = numpy.clip((turns - low) / (high - low), 0, 1)
        expected = 1 / ((1 - smooth) / factor + smooth)
        if found.shape != expected.shape or not numpy.allclose(found, expected, rtol=1e-5):
            fail(f"{self.file.path}: {ROPE_FACTORS} are not the divisors of Llama 3.1's scaling")
        return {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
                "original_max_position_embeddings": original}

    def config(self):
        """The members of config.json."""
        rows = self.tensors["model.embed_tokens.weight"].shape[0]
        tied = "lm_head.weight" not in self.tensors
        matrices = self.tensors["model.embed_tokens.weight"].dtype
        config = {
            "architectures": [self.architecture], "model_type": self.model_type, "hidden_act": "silu",
            "hidden_size": self.hidden, "intermediate_size": self.number("feed_forward_length", 1 << 20),
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "vocab_size": rows,
            "max_position_embeddings": self.number("context_length", 1 << 30),
            "rms_norm_eps": self.decimal("attention.layer_norm_rms_epsilon"),
            "rope_theta": self.decimal("rope.freq_base", 10000.0),
            "rope_scaling": self.rope_scaling(), "tie_word_embeddings": tied,
            "torch_dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[matrices]}
        for key in ("bos", "eos"):
            name = f"tokenizer.ggml.{key}_token_id"
            config[f"{key}_token_id"] = self.file.value(name, int) if name in self.file.metadata else None
        return config
