#!/usr/bin/env python3
"""Makes tests/golden/dialects/dialects.json: what transformers makes of configurations of one model.

A dialect is a folder: config.json, perhaps generation_config.json, and tensors whose values follow
from their names and shapes alone, so that a test writes them again and no weights are kept. The
values are exact at float32, float16 and bfloat16. transformers reads the folder as
AutoModelForCausalLM.from_pretrained does, in float64, and gives

- "law": the logarithms of the probabilities of the first token after `tokens`,
- "nll": the mean over tokens[1:] of -log p, and
- "eos": the ids at which its generate() ends.

"reference_error" is by how much the law differs from that of scripts/make_golden_models.py, which is
written from the architecture's definition in double; transformers keeps angles and norms in float32.
Dialects that the program refuses have "refused", the class of the error, in place of all that.
What transformers refuses itself but any program can read has the law of that script: "own".

    make_golden_dialects.py        needs the packages torch and transformers (5.24 made the file)
"""
import json
import logging
import tempfile
from pathlib import Path

import numpy
import torch
import transformers
from safetensors.torch import save_file

from make_golden_models import ROOT, forward

TOKENS = 160  # several times the shortest original context
HIDDEN, VOCAB = 32, 48
BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": HIDDEN, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": False,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "factor": 4.0}


def scaled(rope, **more):
    return {"rope_theta": 500.0, "rope_scaling": rope | more}


def as_class(name, **fields):
    """config.json as transformers' own class of this architecture writes it, of the base shape."""
    shape = {key: value for key, value in BASE.items()
             if key not in ("architectures", "model_type", "hidden_act")}
    config = getattr(transformers, name + "Config")(**(shape | {"pad_token_id": 0} | fields))
    config.architectures = [name + "ForCausalLM"]
    config.dtype = "float32"
    return config.to_dict()


def version_4(architecture, **fields):
    """config.json of an architecture of the base shape as transformers 4 wrote it."""
    return {"architectures": [architecture + "ForCausalLM"], "model_type": architecture.lower(),
            "rope_theta": 500.0, "torch_dtype": "float32"} | fields


def edited(config):
    """The configuration of another architecture that says it were a Llama."""
    return config | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


# Name: the changes of BASE, or {"config": the whole of it}; beside them what else is unusual.
DIALECTS = {
    "llama 4": {"rope_theta": 10000.0, "torch_dtype": "float32", "rope_scaling": None},
    "llama 5": {"config": as_class("Llama")},
    "integer theta": {"rope_theta": 10000},
    "no theta": {},
    "theta 5": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "theta alone in rope_parameters": {"rope_parameters": {"rope_theta": 500.0}},
    "theta in rope_scaling": {"rope_scaling": LINEAR | {"rope_theta": 500.0}},
    "theta in rope_scaling and outside": {"rope_theta": 20000.0,
                                          "rope_scaling": LLAMA3 | {"rope_theta": 500.0}},
    "theta in rope_parameters and outside": {"rope_theta": 20000.0,
                                             "rope_parameters": LLAMA3 | {"rope_theta": 500.0}},
    "llama3 scaling 4": scaled(LLAMA3),
    "llama3 scaling 5": {"config": as_class("Llama", rope_parameters=LLAMA3 | {"rope_theta": 500.0})},
    "linear, type": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "linear, rope_type": scaled(LINEAR),
    "linear 5": {"config": as_class("Llama", rope_parameters=LINEAR | {"rope_theta": 500.0})},
    "yarn, type": {"rope_scaling": {"type": "yarn", "factor": 8.0, "finetuned": True,
                                    "original_max_position_embeddings": 64}},
    "yarn": scaled(YARN),
    "yarn 5": {"config": as_class("Llama", rope_parameters=YARN | {"rope_theta": 500.0})},
    "yarn, attention factor": scaled(YARN, attention_factor=1.25),
    "yarn, betas": scaled(YARN, beta_fast=2.0, beta_slow=0.25),
    "yarn, mscales": scaled(YARN, mscale=0.7, mscale_all_dim=1.3),
    "yarn, one mscale": scaled(YARN, mscale=0.7),
    "yarn, no original length": scaled({"rope_type": "yarn", "factor": 4.0}),
    "yarn, factor unlike the ratio": scaled(YARN, factor=4.0),
    "yarn, original length outside": scaled({"rope_type": "yarn", "factor": 4.0})
    | {"original_max_position_embeddings": 64},
    "both dictionaries": scaled(LINEAR) | {"rope_parameters": LINEAR | {"rope_theta": 500.0}},
    "null scaling beside parameters": {"rope_scaling": None,
                                       "rope_parameters": YARN | {"rope_theta": 500.0}},
    "empty scaling beside parameters": {"rope_scaling": {},
                                        "rope_parameters": YARN | {"rope_theta": 500.0}},
    "tied": {"tie_word_embeddings": True},
    "tied, its head stored": {"tie_word_embeddings": True, "tensors": {"lm_head.weight": "embed"}},
    "head_dim": {"head_dim": 32},
    "head_dim, heads that do not divide": {"num_attention_heads": 3, "head_dim": 16, "own": True},
    "nulls": {"head_dim": None, "num_key_value_heads": None, "rope_parameters": None},
    "no key/value heads": {"num_key_value_heads": ...},
    "several ends": {"eos_token_id": [2, 17]},
    "ends of generation_config.json": {"generation": {"bos_token_id": 1, "eos_token_id": [2, 30]}},
    "one end of generation_config.json": {"eos_token_id": [2, 17],
                                          "generation": {"eos_token_id": 30, "do_sample": True}},
    "no end": {"eos_token_id": None},
    "no first token": {"bos_token_id": None},
    "three shards": {"shards": 3},
    "bfloat16": {"stored": "bfloat16", "torch_dtype": "bfloat16"},
    "float16": {"stored": "float16", "dtype": "float16"},
    "buffers": {"tensors": {"model.layers.0.self_attn.rotary_emb.inv_freq": [8],
                            "model.layers.1.self_attn.rotary_emb.inv_freq": [8]}},
    "another epsilon": {"rms_norm_eps": 1e-2},
    "keys of no use": {"pretraining_tp": 2, "use_cache": False, "attention_dropout": 0.1,
                       "initializer_range": 0.5, "_name_or_path": "x", "my_key": {"a": [1]}},
    "a window that no Llama has": {"sliding_window": 16, "use_sliding_window": True},
    "factors that no Llama has": {"logits_scaling": 8.0, "final_logit_softcapping": 3.0},
    # Mistral without a window is a Llama by another name.
    "mistral as a llama": {"config": edited(as_class("Mistral", sliding_window=None))},
    "mistral 4": version_4("Mistral", sliding_window=None),
    "mistral 5": {"config": as_class("Mistral", sliding_window=None, head_dim=32)},
    "qwen2 4": version_4("Qwen2", use_sliding_window=False, sliding_window=16, max_window_layers=1),
    "qwen2 5": {"config": as_class("Qwen2")},
    "qwen2, no ends": version_4("Qwen2", bos_token_id=..., eos_token_id=...),
    "qwen2, yarn": version_4("Qwen2", rope_scaling=YARN, tie_word_embeddings=True),
    "qwen3 4": version_4("Qwen3", head_dim=32, attention_bias=False, use_sliding_window=False,
                         sliding_window=None, max_window_layers=2),
    "qwen3 5": {"config": as_class("Qwen3", head_dim=16)},
    "qwen3, heads that are not the hidden size": version_4(
        "Qwen3", num_attention_heads=4, num_key_value_heads=2, head_dim=48,
        tie_word_embeddings=True),

    "dynamic": {"refused": "UnsupportedConfig", **scaled({"rope_type": "dynamic", "factor": 2.0})},
    "longrope": {"refused": "UnsupportedConfig", **scaled({
        "rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 64})},
    "yarn, not truncated": {"refused": "UnsupportedConfig", **scaled(YARN, truncate=False)},
    "a key of the rotary embedding that is not known": {
        "refused": "UnsupportedConfig", **scaled(LINEAR, secret=2.0)},
    "original lengths that differ": {"refused": "InvalidConfig", **scaled(YARN),
                                     "original_max_position_embeddings": 128},
    "dictionaries that differ": {"refused": "UnsupportedConfig", "rope_scaling": LINEAR,
                                 "rope_parameters": LINEAR | {"rope_theta": 500.0}},
    "part of the head": {"refused": "UnsupportedConfig", "partial_rotary_factor": 0.5},
    "head_dim 24": {"refused": "UnsupportedConfig", "head_dim": 24},
    "gelu": {"refused": "UnsupportedConfig", "hidden_act": "gelu"},
    "attention_bias": {"refused": "UnsupportedConfig", "attention_bias": True},
    "mlp_bias": {"refused": "UnsupportedConfig", "mlp_bias": True},
    "quantized": {"refused": "UnsupportedConfig", "quantization_config": {"quant_method": "gptq"}},
    "no head": {"refused": "MissingTensor", "without": ["lm_head.weight"]},
    "an end beyond the vocabulary": {"refused": "InvalidConfig", "eos_token_id": VOCAB},
    "an end of generation_config.json beyond it": {"refused": "InvalidConfig",
                                                   "generation": {"eos_token_id": [2, VOCAB]}},
    "no architecture": {"refused": "InvalidConfig", "architectures": ...},
    "tied, another head stored": {"refused": "UnsupportedTensor", "tie_word_embeddings": True,
                                  "tensors": {"lm_head.weight": [VOCAB, HIDDEN]}},
    "mistral, a window": {"refused": "UnsupportedConfig",
                          **version_4("Mistral", sliding_window=4096)},
    "mistral, a layer with a window": {
        "refused": "UnsupportedConfig",
        **version_4("Mistral", sliding_window=None, layer_types=["full_attention", "sliding_attention"])},
    "mistral, the window of its class": {"refused": "UnsupportedConfig", **version_4("Mistral")},
    "qwen2, a window": {"refused": "UnsupportedConfig",
                        **version_4("Qwen2", use_sliding_window=True, sliding_window=16)},
    "qwen2, layers with a window": {
        "refused": "UnsupportedConfig",
        **version_4("Qwen2", layer_types=["full_attention", "sliding_attention"])},
    "qwen2, dual chunks": {
        "refused": "UnsupportedConfig",
        **version_4("Qwen2", dual_chunk_attention_config={"chunk_size": 262144})},
    "qwen2, another model_type": {"refused": "UnsupportedConfig",
                                  **version_4("Qwen2", model_type="llama")},
    "qwen2, no key/value heads": {"refused": "InvalidConfig",
                                  **version_4("Qwen2", num_key_value_heads=...)},
    "qwen2, no biases": {"refused": "MissingTensor", **version_4("Qwen2"),
                         "without": [f"model.layers.1.self_attn.{m}_proj.bias" for m in "qkv"]},
    "qwen3, biases": {"refused": "UnsupportedConfig",
                      **version_4("Qwen3", head_dim=16, attention_bias=True)},
    "qwen3, no head_dim": {"refused": "InvalidConfig", **version_4("Qwen3")},
    "qwen3, a layer with a window": {
        "refused": "UnsupportedConfig",
        **version_4("Qwen3", head_dim=16, layer_types=["sliding_attention", "full_attention"])},
    "qwen3 of experts": {"refused": "UnsupportedConfig",
                         **version_4("Qwen3", architectures=["Qwen3MoeForCausalLM"])},
    "gemma2": {"refused": "UnsupportedConfig", "config": as_class("Gemma2", head_dim=16)},
    "phi3": {"refused": "UnsupportedConfig", "config": as_class("Phi3")},
    "smollm3": {"refused": "UnsupportedConfig", "config": as_class("SmolLM3")},
    "olmo2": {"refused": "UnsupportedConfig", "config": as_class("Olmo2")},
    "qwen2 as a llama": {
        "refused": "UnsupportedTensor", "config": edited(as_class("Qwen2")),
        "tensors": {f"model.layers.{i}.self_attn.{m}_proj.bias": [rows]
                    for i in range(2) for m, rows in (("q", 32), ("k", 16), ("v", 16))}},
    "qwen3 as a llama": {
        "refused": "UnsupportedTensor", "config": edited(as_class("Qwen3", head_dim=16)),
        "tensors": {f"model.layers.{i}.self_attn.{m}_norm.weight": [16]
                    for i in range(2) for m in "qk"}},
    "gemma2 as a llama": {
        "refused": "UnsupportedTensor",
        "config": edited(as_class("Gemma2", head_dim=16)) | {"hidden_act": "silu"},
        "tensors": {f"model.layers.{i}.{m}_feedforward_layernorm.weight": [HIDDEN]
                    for i in range(2) for m in ("pre", "post")}},
}
OF_THE_FOLDER = ("config", "generation", "tensors", "without", "shards", "stored", "refused", "own")


def values(name, shape):
    """Of a tensor: splitmix64 of a counter that starts at the name's FNV-1a hash, the highest seven
    bits of each; a norm's are in [1, 2), others are odd multiples of 2^-9."""
    mask, start = (1 << 64) - 1, 0xCBF29CE484222325
    for byte in name.encode():
        start = (start ^ byte) * 0x100000001B3 & mask
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(start) + (numpy.arange(1, numpy.prod(shape) + 1, dtype=numpy.uint64)
                                   * numpy.uint64(0x9E3779B97F4A7C15))
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    bits = (z >> numpy.uint64(57)).astype(numpy.float64)
    if len(shape) == 1:
        x = 1 + numpy.floor(bits / 2) / 64
    else:
        x = (2 * bits - 127) * 2.0 ** -9
    return torch.tensor(x.reshape(shape), dtype=torch.float32)


def shapes(config):
    """Those of a model of this configuration."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or hidden // heads
    q, kv = heads * dim, (config.get("num_key_value_heads") or heads) * dim
    out = {"model.embed_tokens.weight": [config["vocab_size"], hidden],
           "model.norm.weight": [hidden]}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        out |= {p + "input_layernorm.weight": [hidden],
                p + "post_attention_layernorm.weight": [hidden],
                p + "self_attn.q_proj.weight": [q, hidden],
                p + "self_attn.k_proj.weight": [kv, hidden],
                p + "self_attn.v_proj.weight": [kv, hidden],
                p + "self_attn.o_proj.weight": [hidden, q],
                p + "mlp.gate_proj.weight": [inner, hidden],
                p + "mlp.up_proj.weight": [inner, hidden],
                p + "mlp.down_proj.weight": [hidden, inner]}
        if config["model_type"] == "qwen2":
            out |= {p + f"self_attn.{m}_proj.bias": [rows]
                    for m, rows in (("q", q), ("k", kv), ("v", kv))}
        if config["model_type"] == "qwen3":
            out |= {p + f"self_attn.{m}_norm.weight": [dim] for m in "qk"}
    if not config.get("tie_word_embeddings"):
        out["lm_head.weight"] = [config["vocab_size"], hidden]
    return out


def write_folder(folder, config, dialect):
    (folder / "config.json").write_text(json.dumps(config))
    if "generation" in dialect:
        (folder / "generation_config.json").write_text(json.dumps(dialect["generation"]))
    tensors = {name: values(name, shape) for name, shape in shapes(config).items()
               if name not in dialect.get("without", ())}
    for name, shape in dialect.get("tensors", {}).items():
        tensors[name] = (values("model.embed_tokens.weight", [VOCAB, HIDDEN]) if shape == "embed"
                         else values(name, shape))
    stored = getattr(torch, dialect.get("stored", "float32"))
    tensors = {name: tensor.to(stored) for name, tensor in tensors.items()}
    if "shards" not in dialect:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return tensors
    n, names, where = dialect["shards"], list(tensors), {}
    for i in range(n):
        file = f"model-{i + 1:05d}-of-{n:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::n]}
        save_file(part, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return tensors


def plain(config):
    """What forward() of make_golden_models.py reads, as transformers 5 understands the dialect."""
    out = dict(config)
    rope = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    out["rope_theta"] = rope.get("rope_theta", config.get("rope_theta") or 10000.0)
    rope.setdefault("original_max_position_embeddings",
                    config.get("original_max_position_embeddings",
                               config["max_position_embeddings"]))
    out["rope_scaling"] = rope
    out["num_key_value_heads"] = config.get("num_key_value_heads") or config["num_attention_heads"]
    return out


def log_probs_of(logits):
    return logits.double().log_softmax(-1)


def expected(folder, config, dialect, tokens):
    tensors = write_folder(folder, config, dialect)
    own = log_probs_of(forward(plain(config), tensors, tokens, torch.float64))
    eos = config.get("eos_token_id")
    if dialect.get("own"):
        law, error = own, 0.0
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager")
        with torch.no_grad():
            law = log_probs_of(model(torch.tensor([tokens])).logits[0])
        error = (law - own).abs().max().item()
        eos = model.generation_config.eos_token_id
    nll = -law[torch.arange(TOKENS - 1), torch.tensor(tokens[1:])].mean().item()
    return {"law": [round(x, 9) for x in law[-1].tolist()], "nll": nll, "reference_error": error,
            "eos": [] if eos is None else eos if isinstance(eos, list) else [eos]}


def main():
    logging.disable(logging.WARNING)
    tokens = [1] + [(i * i + 7 * i + i // 3) % VOCAB for i in range(1, TOKENS)]
    dialects = []
    for name, dialect in DIALECTS.items():
        changes = {key: value for key, value in dialect.items() if key not in OF_THE_FOLDER}
        config = {key: value for key, value in (dialect.get("config", BASE) | changes).items()
                  if value is not ...}
        entry = {"name": name, "config": json.dumps(config)}
        if "generation" in dialect:
            entry["generation_config"] = json.dumps(dialect["generation"])
        entry |= {"shards": dialect.get("shards", 1), "stored": dialect.get("stored", "float32"),
                  "without": dialect.get("without", []),
                  "tensors": [{"name": n, "values_of": "model.embed_tokens.weight" if s == "embed"
                               else n, "shape": [VOCAB, HIDDEN] if s == "embed" else s}
                              for n, s in dialect.get("tensors", {}).items()]}
        if "refused" in dialect:
            entry["refused"] = dialect["refused"]
        else:
            with tempfile.TemporaryDirectory() as folder:
                entry |= expected(Path(folder), config, dialect, tokens)
            print(f"{name}: nll {entry['nll']:.4f}, eos {entry['eos']}, "
                  f"reference_error {entry['reference_error']:.1e}")
            if entry["reference_error"] > 1e-4:
                raise SystemExit(f"{name}: the two references differ")
        dialects.append(entry)
    file = ROOT / "tests/golden/dialects/dialects.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(entry) for entry in dialects)
    file.write_text(f'{{"transformers": "{transformers.__version__}", "tokens": {tokens},\n'
                    f'"dialects": [\n{lines}\n]}}\n')
    print(f"{len(dialects)} dialects, {sum('law' in d for d in dialects)} with a law, "
          f"{file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
