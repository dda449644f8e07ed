"""A Llama in PyTorch, its Hugging Face folder, and the attention patterns it is trained with."""

import dataclasses
import json
import math
import os
import pathlib
import shutil

import torch
import torch.nn.functional as F
from plots.command import BadInput
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

BOS = 1
CHUNK = 8  # tokens: of a retrieval cache
SINKS = 16  # tokens of the start of the text that the drafter's cache always keeps
UNFORESEEN_EVERY = 4  # tokens: a block's mean attention needs no more of its queries


@dataclasses.dataclass
class Shape:
    """The architecture; names as in a Hugging Face config.json."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    yarn_factor: float = 0.0  # 0: plain rotary embedding
    yarn_original: int = 1024
    vocab_size: int = 4096
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads

    @staticmethod
    def from_config(config):
        scaling = config.get("rope_scaling") or {}
        fields = {f.name for f in dataclasses.fields(Shape)}
        shape = Shape(**{k: v for k, v in config.items() if k in fields})
        if scaling:
            shape.yarn_factor = scaling["factor"]
            shape.yarn_original = scaling["original_max_position_embeddings"]
        return shape

    def to_config(self):
        scaling = None
        if self.yarn_factor:
            scaling = dict(type="yarn", factor=self.yarn_factor, finetuned=True,
                           original_max_position_embeddings=self.yarn_original)
        config = {k: v for k, v in dataclasses.asdict(self).items() if not k.startswith("yarn")}
        length = int(self.yarn_factor * self.yarn_original) if scaling else 2048
        return dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu",
                    **config, num_key_value_heads=self.num_attention_heads,
                    max_position_embeddings=length, rope_scaling=scaling, bos_token_id=BOS,
                    eos_token_id=2, tie_word_embeddings=False, torch_dtype="float16",
                    attention_bias=False)


TARGET = Shape(256, 6, 4, 688, yarn_factor=16.0)
DRAFT = Shape(128, 1, 2, 352)


def rope_tables(shape, length):
    """cos, sin [length, head_dim] in f32, as the Yarn-Llama-2-128k model code computes them: per
    frequency a ramp between the plain and the interpolated angle, and an attention temperature of
    0.1 ln(factor) + 1 on both tables."""
    dim, base, factor = shape.head_dim, shape.rope_theta, shape.yarn_factor
    powers = base ** (torch.arange(0, dim, 2).float() / dim)
    frequency, scale = 1.0 / powers, 1.0
    if factor:
        def dimension_of(rotations):
            full_turns = shape.yarn_original / (rotations * 2 * math.pi)
            return dim * math.log(full_turns) / (2 * math.log(base))

        low = max(math.floor(dimension_of(32)), 0)
        high = min(math.ceil(dimension_of(1)), dim - 1)
        high = high + 0.001 if low == high else high
        ramp = ((torch.arange(dim // 2).float() - low) / (high - low)).clamp(0, 1)
        frequency = frequency / factor * ramp + frequency * (1 - ramp)
        scale = 0.1 * math.log(factor) + 1.0
    angle = torch.outer(torch.arange(length).float(), frequency)
    angle = torch.cat((angle, angle), -1)
    return angle.cos() * scale, angle.sin() * scale


def rotate(x, cos, sin):
    """x [..., length, head_dim] at the positions whose rows cos and sin [..., length, head_dim] are; in
    x's type, computed in f32. Each half is written once, in its type, which compilers keep so."""
    a, b = x.float().chunk(2, -1)
    (cos_a, cos_b), (sin_a, sin_b) = cos.chunk(2, -1), sin.chunk(2, -1)
    halves = a * cos_a - b * sin_a, b * cos_b + a * sin_b
    return torch.cat([half.to(x.dtype) for half in halves], -1)


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def precise_product(a, b):
    """a b in f32, also where autocast would round it to bf16."""
    with torch.autocast(a.device.type, enabled=False):
        return a.float() @ b.float()


class AttentionByProducts(torch.autograd.Function):
    """softmax(q k^T / sqrt(dim)) v where seen, with scores and their gradients in f32 as in fused
    attention. backward() keeps the shares in v's type; autograd by itself would keep f32 ones too."""

    @staticmethod
    def forward(ctx, q, k, v, seen):
        scores = precise_product(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        shares = scores.masked_fill(~seen, -torch.inf).softmax(-1).to(v.dtype)
        mixed = shares @ v
        ctx.save_for_backward(q, k, v, shares, mixed)
        return mixed

    @staticmethod
    def backward(ctx, grad):
        q, k, v, shares, mixed = ctx.saved_tensors
        of_shares = precise_product(grad, v.transpose(-1, -2))
        mean = (grad.float() * mixed.float()).sum(-1, keepdim=True)  # of of_shares, by shares
        of_scores = (shares.float() * (of_shares - mean) * q.shape[-1] ** -0.5).to(q.dtype)
        return of_scores @ k, of_scores.transpose(-1, -2) @ q, shares.transpose(-1, -2) @ grad, None


def by_products(q):
    """Where AttentionByProducts is the faster: compiled, in training on CPUs."""
    return q.device.type == "cpu" and torch.is_grad_enabled()


def masked(q, k, v, seen):
    """Attention of q [..., n, dim] to those of k, v [..., m, dim] that seen [..., n, m] says."""
    if not by_products(q):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return AttentionByProducts.apply(q, k, v, seen)


def causal(q, k, v):
    """Attention of q [batch, head, length, dim] to k, v of the same shape up to the same token. In
    training on CPUs a block of queries at a time, by plain products: PyTorch's own attention
    multiplies bf16 there at an eighth of their rate (AMD Zen 5, one core: 50 against 400 GFLOP/s).
    There are at most 32 blocks, since compiling takes as long as there are many."""
    if not by_products(q):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length, mixed = q.shape[2], []
    block = max(256, length // 32)
    token = torch.arange(length, device=q.device)
    for first in range(0, length, block):
        end = min(first + block, length)
        seen = token[:end] <= token[first:end, None]
        mixed.append(masked(q[:, :, first:end], k[:, :, :end], v[:, :, :end], seen))
    return torch.cat(mixed, 2)


def best_chunks(scores, begin, chunk, budget):
    """scores [..., place, chunks] of the chunks of `chunk` tokens, begin [place], how many of them lie
    before each place -> the tokens of the best of these, [..., place, n], n the budget or what the
    chunks hold, the best chunk first; and which of them there are, [place, n]. Chunk 0 is always
    among them."""
    chunks, device = scores.shape[-1], scores.device
    first = torch.arange(chunks, device=device) == 0
    later = torch.arange(chunks, device=device) >= begin[:, None]
    scores = scores.masked_fill(first, torch.inf).masked_fill(later, -torch.inf)
    best = scores.topk(min(budget // chunk, chunks), -1).indices
    tokens = (best[..., None] * chunk + torch.arange(chunk, device=device)).flatten(-2)
    return tokens, torch.arange(tokens.shape[-1], device=device) < begin[:, None] * chunk


class Full:
    """Attention to all tokens before."""

    def __call__(self, q, k, v, cos, sin):
        return causal(rotate(q, cos, sin), rotate(k, cos, sin), v)


@dataclasses.dataclass(frozen=True)
class FullAndRetrieval:
    """Of a batch whose second half repeats the first: attention to all tokens before, and as over a
    retrieval cache. A token of the second half sees itself and the tokens before it that are not
    verified yet, `fresh` in all, by keys and values of the second half; by those of the first, which
    is the full pass, the others of its block, and of the blocks before `budget` tokens. These are
    chunks of `chunk` tokens, chosen per head by mean keys with the last query before the block;
    chunk 0 is always among them. Where `unforeseen` is a list, each layer appends its unforeseen_by()."""

    budget: int
    chunk: int = CHUNK
    block: int = 64
    fresh: int = 4
    unforeseen: list = None

    def cached(self, q, k):
        """q, k [batch, head, length, dim], rotated -> the tokens that each block has cached,
        [batch, head, blocks, budget], and which of them there are, [blocks, budget]: the best come
        first, and none of them lies in the block or after it."""
        return best_chunks(*self._scores(q, k), self.chunk, self.budget)

    def _scores(self, q, k):
        """Of each block's last query before it by mean keys, [batch, head, blocks, chunks]; and how many
        chunks there are before the block, [blocks]."""
        length = q.shape[2]
        blocks, chunks = length // self.block, length // self.chunk
        means = k.float().unflatten(2, (chunks, self.chunk)).mean(3)
        query = torch.cat((q[:, :, :1], q[:, :, self.block - 1:-1:self.block]), 2).float()
        begin = torch.arange(blocks, device=q.device) * (self.block // self.chunk)
        return precise_product(query, means.transpose(-1, -2)), begin

    def unforeseen_by(self, q, k):
        """How ill the last query before a block tells which chunks before it, but chunk 0, the block's
        queries attend to: the KL of their mean attention to the softmax of the scores by which chunks
        are chosen, times their share of attention that falls there; a mean over heads and all blocks
        but the first. Only every UNFORESEEN_EVERY-th query is asked, and only the scores learn."""
        scores, begin = self._scores(q, k)
        chunk = torch.arange(scores.shape[-1], device=q.device)
        left_out = (chunk == 0) | (chunk >= begin[1:, None])
        foretold = (scores[:, :, 1:] * q.shape[-1] ** -0.5).masked_fill(left_out, -torch.inf)
        foretold = foretold.log_softmax(-1)
        with torch.no_grad():
            every = slice(UNFORESEEN_EVERY - 1, None, UNFORESEEN_EVERY)
            token = torch.arange(q.shape[2], device=q.device)
            attention = precise_product(q[:, :, every], k.transpose(-1, -2)) * q.shape[-1] ** -0.5
            attention = attention.masked_fill(token > token[every, None], -torch.inf).softmax(-1)
            attention = attention.unflatten(-1, (-1, self.chunk)).sum(-1)
            attention = attention.unflatten(2, (len(begin), -1)).mean(3)[:, :, 1:]
            attention = attention.masked_fill(left_out, 0.0)
            share = attention.sum(-1, keepdim=True).clamp(min=1e-9)
            known = attention * (attention / share).clamp(min=1e-9).log()
        crossed = attention * foretold.masked_fill(left_out, 0.0)
        return (known - crossed).sum(-1).mean()

    def _over_cache(self, q, k, v, own_q, own_k, own_v):
        """A block's keys are those cached, those of the block in the full pass, and its own."""
        tokens, there = self.cached(q.detach(), k.detach())
        index = tokens.flatten(2)[..., None].expand(-1, -1, -1, q.shape[-1])
        blocks = [t.unflatten(2, (-1, self.block)) for t in (k, own_k, v, own_v)]
        keys, values = (
            torch.cat((t.gather(2, index).view(*tokens.shape, -1), *of_block), 3).flatten(0, 1)
            for t, of_block in ((k, blocks[:2]), (v, blocks[2:])))
        token = torch.arange(self.block, device=q.device)
        back = token[:, None] - token
        own = torch.cat((back >= self.fresh, (back >= 0) & (back < self.fresh)), -1)
        seen = torch.cat((there[:, None].expand(-1, self.block, -1), own.expand(len(there), -1, -1)), -1)
        queries = own_q.unflatten(2, (-1, self.block)).flatten(0, 1)
        mixed = masked(queries, keys, values, seen)
        return mixed.flatten(1, 2).view_as(own_q)

    def __call__(self, q, k, v, cos, sin):
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        (q, own_q), (k, own_k), (v, own_v) = (t.chunk(2) for t in (q, k, v))
        full = causal(q, k, v)
        if self.unforeseen is not None:
            self.unforeseen.append(self.unforeseen_by(q, k))
        return torch.cat((full, self._over_cache(q, k, v, own_q, own_k, own_v)))


@dataclasses.dataclass(frozen=True)
class Streaming:
    """Attention as with the drafter's streaming cache of `budget` tokens: the first SINKS tokens and
    the most recent others, itself included; positions are slots of the cache, so a query is never
    more than budget - 1 away from the first token."""

    budget: int

    def __call__(self, q, k, v, cos, sin):
        length = q.shape[2]
        token = torch.arange(length, device=q.device)
        slot = token.clamp(max=self.budget - 1)
        distance = token[:, None] - token
        sink = token < SINKS
        seen = (distance >= 0) & (sink | (distance < self.budget - SINKS))
        rotated_k = rotate(k, cos, sin).transpose(-1, -2)
        recent = rotate(q, cos, sin) @ rotated_k
        first = rotate(q, cos[..., slot, :], sin[..., slot, :]) @ rotated_k
        scores = torch.where(sink, first, recent).float() / q.shape[-1] ** 0.5
        return scores.masked_fill(~seen, -torch.inf).softmax(-1).to(v.dtype) @ v


def products(x, *layers):
    """What each of the linear layers makes of x, by one product with all their weights."""
    weights = [layer.weight for layer in layers]
    return F.linear(x, torch.cat(weights)).split([len(w) for w in weights], -1)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        size = shape.hidden_size
        self.heads = shape.num_attention_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(size, size, bias=False))

    def project(self, x):
        """x [batch, length, size] -> q, k, v [batch, head, length, dim]."""
        return (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for t in products(x, self.q_proj, self.k_proj, self.v_proj))

    def forward(self, x, cos, sin, pattern):
        mixed = pattern(*self.project(x), cos, sin)
        return self.o_proj(mixed.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        size, inner = shape.hidden_size, shape.intermediate_size
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x):
        gate, up = products(x, self.gate_proj, self.up_proj)
        return self.down_proj(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.self_attn, self.mlp = Attention(shape), Mlp(shape)
        self.input_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x, cos, sin, pattern):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, pattern)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)


class Llama(nn.Module):
    """Parameter names are those of a Hugging Face Llama checkpoint."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.model = shape, Body(shape)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * shape.num_hidden_layers) if last else 1))

    def hidden(self, ids, cos, sin, pattern=Full()):
        """ids [batch, length] at the positions whose rows cos and sin hold, [length, head_dim] or
        [batch, 1, length, head_dim] -> what lm_head reads, [batch, length, size]."""
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, cos, sin, pattern)
        return self.model.norm(x)

    def forward(self, ids, cos, sin, pattern=Full()):
        """As hidden(), but -> logits [batch, length, vocab]."""
        return self.lm_head(self.hidden(ids, cos, sin, pattern))

    @staticmethod
    def load(folder):
        """Of a folder as save() writes it; BadInput where it is of another architecture."""
        folder = pathlib.Path(folder)
        try:
            config = json.loads((folder / "config.json").read_text())
            model = Llama(Shape.from_config(config))
            weights = load_file(str(folder / "model.safetensors"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise BadInput(f"{folder}: expected a Llama of this project's shape, found: {error}") from error
        expected, found = ({name: list(t.shape) for name, t in tensors.items()}
                           for tensors in (model.state_dict(), weights))
        for name in sorted(expected | found):
            if expected.get(name) != found.get(name):
                raise BadInput(f"{folder}/model.safetensors: {name}: expected {expected.get(name, 'none')}, "
                               f"found {found.get(name, 'none')}")
        model.load_state_dict({k: v.float() for k, v in weights.items()})
        return model

    def save(self, folder, tokenizer):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {k: v.detach().half().cpu().contiguous() for k, v in self.state_dict().items()}
        save_file(weights, str(folder / "new.safetensors"), metadata={"format": "pt"})
        os.chmod(folder / "new.safetensors", 0o644)
        os.replace(folder / "new.safetensors", folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(self.shape.to_config(), indent=2) + "\n")
        if pathlib.Path(tokenizer).resolve() != (folder / "tokenizer.model").resolve():
            shutil.copyfile(tokenizer, folder / "tokenizer.model")
