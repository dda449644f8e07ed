"""What the drafter learns from: the target as the inner level of TriForce uses it."""

import torch
import torch.nn.functional as F

from .model import CHUNK, SINKS, best_chunks, rope_tables, rotate

TOP_P = 0.9  # of what is written


def probs_of(logits, temperature, top_p):
    """Logits [..., vocab] -> probs; the fewest of the most probable tokens that have top_p together."""
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    probs, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
    probs = probs.where(probs.cumsum(-1) - probs < top_p, 0.0)
    return torch.zeros_like(probs).scatter(-1, order, probs / probs.sum(-1, keepdim=True))


def attention_of_one(q, k, v, seen):
    """As masked(), of one query each, q [..., 1, dim], seen [..., 1, m]: of vectors, without a matrix product.
    Compiled it reads keys and values at the speed of memory, six times PyTorch's own on a CPU in bf16."""
    scores = (k * q).float().sum(-1) * q.shape[-1] ** -0.5
    shares = scores.masked_fill(~seen[..., 0, :], -torch.inf).softmax(-1)
    return (shares[..., None] * v).sum(-2, keepdim=True).to(v.dtype)


class RetrievalTeacher:
    """The target with its retrieval cache. A prompt is read once with full attention; `anchors`
    places of it are then treated as if the prompt ended there: the chunks before the place are
    ranked by their mean keys against its last query, and the `follow` tokens after it see `budget`
    tokens of the best chunks and each other. Keys and values are those of the full cache, which the
    engine's retrieval cache also takes from verified tokens.

    Places [anchors] are multiples of the chunk."""

    def __init__(self, model, longest, budget, chunk=CHUNK, follow=96, compile_=lambda f: f):
        self.model, self.budget, self.chunk = model, budget, chunk
        self.follow = follow
        self.attention_of_one = compile_(attention_of_one)
        self.device = next(model.parameters()).device
        self.cos, self.sin = (t.to(self.device) for t in rope_tables(model.shape, longest))

    @torch.no_grad()
    def __call__(self, ids, places):
        """ids [length], places -> logits [anchors, follow, vocab] for the token after each of
        ids[place : place + follow]."""
        places = torch.as_tensor(places, device=self.device)
        tokens = ids[places[:, None] + torch.arange(self.follow, device=self.device)]
        return self._answer(self._read(ids, places), tokens, places, 0)

    @torch.no_grad()
    def write(self, ids, places, temperatures):
        """The same logits, but only the first token after a place is the text's; the others are drawn from
        these logits, at the place's one of temperatures [anchors] and TOP_P. Also the tokens,
        [anchors, follow + 1]."""
        places = torch.as_tensor(places, device=self.device)
        caches = self._read(ids, places)
        tokens, logits = [ids[places]], []
        for i in range(self.follow):
            logits.append(self._answer(caches, tokens[-1][:, None], places, i)[:, 0])
            probs = probs_of(logits[-1].float() / temperatures[:, None], 1, TOP_P)
            tokens.append(probs.multinomial(1)[:, 0])
        return torch.stack(logits, 1), torch.stack(tokens, 1)

    def _read(self, ids, places):
        """Per layer the cache of each place: keys and values [anchors, head, budget + follow, dim], those of
        `follow` tokens still to come, and which of the first `budget` there are, [anchors, head, budget]."""
        length = len(ids)
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.model.model.embed_tokens(ids)[None]
        head = torch.arange(self.model.shape.num_attention_heads, device=ids.device)[None, :, None]
        caches = []
        for layer in self.model.model.layers:
            q, k, v = self._project(layer, x)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            tokens, there = self._cached(q[0], k[0], places)
            caches.append((*(F.pad(t[0][head, tokens], (0, 0, 0, self.follow)) for t in (k, v)), there))
            if layer is not self.model.model.layers[-1]:
                x = self._finish(layer, x, F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return caches

    def _answer(self, caches, tokens, places, after):
        """Logits [anchors, n, vocab] of tokens [anchors, n], which lie `after` tokens after the places; their
        keys and values come into the caches."""
        own = torch.arange(after, after + tokens.shape[1], device=tokens.device)
        cos, sin = (t[places[:, None] + own][:, None] for t in (self.cos, self.sin))
        not_later = torch.arange(self.follow, device=tokens.device) <= own[:, None]
        attention = self.attention_of_one if len(own) == 1 else F.scaled_dot_product_attention
        x = self.model.model.embed_tokens(tokens)
        for layer, (keys, values, there) in zip(self.model.model.layers, caches):
            q, k, v = self._project(layer, x)
            q, keys[:, :, self.budget + own] = rotate(q, cos, sin), rotate(k, cos, sin)
            values[:, :, self.budget + own] = v
            seen = torch.cat((there[:, :, None].expand(-1, -1, len(own), -1),
                              not_later.expand(*there.shape[:2], -1, -1)), -1)
            x = self._finish(layer, x, attention(q, keys, values, seen))
        return self.model.lm_head(self.model.model.norm(x))

    def _cached(self, q, k, places):
        """q, k [head, length, dim] of the whole text -> the tokens cached at each place,
        [anchors, head, budget], and which of them there are, of the same shape."""
        chunks = k.shape[1] // self.chunk
        means = k[:, :chunks * self.chunk].float().unflatten(1, (chunks, self.chunk)).mean(2)
        scores = q[:, places - 1].float() @ means.transpose(-1, -2)
        tokens, there = best_chunks(scores, places // self.chunk, self.chunk, self.budget)
        return tokens.transpose(0, 1), there[:, None].expand(-1, len(q), -1)

    def _project(self, layer, x):
        return layer.self_attn.project(layer.input_layernorm(x))

    def _finish(self, layer, x, mixed):
        x = x + layer.self_attn.o_proj(mixed.transpose(1, 2).reshape(x.shape))
        return x + layer.mlp(layer.post_attention_layernorm(x))


class RecentTeacher(RetrievalTeacher):
    """The same with the first SINKS tokens and a recent window in the place of the chunks, at their
    positions in the text, as what it is compared with."""

    def _cached(self, q, k, places):
        sinks = torch.arange(SINKS, device=k.device).expand(len(places), -1)
        recent = places[:, None] + torch.arange(SINKS - self.budget, 0, device=k.device)
        tokens = torch.cat((sinks, recent), 1)[:, None].expand(-1, k.shape[0], -1)
        there = torch.arange(self.budget, device=k.device) < SINKS
        return tokens.clamp(min=0), there | (tokens >= SINKS)
