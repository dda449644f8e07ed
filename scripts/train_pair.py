#!/usr/bin/env python3
"""Trains the built-in pair: a small Llama target with YaRN and a smaller drafter, on CPU or GPU.

    train_pair.py target --books BOOKS --synthesize build/triforce-synthesize --out DIR --minutes 60
    train_pair.py draft  --books BOOKS --synthesize build/triforce-synthesize --out DIR --minutes 30 \\
        --distill DIR/target

BOOKS is a folder or a .tar.xz of plain-text files; one book in 25 (by the hash of its name) is held
out. The other half of the text are synthetic documents made on the fly. Results are Hugging Face
folders (config.json, model.safetensors in f16, tokenizer.model) in DIR/target and DIR/draft, written
again every few minutes beside a checkpoint, from which --resume goes on. evaluate_pair.py measures
them. Needs torch, numpy, safetensors and sentencepiece.
"""

import argparse
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import sentencepiece
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

BOS = 1
SINKS = 16  # tokens of the start of the text that the drafter's cache always keeps


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
DRAFT = Shape(128, 2, 2, 352)


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
    a, b = x.float().chunk(2, -1)
    return x.float() * cos + torch.cat((-b, a), -1) * sin


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


@dataclasses.dataclass(frozen=True)
class Sparse:
    """Attention as with a retrieval cache: the tokens of a block see their own block and, of all
    before it, `budget` tokens in chunks, chosen per head by mean keys with the last query before the
    block; chunk 0 is always among them."""

    budget: int
    chunk: int = 8
    block: int = 128

    def mask(self, q, k):  # [batch, head, length, dim] -> bool [batch, head, length, length]
        length = q.shape[2]
        blocks, chunks = length // self.block, length // self.chunk
        means = k.float().unflatten(2, (chunks, self.chunk)).mean(3)
        query = torch.cat((q[:, :, :1], q[:, :, self.block - 1:-1:self.block]), 2).float()
        scores = query @ means.transpose(-1, -2)  # [batch, head, blocks, chunks]
        begin = torch.arange(blocks)[:, None] * (self.block // self.chunk)
        future = torch.arange(chunks) >= begin
        scores = scores.masked_fill(future, -torch.inf)
        scores[..., 1:, 0] = torch.inf
        least = scores.topk(min(self.budget // self.chunk, chunks), -1).values[..., -1:]
        seen = (scores >= least) & ~future
        seen = seen.repeat_interleave(self.chunk, -1).repeat_interleave(self.block, -2)
        token = torch.arange(length)
        same = token[:, None] // self.block == token // self.block
        return seen | (same & (token <= token[:, None]))


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        size = shape.hidden_size
        self.heads = shape.num_attention_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(size, size, bias=False))

    def forward(self, x, cos, sin, sparse=None):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, self.heads, -1).transpose(1, 2)
                   for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        if sparse is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = sparse.mask(q.detach(), k.detach())
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        size, inner = shape.hidden_size, shape.intermediate_size
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.self_attn, self.mlp = Attention(shape), Mlp(shape)
        self.input_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x, cos, sin, sparse):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, sparse)
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

    def forward(self, ids, cos, sin, sparse=None):  # [batch, length] -> [batch, length, vocab]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, cos, sin, sparse)
        return self.lm_head(self.model.norm(x))

    @staticmethod
    def load(folder):
        folder = pathlib.Path(folder)
        model = Llama(Shape.from_config(json.loads((folder / "config.json").read_text())))
        weights = load_file(str(folder / "model.safetensors"))
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


class Texts:
    """Token windows from books and synthetic documents, half and half by default."""

    def __init__(self, args, tokenizer, held_out=False, seed=0):
        self.sp = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
        self.synthesize, self.share = args.synthesize, args.synthetic_share
        self.random = np.random.default_rng(seed)
        # Training draws document seeds above 2^32; the program and the evaluation use small ones.
        self.seed = 7 if held_out else int(self.random.integers(1 << 32, 1 << 40))
        self.next_document = 0
        self.books = self._tokens(args, tokenizer, "held" if held_out else "train")

    def _tokens(self, args, tokenizer, part):
        key = hashlib.sha256(pathlib.Path(tokenizer).read_bytes()).hexdigest()[:8]
        path = pathlib.Path(args.out) / f"books-{part}-{key}.bin"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            ids = {"train": [], "held": []}
            for name, text in read_books(args.books):
                held = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 25 == 0
                ids["held" if held else "train"] += [BOS] + self.sp.encode(text, num_threads=args.threads)
            for p, tokens in ids.items():
                np.array(tokens, dtype=np.uint16).tofile(path.with_name(f"books-{p}-{key}.bin"))
        return np.memmap(path, dtype=np.uint16, mode="r")

    def book(self, length):
        at = int(self.random.integers(0, len(self.books) - length))
        window = self.books[at:at + length].astype(np.int64)
        window[0] = BOS  # every prompt begins with it
        return window

    def documents(self, count, length):
        size = 3 * length + 2048  # about 2.6 bytes a token
        command = [self.synthesize, "--seed", self.seed, "--first", self.next_document,
                   "--count", max(count, 2), "--bytes", size]
        self.next_document += max(count, 2)
        out = subprocess.run([str(a) for a in command], check=True, stdout=subprocess.PIPE).stdout
        rows = []
        for text in out.decode("ascii").split("\0")[:count]:
            ids = [BOS] + self.sp.encode(text)
            assert len(ids) >= length, (len(ids), length)
            rows.append(np.array(ids[:length], dtype=np.int64))
        return rows

    def batch(self, rows, length):
        n = sum(self.random.random() < self.share for _ in range(rows))
        windows = (self.documents(n, length) if n else []) + [self.book(length) for _ in range(rows - n)]
        return torch.from_numpy(np.stack(windows))


def read_books(source):
    """Yields (file name, text) of every .txt in a folder or a tar archive, sorted by name."""
    source = pathlib.Path(source)
    if source.is_dir():
        for path in sorted(source.rglob("*.txt")):
            yield path.name, path.read_text(encoding="utf-8", errors="replace")
        return
    with tarfile.open(source) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if member.isfile() and member.name.endswith(".txt"):
                text = archive.extractfile(member).read().decode("utf-8", errors="replace")
                yield os.path.basename(member.name), text


def train_tokenizer(args, path):
    corpus = path.with_suffix(".txt")
    with open(corpus, "w", encoding="utf-8") as f:
        for _, text in read_books(args.books):
            f.write(text)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(path.with_suffix("")), vocab_size=TARGET.vocab_size,
        model_type="bpe", byte_fallback=True, bos_id=BOS, eos_id=2, unk_id=0, pad_id=-1,
        num_threads=args.threads, input_sentence_size=200000, shuffle_input_sentence=True)
    corpus.unlink()


class Optimizer:
    """AdamW for embeddings, head and norms; for the matrices of the layers momentum whose singular
    values are all brought near 1 (Muon, Jordan et al. 2024), which needs fewer tokens."""

    def __init__(self, model, rate):
        self.matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
        rest = [p for n, p in model.named_parameters() if not (p.dim() == 2 and "layers" in n)]
        self.adam = torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.momentum = [torch.zeros_like(p) for p in self.matrices]

    @staticmethod
    def orthogonal(m):
        """Five Newton-Schulz steps of the quintic with Jordan's coefficients; they need no more
        precision than bf16."""
        x = (m / (m.norm() + 1e-7)).bfloat16()
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return (x.T if tall else x).float()

    @torch.no_grad()
    def step(self, rate):
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        for p, m in zip(self.matrices, self.momentum):
            m.lerp_(p.grad, 0.05)
            update = self.orthogonal(p.grad.lerp(m, 0.95))
            p.mul_(1 - rate * 0.05)
            # The scale gives the update the root mean square of an Adam step.
            p.add_(update, alpha=-rate * 0.2 * math.sqrt(max(p.shape)))

    def state(self):
        return {"adam": self.adam.state_dict(), "momentum": self.momentum}

    def load(self, state):
        self.adam.load_state_dict(state["adam"])
        self.momentum = state["momentum"]


def target_loss(model, ids, cos, sin, sparse):
    logits = model(ids[:, :-1], cos, sin, sparse).float()
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def draft_loss(model, ids, cos, sin, teacher):
    """Cross-entropy with the text, KL to the target's law, and the share of proposals the target
    would reject at temperature 0.6, since that is what the drafter is for. The first SINKS rows of a
    window are followed by a jump in the text and carry no loss."""
    logits = model(ids[:, :-1], cos, sin).float()[:, SINKS:].flatten(0, 1)
    text = F.cross_entropy(logits, ids[:, SINKS + 1:].flatten())
    if teacher is None:
        return text
    teacher = teacher[:, SINKS:].flatten(0, 1).float()
    kl = F.kl_div(logits.log_softmax(-1), teacher.log_softmax(-1), log_target=True,
                  reduction="batchmean")
    overlap = torch.minimum((logits / 0.6).softmax(-1), (teacher / 0.6).softmax(-1)).sum(-1).mean()
    return 0.2 * text + kl + (1 - overlap)


def draft_windows(ids, teacher_logits, length, count, random):
    """Cuts `count` windows per row as the streaming cache sees them: the first SINKS tokens, then
    consecutive tokens from a random place, `length` in all. Returns ids and the target's logits."""
    rows, laws = [], []
    for row in range(ids.shape[0]):
        for _ in range(count):
            at = int(random.integers(SINKS, ids.shape[1] - (length - SINKS)))
            index = torch.cat((torch.arange(SINKS), torch.arange(at, at + length - SINKS)))
            rows.append(ids[row, index])
            if teacher_logits is not None:
                laws.append(teacher_logits[row, index[:-1]])
    return torch.stack(rows), torch.stack(laws) if laws else None


class Trainer:
    def __init__(self, args):
        self.args, self.folder = args, pathlib.Path(args.out) / args.which
        self.checkpoint = pathlib.Path(args.out) / f"{args.which}-checkpoint.pt"
        self.tokenizer = pathlib.Path(args.tokenizer or pathlib.Path(args.out) / "tokenizer.model")
        if not self.tokenizer.exists():
            train_tokenizer(args, self.tokenizer)
        shape = TARGET if args.which == "target" else DRAFT
        self.model = Llama.load(args.init) if args.init else Llama(shape)
        self.teacher = Llama.load(args.distill).eval() if args.distill else None
        self.optimizer = Optimizer(self.model, args.rate)
        self.done = {"step": 0, "tokens": 0, "seconds": 0.0}
        if args.resume and self.checkpoint.exists():
            state = torch.load(self.checkpoint, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load(state["optimizer"])
            self.done = state["done"]
        self.texts = Texts(args, self.tokenizer, seed=args.seed + self.done["step"])
        compiled = (lambda f: torch.compile(f, dynamic=False)) if args.compile else (lambda f: f)
        self.loss = compiled(target_loss if args.which == "target" else draft_loss)
        self.teach = compiled(lambda *a: self.teacher(*a).bfloat16())
        self.tables = {}

    def rope(self, shape, length):
        key = (shape.yarn_factor, length)
        if key not in self.tables:
            self.tables[key] = rope_tables(shape, length)
        return self.tables[key]

    def length_now(self, fraction):
        """--lengths 1024:0.3,2048:0.7 is a length and its share of the time, in order."""
        for part in self.args.lengths.split(","):
            length, share = part.split(":")
            fraction -= float(share)
            if fraction < 0:
                break
        return int(length)

    def batch_loss(self, length):
        rows = max(1, self.args.batch_tokens // length)
        ids = self.texts.batch(rows, length + 1)
        if self.args.which == "target":
            # Some steps see only what a retrieval cache would hold, so that what the model looks for
            # from afar can be found from one query.
            sparse = None
            if length <= 4096 and self.texts.random.random() < self.args.sparse_share:
                sparse = Sparse(min(256, length // 8))
            loss = self.loss(self.model, ids, *self.rope(self.model.shape, length), sparse)
            return loss, rows * length
        logits = None
        if self.teacher:
            with torch.no_grad():
                logits = self.teach(ids[:, :-1], *self.rope(self.teacher.shape, length))
        window = self.args.draft_window
        cut = ids if logits is None else ids[:, :-1]
        windows, laws = draft_windows(cut, logits, window + 1, max(1, length // window),
                                      self.texts.random)
        loss = self.loss(self.model, windows, *self.rope(self.model.shape, window), laws)
        return loss, windows.numel()

    def run(self):
        total, done = self.args.minutes * 60, self.done
        mean, last, said = None, time.time(), 0.0
        saved = done["seconds"]
        stop = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.append(True))
        while done["seconds"] < total and not stop:
            fraction = done["seconds"] / total
            rate = self.args.rate * min(1, (done["step"] + 1) / 50)
            rate *= 0.03 + 0.97 * min(1.0, (1 - fraction) / 0.5)  # constant, then linear to 3%
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss, tokens = self.batch_loss(self.length_now(fraction))
            self.model.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step(rate)
            now = time.time()
            done["step"] += 1
            done["tokens"] += tokens
            done["seconds"] += now - last
            last = now
            mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
            if done["seconds"] - said > 30:
                said = done["seconds"]
                print(f"{self.args.which} step {done['step']} tokens {done['tokens'] / 1e6:.2f}M "
                      f"loss {mean:.3f} rate {rate:.1e} length {self.length_now(fraction)} "
                      f"{done['tokens'] / done['seconds']:.0f} tokens/s {said / 60:.1f} min",
                      flush=True)
            if done["seconds"] - saved > self.args.save_every * 60:
                saved = done["seconds"]
                self.save()
        self.save()

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state(),
                 "done": self.done}
        torch.save(state, self.checkpoint.with_suffix(".new"))
        os.replace(self.checkpoint.with_suffix(".new"), self.checkpoint)
        self.model.save(self.folder, self.tokenizer)


def add_data_options(parser):
    parser.add_argument("--books", required=True, help="folder or .tar.xz of plain-text books")
    parser.add_argument("--synthesize", required=True, help="the triforce-synthesize program")
    parser.add_argument("--out", required=True, help="folder of results, checkpoints and token files")
    parser.add_argument("--tokenizer", help="tokenizer.model; trained on the books when absent")
    parser.add_argument("--synthetic-share", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("target", "draft"))
    add_data_options(parser)
    parser.add_argument("--init", help="folder of weights to start from")
    parser.add_argument("--distill", help="target folder: the drafter also learns its laws")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1.5e-3, help="peak learning rate")
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--lengths", default="1024:0.3,2048:0.5,4096:0.15,8192:0.05",
                        help="LENGTH:SHARE of the time, ... in order")
    parser.add_argument("--sparse-share", type=float, default=0.0,
                        help="share of the target's steps with attention as a retrieval cache gives")
    parser.add_argument("--draft-window", type=int, default=256)
    parser.add_argument("--save-every", type=float, default=3, help="minutes")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    args = parser.parse_args()
    if args.distill and args.which != "draft":
        parser.error("--distill is for the drafter")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    Trainer(args).run()


if __name__ == "__main__":
    sys.exit(main())
