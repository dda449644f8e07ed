"""What the drafter learns from: the target as the inner level of TriForce uses it."""

import torch
import torch.nn.functional as F

from .model import SINKS, rope_tables, rotate


class RetrievalTeacher:
    """The target with its retrieval cache. A prompt is read once with full attention; `anchors`
    places of it are then treated as if the prompt ended there: the chunks before the place are
    ranked by their mean keys against its last query, and the `follow` tokens after it see `budget`
    tokens of the best chunks and each other. Keys and values are those of the full cache, which the
    engine's retrieval cache also takes from verified tokens."""

    def __init__(self, model, longest, budget, chunk=8, follow=96):
        self.model, self.budget, self.chunk = model, budget, chunk
        self.follow = follow
        device = next(model.parameters()).device
        self.cos, self.sin = (t.to(device) for t in rope_tables(model.shape, longest))

    @torch.no_grad()
    def __call__(self, ids, places):
        """ids [length], places [anchors] (multiples of the chunk) -> logits [anchors, follow, vocab] for the token after each
        of ids[place : place + follow]."""
        model, length = self.model.model, len(ids)
        places = torch.as_tensor(places, device=ids.device)
        index = places[:, None] + torch.arange(self.follow, device=ids.device)
        cos, sin = self.cos[:length], self.sin[:length]
        x = model.embed_tokens(ids)[None]
        y = model.embed_tokens(ids[index])
        for layer in model.layers:
            q, k, v = self._project(layer, x)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            own, _, _ = self._project(layer, y)
            own = rotate(own, cos[index][:, None], sin[index][:, None])
            mixed = self._over_cache(own, q[0], k[0], v[0], places, index)
            y = self._finish(layer, y, mixed)
            if layer is not model.layers[-1]:
                x = self._finish(layer, x, F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return self.model.lm_head(model.norm(y))

    def _cached(self, q, k, places):
        """q, k [head, length, dim] of the whole text -> the tokens cached at each place,
        [anchors, head, budget], and which of them there are, of the same shape."""
        chunk = self.chunk
        whole = k.shape[1] // chunk
        means = k[:, :whole * chunk].float().unflatten(1, (whole, chunk)).mean(2)
        scores = torch.einsum("had,hcd->ahc", q[:, places - 1].float(), means)
        scores[:, :, 0] = torch.inf
        after = torch.arange(whole, device=k.device) >= (places // chunk)[:, None]
        scores = scores.masked_fill(after[:, None], -torch.inf)
        best = scores.topk(self.budget // chunk, -1)
        tokens = best.indices[..., None] * chunk + torch.arange(chunk, device=k.device)
        return tokens.flatten(2), (best.values > -torch.inf).repeat_interleave(chunk, -1)

    def _over_cache(self, own, q, k, v, places, index):
        """own [anchors, head, follow, dim]; q, k, v [head, length, dim] of the whole text."""
        follow = self.follow
        tokens, there = self._cached(q, k, places)
        tokens = torch.cat((tokens, index[:, None].expand(-1, k.shape[0], -1)), 2)
        seen = there[:, :, None].expand(-1, -1, follow, -1)
        of_follow = torch.ones(follow, follow, dtype=torch.bool, device=k.device).tril()
        mask = torch.cat((seen, of_follow.expand(*seen.shape[:2], -1, -1)), -1)
        head = torch.arange(k.shape[0], device=k.device)[None, :, None]
        return F.scaled_dot_product_attention(own, k[head, tokens], v[head, tokens], attn_mask=mask)

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
