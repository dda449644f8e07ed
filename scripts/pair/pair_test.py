"""The attention patterns and the drafter's teacher against token-by-token caches.

    cd scripts && python3 -m unittest pair.pair_test
"""

import unittest

import numpy as np
import torch

from .distill import RetrievalTeacher
from .model import SINKS, Full, Llama, Shape, Sparse, Streaming, rope_tables, rotate
from .texts import copy_distances

LENGTH = 256


class Patterns(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = Llama(Shape(32, 2, 2, 48, yarn_factor=16.0, vocab_size=64)).eval()
        for p in self.model.parameters():
            p.data *= 4 if p.dim() == 2 else 1  # so that attention is far from uniform
        self.ids = torch.randint(3, 64, (LENGTH,))
        self.tables = rope_tables(self.model.shape, LENGTH)

    @torch.no_grad()
    def logits(self, pattern=Full()):
        return self.model(self.ids[None], *self.tables, pattern)[0]

    def difference(self, a, b):
        return (a - b).abs().max().item()

    @torch.no_grad()
    def one_by_one(self, keep, slots):
        """Logits [LENGTH, vocab]: token n sees the tokens keep(n), the last of which is n, at their
        own positions or at 0, 1, 2, ... (slots)."""
        cos, sin = self.tables
        body, rows = self.model.model, []
        cache = [([], []) for _ in body.layers]
        for n in range(LENGTH):
            kept = keep(n)
            at = torch.arange(len(kept)) if slots else torch.tensor(kept)
            x = body.embed_tokens(self.ids[n:n + 1])[None]
            for layer, (keys, values) in zip(body.layers, cache):
                attention, h = layer.self_attn, layer.input_layernorm(x)
                q, k, v = (f(h).view(2, 1, 16)
                           for f in (attention.q_proj, attention.k_proj, attention.v_proj))
                keys.append(k)
                values.append(v)
                k = rotate(torch.cat([keys[i] for i in kept], 1), cos[at], sin[at])
                q = rotate(q, cos[at[-1:]], sin[at[-1:]])
                weights = (q @ k.transpose(-1, -2) / 4).softmax(-1)
                mixed = weights @ torch.cat([values[i] for i in kept], 1)
                x = x + attention.o_proj(mixed.transpose(0, 1).reshape(1, 1, -1))
                x = x + layer.mlp(layer.post_attention_layernorm(x))
            rows.append(self.model.lm_head(body.norm(x))[0, 0])
        return torch.stack(rows)

    def test_full(self):
        found = self.one_by_one(lambda n: list(range(n + 1)), slots=False)
        self.assertLess(self.difference(self.logits(), found), 1e-4)

    def test_streaming(self):
        budget = 40
        found = self.one_by_one(lambda n: [*range(min(SINKS, n + 1)),
                                           *range(max(SINKS, n + 1 - (budget - SINKS)), n + 1)],
                                slots=True)
        self.assertLess(self.difference(self.logits(Streaming(budget)), found), 1e-4)
        self.assertGreater(self.difference(self.logits(), found), 1e-2)

    def test_sparse_with_everything_in_the_budget(self):
        sparse = self.logits(Sparse(LENGTH, chunk=8, block=64))
        self.assertLess(self.difference(self.logits(), sparse), 1e-4)

    def test_sparse_keeps_chunk_0_its_own_block_and_the_budget(self):
        q, k = torch.randn(1, 2, LENGTH, 16), torch.randn(1, 2, LENGTH, 16)
        mask = Sparse(32, chunk=8, block=64).mask(q, k)
        n = 3 * 64 + 5
        self.assertTrue(mask[0, :, n, :8].all())
        self.assertEqual(mask[0, :, n, :3 * 64].sum(-1).tolist(), [32, 32])
        self.assertTrue(mask[0, :, n, 3 * 64:n + 1].all())
        self.assertFalse(mask[0, :, n, n + 1:].any())

    def test_teacher(self):
        places = np.array([128, 200, 232])
        full = self.logits()
        for budget, is_full in ((LENGTH, True), (64, False)):
            teacher = RetrievalTeacher(self.model, LENGTH, budget, anchors=3, follow=24)
            found = teacher(self.ids, places)
            for probs, place in zip(found, places):
                difference = self.difference(probs, full[place:place + 24])
                self.assertEqual(difference < 1e-4, is_full, (budget, place, difference))


class Distances(unittest.TestCase):
    def test_nearest_earlier_match(self):
        ids = np.arange(100)
        ids[50:60] = ids[10:20]
        ids[80:90] = ids[10:20]
        found = copy_distances(ids, np.arange(100), size=4)
        expected = np.zeros(100, dtype=np.int64)
        expected[53:60], expected[83:90] = 40, 30
        self.assertEqual(found.tolist(), expected.tolist())


if __name__ == "__main__":
    unittest.main()
