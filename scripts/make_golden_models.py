#!/usr/bin/env python3
"""Makes tests/golden: tiny random checkpoints and the logits they must give.

Two references, both in float64 on the weights as stored:
- Hugging Face transformers (AutoModelForCausalLM) reads the very files and gives the logits of every
  kind of RoPE but yarn. It keeps RMSNorm and the rotary angles in float32 whatever the dtype.
- `forward` below, written from the architecture's definition, wholly in float64. It gives the
  logits of yarn, with the angles of the published Yarn-Llama-2-7b-128k modeling code, which differs
  in details from transformers' yarn (how the ramp's bounds are clamped, the factor on cos and sin).

For the other kinds the two must agree; how far they differ is stored as `reference_error`, which a
test adds to its own tolerance.

A case is a folder: config.json, model.safetensors or shards with an index, expected.txt with lines
"tokens ...", "positions ...", "reference_error x", and logits.f32: [positions, vocab] raw
little-endian float32, the logits after the token at each position.

    make_golden_models.py                                 writes tests/golden
    make_golden_models.py --perplexity MODEL TOKENS.ids   prints {nll_per_token, perplexity, tokens}
                                                          of MODEL at float32 over the file's ids,
                                                          BOS among them
"""
import argparse
import json
import math
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
TOKENS = 100  # more than one exact pass of 32 rows
POSITIONS = [0, 1, 2, 15, 16, 31, 32, 63, 99]
BASE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 97,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "float32",
}
CASES = {
    "mha_f32": {},
    "gqa_linear_f16": {
        "num_key_value_heads": 2,
        "rope_scaling": {"type": "linear", "factor": 4.0},
        "torch_dtype": "float16",
    },
    "tied_head_dim_bf16": {
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 48,
        "rope_theta": 1e7,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
    # Positions reach six times the original context.
    "yarn_sharded_f16": {
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rope_scaling": {
            "type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 16,
            "finetuned": True,
        },
        "torch_dtype": "float16",
    },
    # A ramp with both bounds inside the head: pairs of all three kinds.
    "yarn_theta_bf16": {
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "rope_theta": 500.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 8.0,
            "beta_slow": 1.0,
        },
        "torch_dtype": "bfloat16",
    },
    "gqa_llama3_bf16": {
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        "torch_dtype": "bfloat16",
    },
    # From here on heads are of 64, as GPUs have them, and wider than the hidden size.
    "mistral_bf16": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_size": 32,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "sliding_window": None,
        "torch_dtype": "bfloat16",
    },
    "qwen2_bf16": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 32,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
        "torch_dtype": "bfloat16",
    },
    "qwen3_tied_bf16": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 32,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
}


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def yarn_frequencies(base, dim, scaling):
    """Of the published Yarn-Llama-2-7b-128k modeling code, in double."""
    context = scaling["original_max_position_embeddings"]
    factor = scaling["factor"]

    def pair_turning(rotations):
        return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(pair_turning(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair_turning(scaling.get("beta_slow", 1))), dim - 1)
    span = (high - low) if high != low else 0.001
    frequencies = []
    for pair in range(dim // 2):
        plain = base ** (-2 * pair / dim)
        interpolated = min(max((pair - low) / span, 0.0), 1.0)
        frequencies.append(plain / factor * interpolated + plain * (1 - interpolated))
    return frequencies, yarn_attention_factor(scaling)


def yarn_attention_factor(scaling):
    """On cos and sin: that of the published code unless transformers' keys say another one."""
    def temperature(m):
        return 0.1 * m * math.log(scaling["factor"]) + 1.0 if scaling["factor"] > 1 else 1.0

    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return temperature(scaling["mscale"]) / temperature(scaling["mscale_all_dim"])
    return temperature(1.0)


def llama3_frequencies(base, dim, scaling):
    """Meta's Llama 3.1 scaling by wavelength, in double."""
    longest = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    shortest = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    frequencies = []
    for pair in range(dim // 2):
        plain = base ** (-2 * pair / dim)
        wave = 2 * math.pi / plain
        if wave < shortest:
            frequencies.append(plain)
        elif wave > longest:
            frequencies.append(plain / scaling["factor"])
        else:
            context = scaling["original_max_position_embeddings"]
            smooth = (context / wave - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"])
            frequencies.append((1 - smooth) * plain / scaling["factor"] + smooth * plain)
    return frequencies, 1.0


def frequencies_of(config):
    """Inverse frequencies [head_dim / 2] and the factor on cos and sin."""
    dim, base = head_dim(config), config.get("rope_theta", 10000.0)
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "yarn":
        return yarn_frequencies(base, dim, scaling)
    if kind == "llama3":
        return llama3_frequencies(base, dim, scaling)
    if kind not in ("default", "linear"):
        raise SystemExit(f"rope_scaling {kind} is not supported")
    divisor = scaling["factor"] if kind == "linear" else 1.0
    return [base ** (-2 * pair / dim) / divisor for pair in range(dim // 2)], 1.0


def rms_norm(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def rotate(x, cos, sin):
    """x[heads, tokens, dim]; dimension i turns with i + dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attend(q, k, v, block=512):
    """Causal attention of q[H, n, d] over k, v[Hkv, n, d], queries in blocks; [n, H d]."""
    heads, n, dim = q.shape
    k = k.repeat_interleave(heads // k.shape[0], dim=0)
    v = v.repeat_interleave(heads // v.shape[0], dim=0)
    out = []
    for begin in range(0, n, block):
        end = min(begin + block, n)
        scores = q[:, begin:end] @ k[:, :end].transpose(1, 2) / math.sqrt(dim)
        hidden = torch.ones(end - begin, end).triu(diagonal=begin + 1).bool()
        out.append(scores.masked_fill(hidden, -math.inf).softmax(-1) @ v[:, :end])
    return torch.cat(out, dim=1).transpose(0, 1).reshape(n, heads * dim)


def forward(config, weights, tokens, dtype):
    """Logits [tokens, vocab]."""
    w = {name: tensor.to(dtype) for name, tensor in weights.items()}
    n, dim, eps = len(tokens), head_dim(config), config["rms_norm_eps"]
    frequencies, factor = frequencies_of(config)
    angles = torch.outer(torch.arange(n, dtype=torch.float64),
                         torch.tensor(frequencies, dtype=torch.float64))
    cos, sin = (angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype)
    x = w["model.embed_tokens.weight"][torch.tensor(tokens)]

    def heads_of(h, p, letter, heads):
        """Product, bias and norm of what becomes q, k or v; [heads, tokens, dim]."""
        y = h @ w[p + f"self_attn.{letter}_proj.weight"].T
        bias, norm = p + f"self_attn.{letter}_proj.bias", p + f"self_attn.{letter}_norm.weight"
        if bias in w:
            y = y + w[bias]
        y = y.reshape(n, heads, dim).transpose(0, 1)
        return rms_norm(y, w[norm], eps) if norm in w else y

    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = rms_norm(x, w[p + "input_layernorm.weight"], eps)
        q = heads_of(h, p, "q", config["num_attention_heads"])
        k = heads_of(h, p, "k", config["num_key_value_heads"])
        v = heads_of(h, p, "v", config["num_key_value_heads"])
        y = attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + y @ w[p + "self_attn.o_proj.weight"].T
        h = rms_norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate = h @ w[p + "mlp.gate_proj.weight"].T
        up = h @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[p + "mlp.down_proj.weight"].T
    head = "model.embed_tokens.weight" if config.get("tie_word_embeddings") else "lm_head.weight"
    return rms_norm(x, w["model.norm.weight"], eps) @ w[head].T


def random_checkpoint(config, seed):
    """Weights large enough that attention is far from uniform and logits far from equal."""
    g = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, config["torch_dtype"])
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q = config["num_attention_heads"] * head_dim(config)
    kv = config["num_key_value_heads"] * head_dim(config)

    def matrix(rows, cols, gain=1.0):
        return (torch.randn(rows, cols, generator=g) * gain / math.sqrt(cols)).to(dtype)

    def norm(n=hidden):
        return (1 + 0.2 * torch.randn(n, generator=g)).to(dtype)

    weights = {"model.embed_tokens.weight": matrix(vocab, hidden, 2.0), "model.norm.weight": norm()}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        weights |= {
            p + "input_layernorm.weight": norm(),
            p + "self_attn.q_proj.weight": matrix(q, hidden, 1.5),
            p + "self_attn.k_proj.weight": matrix(kv, hidden, 1.5),
            p + "self_attn.v_proj.weight": matrix(kv, hidden),
            p + "self_attn.o_proj.weight": matrix(hidden, q),
            p + "post_attention_layernorm.weight": norm(),
            p + "mlp.gate_proj.weight": matrix(inner, hidden),
            p + "mlp.up_proj.weight": matrix(inner, hidden),
            p + "mlp.down_proj.weight": matrix(hidden, inner),
        }
        if config["model_type"] == "qwen2":  # biases as large as the products
            weights |= {p + f"self_attn.{m}_proj.bias": torch.randn(n, generator=g).to(dtype)
                        for m, n in (("q", q), ("k", kv), ("v", kv))}
        if config["model_type"] == "qwen3":
            weights |= {p + f"self_attn.{m}_norm.weight": norm(head_dim(config)) for m in "qk"}
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(vocab, hidden, 2.0)
    return weights


def save_checkpoint(folder, config, weights, shards):
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(weights)
    index = {"metadata": {"total_size": sum(t.nbytes for t in weights.values())}, "weight_map": {}}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        save_file({n: weights[n] for n in part}, folder / file, metadata={"format": "pt"})
        index["weight_map"] |= {n: file for n in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def load_checkpoint(folder):
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    return json.loads((folder / "config.json").read_text()), weights


def transformers_logits(folder, tokens):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64,
                                                 attn_implementation="eager")
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0]


def make_case(folder, name, changes, seed):
    config = BASE | changes
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_checkpoint(folder, config, random_checkpoint(config, seed), 2 if "sharded" in name else 1)
    config, weights = load_checkpoint(folder)
    g = torch.Generator().manual_seed(1000 + seed)
    tokens = torch.randint(0, config["vocab_size"], (TOKENS,), generator=g).tolist()
    logits, error = forward(config, weights, tokens, torch.float64), 0.0
    if "yarn" not in name:
        published = transformers_logits(folder, tokens)
        error = (published - logits).abs().max().item()
        if error > 1e-4:
            raise SystemExit(f"{name}: the two references differ by {error}")
        logits = published
    (folder / "expected.txt").write_text(
        f"tokens {' '.join(map(str, tokens))}\npositions {' '.join(map(str, POSITIONS))}\n"
        f"reference_error {error:.3e}\n")
    logits[POSITIONS].to(torch.float32).numpy().astype("<f4").tofile(folder / "logits.f32")
    print(f"{name}: reference_error {error:.1e}, logits to {logits.abs().max():.2f}")


def perplexity(model, ids):
    config, weights = load_checkpoint(model)
    tokens = [int(word) for word in ids.read_text().split()]
    with torch.no_grad():
        log_probs = forward(config, weights, tokens, torch.float32)[:-1].double().log_softmax(-1)
    nll = -log_probs[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])].mean().item()
    print(json.dumps({"nll_per_token": nll, "perplexity": math.exp(nll), "tokens": len(tokens)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--perplexity", nargs=2, type=Path, metavar=("MODEL", "TOKENS.ids"))
    arguments = parser.parse_args()
    if arguments.perplexity:
        perplexity(*arguments.perplexity)
        return
    for seed, (name, changes) in enumerate(CASES.items(), start=1):
        make_case(ROOT / "tests" / "golden" / name, name, changes, seed)


if __name__ == "__main__":
    main()
