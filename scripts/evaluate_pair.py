#!/usr/bin/env python3
"""Measures a target and drafter trained by train_pair.py, by a plain PyTorch emulation of the caches.

    evaluate_pair.py --target DIR --draft DIR --books BOOKS --synthesize build/triforce-synthesize --out DIR

Prints, as JSON lines, for synthetic documents and for held-out books: the loss at two lengths (nats per
token; and over the last quarter), and on prompts of --prompt tokens the overlap sum(min(p, q)) per
token, that is, the chance that a token proposed from law q is accepted under law p, of
  retrieval   target, full cache against a retrieval cache chosen once by mean keys
  every16     the same, chosen again every 16 tokens
  attention   chosen again every 7 tokens by the attention mass the full cache saw
  streaming   target, full cache against 16 sinks and recent tokens, keys rotated by slot
  draft       drafter in its 256-token window against the law of `retrieval`
  naive       the drafter against the full cache
The continuation is sampled from the full cache's law. All caches take their rows from the full
cache; the drafter recomputes its window.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

import train_pair
from train_pair import SINKS, Llama, Texts, rope_tables, rotate


def law(logits, temperature, top_p):
    """The probabilities a token is drawn from: temperature, then the smallest set of at least top_p."""
    p = (logits.float() / temperature).softmax(-1)
    ordered, index = torch.sort(p, dim=-1, descending=True, stable=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= top_p, 0)
    p = torch.zeros_like(p).scatter(-1, index, ordered)
    return p / p.sum(-1, keepdim=True)


class Decoder:
    """One target over one text: keys [layer][head, token, dim] unrotated and rotated, and values."""

    def __init__(self, model, capacity, budget, chunk):
        shape = model.shape
        self.model, self.budget, self.chunk = model, budget, chunk
        self.cos, self.sin = rope_tables(shape, capacity)
        size = (shape.num_hidden_layers, shape.num_attention_heads, capacity, shape.head_dim)
        self.raw, self.rotated, self.values = (torch.zeros(size) for _ in range(3))
        self.length, self.prompt = 0, 0

    def project(self, layer, x):
        attention = layer.self_attn
        h = layer.input_layernorm(x)
        return [f(h).view(x.shape[0], attention.heads, -1).transpose(0, 1)
                for f in (attention.q_proj, attention.k_proj, attention.v_proj)]

    def finish(self, layer, x, mixed):
        x = x + layer.self_attn.o_proj(mixed.transpose(0, 1).reshape(x.shape[0], -1))
        return x + layer.mlp(layer.post_attention_layernorm(x))

    def prefill(self, ids):
        n = len(ids)
        self.length = self.prompt = n
        self.queries = []
        x = self.model.model.embed_tokens(ids)
        for i, layer in enumerate(self.model.model.layers):
            q, k, v = self.project(layer, x)
            q, rotated = (rotate(t, self.cos[:n], self.sin[:n]) for t in (q, k))
            self.raw[i, :, :n], self.rotated[i, :, :n], self.values[i, :, :n] = k, rotated, v
            self.queries.append(q[:, -1])
            x = self.finish(layer, x, F.scaled_dot_product_attention(q[None], rotated[None], v[None],
                                                                     is_causal=True)[0])
        return self.model.lm_head(self.model.model.norm(x[-1]))

    def step(self, token, cache):
        """Logits after `token`, whose row is not yet stored, with the rows that `cache(layer, q, k,
        v)` -> (q, keys, values) gives. Rows are kept only by the full cache."""
        x = self.model.model.embed_tokens(token.view(1))
        for i, layer in enumerate(self.model.model.layers):
            q, k, v = self.project(layer, x)
            q, keys, values = cache(i, q, k, v)
            weights = (q @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
            if cache == self.full:
                self.mass[i] += self.chunk_sums(weights[:, 0, : self.prompt])
            x = self.finish(layer, x, weights @ values)
        return self.model.lm_head(self.model.model.norm(x[0]))

    def chunk_sums(self, rows):  # [head, prompt tokens] -> [head, chunks]
        whole = rows.shape[-1] // self.chunk * self.chunk
        return rows[:, :whole].reshape(rows.shape[0], -1, self.chunk).sum(-1)

    def at(self, x, position):
        return rotate(x, self.cos[position], self.sin[position])

    def full(self, i, q, k, v):
        n = self.length
        rotated = self.at(k, n)
        self.raw[i, :, n], self.rotated[i, :, n], self.values[i, :, n] = k[:, 0], rotated[:, 0], v[:, 0]
        self.queries[i] = self.at(q, n)[:, 0]
        return self.at(q, n), self.rotated[i, :, : n + 1], self.values[i, :, : n + 1]

    def select(self, scores):
        """scores [layer][head, chunks] -> token indices, chunk 0 first, then by relevance."""
        picked = []
        for s in scores:
            s = s.clone()
            s[:, 0] = float("inf")
            chunks = s.topk(self.budget // self.chunk, -1).indices
            picked.append((chunks[..., None] * self.chunk + torch.arange(self.chunk)).flatten(1))
        return picked

    def mean_key_scores(self):
        chunks = self.prompt // self.chunk
        keys = self.rotated[:, :, : chunks * self.chunk].unflatten(2, (chunks, self.chunk)).mean(3)
        return [torch.einsum("hd,hcd->hc", q, keys[i]) for i, q in enumerate(self.queries)]

    def retrieval(self, selection):
        """Generated tokens overwrite the least relevant end."""
        def cache(i, q, k, v):
            n, made = self.length, self.length - self.prompt
            keep = selection[i][:, : self.budget - made]
            index = keep[..., None].expand(-1, -1, q.shape[-1])
            def rows(store, new):
                return torch.cat((store[i].gather(1, index), store[i, :, self.prompt:n], new), 1)
            return self.at(q, n), rows(self.rotated, self.at(k, n)), rows(self.values, v)
        return cache

    def streaming(self, i, q, k, v):
        n = self.length
        recent = max(SINKS, n - (self.budget - SINKS - 1))
        def rows(store, new):
            return torch.cat((store[i, :, :SINKS], store[i, :, recent:n], new), 1)
        keys = rows(self.raw, k)
        slots = keys.shape[1]
        return (self.at(q, slots - 1), rotate(keys, self.cos[:slots], self.sin[:slots]),
                rows(self.values, v))


def measure_overlaps(target, draft, ids, args, generator):
    decoder = Decoder(target, len(ids) + args.tokens + 1, args.budget, args.chunk)
    tables = rope_tables(draft.shape, args.draft_budget)
    names = ("retrieval", "every16", "attention", "streaming", "draft", "naive")
    sums = dict.fromkeys(names, 0.0)
    make_law = lambda logits: law(logits, args.temperature, args.top_p)
    logits = decoder.prefill(ids)
    scores = decoder.mean_key_scores()
    once = again = attention = decoder.select(scores)
    decoder.mass = [torch.zeros_like(s) for s in scores]
    text = ids
    token = torch.multinomial(make_law(logits), 1, generator=generator)
    for made in range(args.tokens):
        if made and made % 16 == 0:
            again = decoder.select(decoder.mean_key_scores())
        if made and made % 7 == 0:
            attention = decoder.select(decoder.mass)
            decoder.mass = [torch.zeros_like(s) for s in scores]
        text = torch.cat((text, token))
        q = {name: make_law(decoder.step(token, decoder.retrieval(selection)))
             for name, selection in (("retrieval", once), ("every16", again), ("attention", attention))}
        q["streaming"] = make_law(decoder.step(token, decoder.streaming))
        p = make_law(decoder.step(token, decoder.full))
        decoder.length += 1
        window = torch.cat((text[:SINKS], text[SINKS:][-(args.draft_budget - SINKS):]))[None]
        own = make_law(draft(window, *(t[: window.shape[1]] for t in tables))[0, -1])
        for name in ("retrieval", "every16", "attention", "streaming"):
            sums[name] += torch.minimum(p, q[name]).sum().item()
        sums["draft"] += torch.minimum(q["retrieval"], own).sum().item()
        sums["naive"] += torch.minimum(p, own).sum().item()
        token = torch.multinomial(p, 1, generator=generator)
    return {name: total / args.tokens for name, total in sums.items()}, text[len(ids):].tolist()


def held_loss(model, rows):
    cos, sin = rope_tables(model.shape, len(rows[0]) - 1)
    losses = []
    for row in rows:
        ids = torch.from_numpy(row)[None]
        losses.append(F.cross_entropy(model(ids[:, :-1], cos, sin)[0], ids[0, 1:], reduction="none"))
    losses = torch.stack(losses)
    return {"loss": round(losses.mean().item(), 4),
            "last_quarter": round(losses[:, -losses.shape[1] // 4:].mean().item(), 4)}


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    train_pair.add_data_options(parser)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--kinds", default="synthetic,books")
    parser.add_argument("--prompts", type=int, default=8, help="per kind of text")
    parser.add_argument("--prompt", type=int, default=8192, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens generated")
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=8)
    parser.add_argument("--draft-budget", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--loss-lengths", default="2048,8192")
    parser.add_argument("--show", action="store_true", help="print the continuations")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target, draft = Llama.load(args.target).eval(), Llama.load(args.draft).eval()
    generator = torch.Generator().manual_seed(args.seed)
    tokenizer = pathlib.Path(args.target) / "tokenizer.model"
    for kind in args.kinds.split(","):
        texts = Texts(args, tokenizer, held_out=True, seed=11)
        def rows(count, length):
            if kind == "synthetic":
                return texts.documents(count, length)
            return [texts.book(length) for _ in range(count)]
        for length in map(int, filter(None, args.loss_lengths.split(","))):
            result = held_loss(target, rows(max(2, 24576 // length), length + 1))
            print(json.dumps({"text": kind, "length": length, **result}), flush=True)
        result = held_loss(draft, [np.array(r) for r in rows(64, args.draft_budget + 1)])
        print(json.dumps({"text": kind, "drafter at": args.draft_budget, **result}), flush=True)
        found = []
        for row in rows(args.prompts, args.prompt):
            overlap, made = measure_overlaps(target, draft, torch.from_numpy(row), args, generator)
            found.append(overlap)
            if args.show:
                print(texts.sp.decode(made).encode("unicode_escape").decode(), overlap, flush=True)
        mean = {k: round(float(np.mean([f[k] for f in found])), 4) for k in found[0]}
        gap = np.array([f["retrieval"] - f["streaming"] for f in found])
        error = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else None
        print(json.dumps({"text": kind, "prompt": args.prompt, "prompts": len(found),
                          "tokens": args.tokens, "budget": args.budget, "overlap": mean,
                          "gap": round(float(gap.mean()), 4),
                          "gap_standard_error": error and round(float(error), 4)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
