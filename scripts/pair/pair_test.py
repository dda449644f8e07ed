"""The attention patterns and the drafter's teacher against token-by-token caches; the losses of steps
against the plain ones; what is refused.

    cd scripts && python3 -m unittest pair.pair_test
"""

import argparse
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

import evaluate_pair
import train_pair
from plots.command import BadInput

from .distill import TOP_P, RecentTeacher, RetrievalTeacher, probs_of
from . import steps
from .model import (SINKS, UNFORESEEN_EVERY, Full, FullAndRetrieval, Llama, Shape, Streaming, causal,
                    masked, products, rope_tables, rotate)
from .steps import (KL_WEIGHT, LEAD, LEAD_WEIGHT, REJECTION_WEIGHTS, SHORT_SHARE, SHORTEST,
                    UNFORESEEN_WEIGHT, DraftSteps, TargetSteps, lead_missing, rejected, target_loss)
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

    @torch.no_grad()
    def over_cache(self, budget):
        """Logits [LENGTH, vocab] of both halves of FullAndRetrieval, blocks of 64."""
        pattern = FullAndRetrieval(budget, chunk=8, block=64)
        return self.model(self.ids.expand(2, -1), *self.tables, pattern)

    def test_retrieval_with_everything_in_the_budget(self):
        full = self.logits()
        for half in self.over_cache(LENGTH):
            self.assertLess(self.difference(full, half), 1e-4)

    @torch.no_grad()
    def token_by_token_over_cache(self, budget, block, fresh, chunk=8):
        """Logits [LENGTH, vocab]: each token over a cache of keys and values of the full pass,
        chosen before its block, and of its own for the last `fresh` tokens."""
        cos, sin = self.tables
        body, rows = self.model.model, []
        kept = []  # per layer q, k, v [head, length, dim] of the full pass
        x = body.embed_tokens(self.ids)[None]
        for layer in body.layers:
            attention, h = layer.self_attn, layer.input_layernorm(x)
            q, k, v = (f(h).view(LENGTH, 2, 16).transpose(0, 1)
                       for f in (attention.q_proj, attention.k_proj, attention.v_proj))
            kept.append((rotate(q, cos, sin), rotate(k, cos, sin), v))
            x = layer(x, cos, sin, Full())
        own = [([], []) for _ in body.layers]
        for n in range(LENGTH):
            start, x = n // block * block, body.embed_tokens(self.ids[n:n + 1])[None]
            for layer, (q_full, k_full, v_full), (keys, values) in zip(body.layers, kept, own):
                attention, h = layer.self_attn, layer.input_layernorm(x)
                q, k, v = (f(h).view(2, 1, 16)
                           for f in (attention.q_proj, attention.k_proj, attention.v_proj))
                keys.append(rotate(k, cos[n:n + 1], sin[n:n + 1]))
                values.append(v)
                q = rotate(q, cos[n:n + 1], sin[n:n + 1])
                verified = max(start, n + 1 - fresh)
                mixed = []
                for head in range(2):
                    means = k_full[head, :start].view(-1, chunk, 16).mean(1)
                    order = (means @ q_full[head, start - 1]).argsort(descending=True).tolist()
                    best = ([0] + [c for c in order if c != 0])[:min(budget // chunk, len(means))]
                    seen = [c * chunk + i for c in best for i in range(chunk)] if start else []
                    seen += range(start, verified)
                    k = torch.cat([k_full[head, seen]] + [t[head] for t in keys[verified:]])
                    v = torch.cat([v_full[head, seen]] + [t[head] for t in values[verified:]])
                    mixed.append((q[head] @ k.T / 4).softmax(-1) @ v)
                x = x + attention.o_proj(torch.cat(mixed, -1)[None])
                x = x + layer.mlp(layer.post_attention_layernorm(x))
            rows.append(self.model.lm_head(body.norm(x))[0, 0])
        return torch.stack(rows)

    def test_retrieval(self):
        full, found = self.over_cache(32)
        self.assertLess(self.difference(self.logits(), full), 1e-4)
        expected = self.token_by_token_over_cache(32, block=64, fresh=4)
        self.assertLess(self.difference(expected, found), 1e-4)
        self.assertGreater(self.difference(full, found), 1e-2)

    def test_chunk_0_is_always_cached(self):
        q, k = torch.randn(1, 2, LENGTH, 16), torch.randn(1, 2, LENGTH, 16)
        tokens, there = FullAndRetrieval(64, chunk=8, block=64).cached(q, k)
        self.assertEqual(there.sum(-1).tolist(), [0, 64, 64, 64])
        for block, chosen in enumerate(tokens[0, 0].tolist()[1:], start=1):
            self.assertTrue(set(range(8)) <= set(chosen))
            self.assertEqual(len(set(chosen)), 64)
            self.assertLess(max(chosen), block * 64)

    def test_what_there_is_to_cache_comes_first(self):
        q, k = torch.randn(1, 2, LENGTH, 16), torch.randn(1, 2, LENGTH, 16)
        tokens, there = FullAndRetrieval(128, chunk=8, block=64).cached(q, k)
        self.assertEqual(there.sum(-1).tolist(), [0, 64, 128, 128])
        before = torch.arange(4)[:, None] * 64 > tokens
        self.assertTrue(torch.equal(before, there.expand_as(before)))

    def test_loss_over_a_cache(self):
        labels, weights = self.ids.roll(-1)[None], torch.full((1, LENGTH), 1 / LENGTH)
        cos, sin = (t[None, None] for t in self.tables)

        def loss(pattern):
            return target_loss(self.model, self.ids[None], labels, weights, 1.0, cos, sin, pattern)

        full, losses, *nothing = loss(Full())
        self.assertEqual(nothing, [None, None])
        whole, same, accepted, unforeseen = loss(FullAndRetrieval(LENGTH, block=64))
        self.assertAlmostEqual(full.item(), whole.item() - UNFORESEEN_WEIGHT * unforeseen.item(), places=3)
        self.assertLess(self.difference(losses, same), 1e-4)
        self.assertGreater(accepted.min().item(), 0.999)
        part, same, accepted, unforeseen_too = loss(FullAndRetrieval(32, block=64))
        self.assertLess(self.difference(losses, same), 1e-4)
        self.assertAlmostEqual(unforeseen.item(), unforeseen_too.item(), places=5)
        self.assertGreater(part.item(), whole.item() + 0.01)
        self.assertLess(accepted.max().item(), 0.999)
        part.backward()

    def test_unforeseen(self):
        """Against the plain formula, query by query."""
        block, chunk, heads = 64, 8, 2
        q, k = (torch.randn(1, heads, LENGTH, 16) * 2 for _ in range(2))
        found, all_attention = 0, (q @ k.transpose(-1, -2) / 4).masked_fill(
            torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf).softmax(-1)[0]
        for head in range(heads):
            for begin in range(block, LENGTH, block):
                asked = range(begin + UNFORESEEN_EVERY - 1, begin + block, UNFORESEEN_EVERY)
                mean = torch.stack([all_attention[head, i, chunk:begin] for i in asked]).mean(0)
                mean = mean.view(-1, chunk).sum(-1)
                keys = k[0, head, chunk:begin].view(-1, chunk, 16).mean(1)
                told = (keys @ q[0, head, begin - 1] / 4).softmax(-1)
                found += (mean * ((mean / mean.sum()) / told).log()).sum()
        pattern = FullAndRetrieval(32, block=block)
        q.requires_grad_(), k.requires_grad_()
        unforeseen = pattern.unforeseen_by(q, k)
        self.assertAlmostEqual(unforeseen.item(), found.item() / heads / (LENGTH // block - 1), places=4)
        unforeseen.backward()
        learns = q.grad.abs().sum((0, 1, 3)).nonzero()[:, 0].tolist()
        self.assertEqual(learns, [63, 127, 191])  # the last queries before blocks
        # Where a block is asked for what its last query before it tells, nothing is unforeseen.
        alike = q.detach()[:, :, 63:64].expand(-1, -1, LENGTH, -1)
        even = k.detach().unflatten(2, (-1, chunk)).mean(3).repeat_interleave(chunk, 2)
        self.assertLess(pattern.unforeseen_by(alike, even).item(), 1e-4)

    def test_rejected(self):
        a, b = torch.randn(5, 64), torch.randn(5, 64)
        extra, accepted = rejected(a, b)
        p, q = a.softmax(-1), b.softmax(-1)
        self.assertAlmostEqual(accepted[-1].item(), torch.minimum(p, q).sum(-1).mean().item(), places=5)
        kl = (q * (q / p).log()).sum(-1).mean()
        self.assertAlmostEqual(sum(REJECTION_WEIGHTS), 1)
        expected = KL_WEIGHT * kl + sum(w * (1 - a) for w, a in zip(REJECTION_WEIGHTS, accepted))
        self.assertAlmostEqual(extra.item(), expected.item(), places=4)

    def test_lead_missing(self):
        logits = torch.tensor([[3.0, 1.0, 2.9], [0.0, LEAD, -9.0], [7.0, 7.0, 7.0]], requires_grad=True)
        missing = lead_missing(logits)
        for found, expected in zip(missing.tolist(), (LEAD - 0.1, 0.0, LEAD)):
            self.assertAlmostEqual(found, expected, places=5)
        missing[0].backward()  # the best one up, the second down
        self.assertEqual(logits.grad[0].tolist(), [-1, 0, 1])

    def test_teacher(self):
        places = np.array([128, 200, 232])
        full = self.logits()
        for budget, is_full in ((LENGTH, True), (64, False)):
            teacher = RetrievalTeacher(self.model, LENGTH, budget, follow=24)
            found = teacher(self.ids, places)
            for probs, place in zip(found, places):
                difference = self.difference(probs, full[place:place + 24])
                self.assertEqual(difference < 1e-4, is_full, (budget, place, difference))

    def test_writing(self):
        """What the teacher writes gets the logits that the same text gets; cold, it is the likeliest."""
        places, follow = torch.tensor([128, 200, 232]), 24
        for budget in (LENGTH, 64):
            teacher = RetrievalTeacher(self.model, LENGTH, budget, follow=follow)
            logits, tokens = teacher.write(self.ids, places, torch.tensor([1e-3, 1.0, 1.0]))
            self.assertEqual(tokens[:, 0].tolist(), self.ids[places].tolist())
            self.assertEqual(tokens[0, 1:].tolist(), logits[0].argmax(-1).tolist())
            self.assertNotEqual(tokens[1, 1:].tolist(), logits[1].argmax(-1).tolist())
            drawn = probs_of(logits, 1, TOP_P).gather(-1, tokens[:, 1:, None])
            self.assertGreater(drawn.min().item(), 0)
            for place, own, found in zip(places, tokens, logits):
                ids = self.ids.clone()
                ids[place:place + follow] = own[:-1]
                self.assertLess(self.difference(found, teacher(ids, place[None])[0]), 1e-4)

    def test_recent(self):
        """A window that reaches back to the beginning misses nothing, a shorter one does."""
        places, full = torch.tensor([32, 128, 200]), self.logits()
        for budget, whole in ((208, (True, True, True)), (64, (True, False, False))):
            found = RecentTeacher(self.model, LENGTH, budget, follow=24)(self.ids, places)
            for probs, place, is_full in zip(found, places, whole):
                difference = self.difference(probs, full[place:place + 24])
                self.assertEqual(difference < 1e-4, is_full, (budget, place, difference))


class Pieces(unittest.TestCase):
    def test_rotate(self):
        torch.manual_seed(0)
        x, angle = torch.randn(3, 2, 7, 16), torch.rand(7, 8).repeat(1, 2) * 100
        turned = torch.complex(*x.double().chunk(2, -1)) * torch.exp(1j * angle[:, :8].double())
        expected = torch.cat((turned.real, turned.imag), -1)
        for kind, error in ((torch.float32, 1e-5), (torch.bfloat16, 2 ** -7)):
            found = rotate(x.to(kind), angle.cos(), angle.sin())
            self.assertEqual(found.dtype, kind)
            self.assertLess(((found - expected).abs() / x.abs().amax()).max().item(), error)

    def test_products(self):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(24, size, bias=False) for size in (24, 8, 40)]
        x = torch.randn(2, 5, 24)
        factors = [torch.randn(2, 5, len(f.weight)) for f in layers]
        for together in (True, False):
            y = products(x, *layers) if together else [f(x) for f in layers]
            sum((t * factor).sum() for t, factor in zip(y, factors)).backward()
            gradients = [f.weight.grad.clone() for f in layers]
            for f in layers:
                f.weight.grad = None
            if together:
                found = y, gradients
        for a, b in zip((*found[0], *found[1]), (*y, *gradients)):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


class AttentionOfCpus(unittest.TestCase):
    """Against PyTorch's own in double, gradients included; in bf16 as near as four roundings leave
    it, which bf16 scores as peaked as these would not."""

    def values(self, function, tensors, kind):
        tensors = [t.to(kind, copy=True).requires_grad_() for t in tensors]
        mixed = function(*tensors)
        mixed.backward(self.grad.to(kind))
        return [t.double() for t in (mixed.detach(), *(t.grad for t in tensors))]

    def check(self, function, plain, q, k, v):
        self.grad = torch.randn_like(q)
        tensors = [t.bfloat16().double() for t in (q, k, v)]
        self.grad = self.grad.bfloat16().double()
        expected = self.values(plain, tensors, torch.float64)
        single = self.values(function, tensors, torch.float32)
        half = self.values(function, tensors, torch.bfloat16)
        for name, e, s, h in zip(("mixed", "q", "k", "v"), expected, single, half):
            self.assertLess((s - e).norm().item(), 1e-5 * e.norm().item(), name)
            self.assertLess((h - e).norm().item(), 4 * 2 ** -8 * e.norm().item(), name)

    def test_causal(self):
        torch.manual_seed(0)
        for length in (40, 256, 600):
            self.check(causal, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                       *(torch.randn(2, 3, length, 32) * 3 for _ in range(3)))

    def test_masked(self):
        torch.manual_seed(0)
        seen = torch.rand(5, 24, 72) < 0.3
        seen[..., 7] = True
        q = torch.randn(4, 5, 24, 32)
        self.check(lambda q, k, v: masked(q, k, v, seen),
                   lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=seen),
                   q * 3, *(torch.randn(4, 5, 72, 32) * 3 for _ in range(2)))


class Steps(unittest.TestCase):
    """A step learns the same however many tokens it takes at once, and that is what the plain
    formula of the whole batch says."""

    def setUp(self):
        torch.manual_seed(0)
        self.args = argparse.Namespace(span=512, sparse_budget=64, draft_budget=48, follow=24, distill=None)
        self.model = Llama(Shape(32, 2, 2, 48, yarn_factor=16.0, vocab_size=64))
        for p in self.model.parameters():
            p.data *= 4 if p.dim() == 2 else 1

    def gradients(self, loss):
        self.model.zero_grad()
        loss.backward()
        return loss.item(), [p.grad.clone() for p in self.model.parameters()]

    def learned(self, kind, batch, at_once, teacher=None):
        """What the step's parts of at most `at_once` tokens add up to, how many parts, what is
        reported."""
        step = kind(self.args, self.model, torch.device("cpu"), lambda f: f)
        step.teacher = teacher
        with (mock.patch.object(steps, "tokens_at_once", lambda _: at_once),
              mock.patch.object(steps, "bf16_products", lambda _: torch.autocast("cpu", enabled=False))):
            report, loss, count, whole = step.report(), 0, 0, 0
            for part, share, tokens in step.parts(batch):
                loss, count, whole = (loss + step.loss(part, share, report), count + tokens,
                                      whole + share)
        self.assertAlmostEqual(whole, 1)
        return self.gradients(loss), count, report

    def same(self, found, expected):
        self.assertAlmostEqual(found[0], expected[0], delta=1e-5 * expected[0])
        for a, b in zip(found[1], expected[1]):
            self.assertLess((a - b).norm().item(), 1e-4 * b.norm().item())

    def test_target(self):
        rows, length = 5, 256
        ids, labels = (torch.randint(3, 64, (rows, length)) for _ in range(2))
        weights = torch.rand(rows, length)
        windows = {"ids": ids, "labels": labels, "weights": weights,
                   "positions": (torch.arange(length) * 2).expand(rows, -1),
                   "sources": torch.zeros(rows, length, dtype=torch.int64)}
        cos, sin = (t[::2] for t in rope_tables(self.model.shape, self.args.span))
        some = slice(64 + steps.AGREE_EVERY - 1, None, steps.AGREE_EVERY)
        for both in (False, True):
            pattern = FullAndRetrieval(64, unforeseen=[]) if both else Full()
            logits = self.model(torch.cat((ids, ids)) if both else ids, cos, sin, pattern)
            losses = F.cross_entropy(logits[:rows].flatten(0, 1), labels.flatten(), reduction="none")
            missing = lead_missing(logits[:rows]).flatten()
            loss = ((losses + LEAD_WEIGHT * missing) * weights.flatten()).sum() / weights.sum()
            if both:
                extra, accepted = rejected(logits[rows:, some].flatten(0, 1),
                                           logits[:rows, some].flatten(0, 1).detach())
                unforeseen = torch.stack(pattern.unforeseen).mean()
                loss = loss + extra + UNFORESEEN_WEIGHT * unforeseen
            expected = self.gradients(loss)
            for at_once in (1, 2 * length, 1 << 30):
                found, count, report = self.learned(TargetSteps, (dict(windows), both), at_once)
                self.same(found, expected)
                self.assertEqual(count, rows * length)
                self.assertAlmostEqual(report.sums.sum() / report.counts.sum(), losses.mean().item(),
                                       places=4)
                if both:
                    self.assertAlmostEqual(report.overlaps.count, 1)
                    self.assertAlmostEqual(report.unforeseen, unforeseen.item(), places=4)
                    self.assertLess((report.overlaps.sums - accepted).abs().max().item(), 1e-5)

    def test_places_of_the_drafter(self):
        args = SimpleNamespace(span=16384, follow=96, draft_budget=256, anchors=4096, distill=None)
        texts = SimpleNamespace(random=np.random.default_rng(1), text=lambda length: np.zeros(length, np.int64))
        ids, places, writes = DraftSteps.batch(args, texts, 0.0)
        self.assertFalse(writes)
        for share in (0, 1):
            args.distill, args.written_share = "target", share
            self.assertEqual(DraftSteps.batch(args, texts, 0.0)[2], bool(share))
        length, places = len(ids) - 1, places.numpy()
        self.assertTrue((places % 8 == 0).all())
        self.assertGreaterEqual(places.min(), SHORTEST)
        self.assertLessEqual(places.max() + args.follow, length)
        first_half = (places < length // 16 * 8).mean()  # of SHORT_SHARE all octaves but the last
        octaves = np.log2((length - args.follow) / SHORTEST)
        self.assertAlmostEqual(first_half, SHORT_SHARE * (1 - 1 / octaves), delta=0.02)
        self.assertAlmostEqual((places < 2 * SHORTEST).mean(), SHORT_SHARE / octaves, delta=0.015)

    @torch.no_grad()
    def text_loss(self, ids, places):
        """Of what the drafter's cache holds after each place, which is full there."""
        losses, length = [], self.args.draft_budget + self.args.follow
        tables = rope_tables(self.model.shape, length)
        for place in places:
            kept = [*range(SINKS), *range(place - length + SINKS + self.args.follow, place + self.args.follow)]
            row = ids[kept]
            logits = self.model(row[None], *tables, Streaming(self.args.draft_budget))[0]
            losses.append(F.cross_entropy(logits[SINKS:], ids[[n + 1 for n in kept]][SINKS:]))
        return torch.stack(losses).mean().item()

    def test_draft(self):
        ids, places = torch.randint(3, 64, (200,)), torch.tensor([64, 96, 128, 160, 72])
        logits = torch.randn(5, self.args.follow, 64) * 3
        for teacher in (None, lambda ids, places: logits):
            expected = None
            for at_once in (1 << 30, 1, 150):
                found, count, report = self.learned(DraftSteps, (ids, places, False), at_once, teacher)
                expected = expected or found
                self.same(found, expected)
                self.assertEqual(count, 5 * (48 + 24))
                self.assertAlmostEqual(report.count, 1)
                self.assertAlmostEqual(report.overlaps.count, 0 if teacher is None else 1)
                self.assertIn(f"text:{self.text_loss(ids, places):.3f}", report.line())
                self.assertEqual("accepted" in report.line(), teacher is not None)

    def test_draft_of_a_short_prompt(self):
        """A cache that is not full holds the text from its beginning."""
        ids, place, follow = torch.randint(3, 64, (200,)), 32, self.args.follow
        teacher = torch.randn(1, follow, 64) * 3
        found, _, _ = self.learned(DraftSteps, (ids, torch.tensor([place]), False), 1 << 30,
                                   lambda ids, places: teacher)
        length = self.args.draft_budget + follow
        logits = self.model(ids[None, :length], *rope_tables(self.model.shape, length),
                            Streaming(self.args.draft_budget))
        extra, _ = rejected(logits[0, place:place + follow], teacher[0])
        text = F.cross_entropy(logits[0, SINKS:], ids[SINKS + 1:length + 1])
        self.same(found, self.gradients(0.1 * text + extra))

    def test_draft_of_what_the_teacher_writes(self):
        """As of texts that hold it."""
        ids, follow = torch.randint(3, 64, (200,)), self.args.follow
        places = torch.tensor([96, 64])
        logits, own = torch.randn(2, follow, 64) * 3, torch.randint(3, 64, (2, follow + 1))
        own[:, 0] = ids[places]
        writer = SimpleNamespace(write=lambda *_: (logits, own))
        found, _, _ = self.learned(DraftSteps, (ids, places, True), 1 << 30, writer)
        expected = []
        for i, place in enumerate(places):
            text = ids.clone()
            text[place:place + follow + 1] = own[i]
            loss, _, _ = self.learned(DraftSteps, (text, place[None], False), 1 << 30,
                                      lambda *_: logits[i:i + 1])
            expected.append(loss)
        self.same(found, [(expected[0][0] + expected[1][0]) / 2,
                          [(a + b) / 2 for a, b in zip(expected[0][1], expected[1][1])]])


class Distances(unittest.TestCase):
    def test_nearest_earlier_match(self):
        ids = np.arange(100)
        ids[50:60] = ids[10:20]
        ids[80:90] = ids[10:20]
        found = copy_distances(ids, np.arange(100), size=4)
        expected = np.zeros(100, dtype=np.int64)
        expected[53:60], expected[83:90] = 40, 30
        self.assertEqual(found.tolist(), expected.tolist())


class WhatIsRefused(unittest.TestCase):
    def setUp(self):
        self.shape = Shape(32, 2, 2, 48, yarn_factor=16.0, vocab_size=64)
        self.model = Llama(self.shape)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)
        self.tokenizer = self.out / "tokenizer.model"
        self.tokenizer.write_bytes(b"a tokenizer")
        self.model.save(self.out / "model", self.tokenizer)
        self.data = ["--books", str(self.out), "--synthesize", sys.executable, "--out", str(self.out)]

    def parsed(self, script, *arguments):
        """(exit code or the arguments, the only line on stderr)"""
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["script", *map(str, arguments)]), contextlib.redirect_stderr(said):
            try:
                found = script.parse_arguments()
            except SystemExit as end:
                found = end.code
        return found, said.getvalue()

    def refused(self, script, arguments, *parts):
        found, said = self.parsed(script, *arguments)
        self.assertEqual((found, said.count("\n")), (2, 1), (arguments, said))
        for part in parts:
            self.assertIn(part, said)

    def test_options_of_the_training(self):
        model = self.out / "model"
        args, said = self.parsed(train_pair, "target", *self.data, "--init", model, "--minutes", ".5")
        self.assertEqual((said, args.minutes, args.window), ("", 0.5, 1024))
        for kind, *arguments, found in (
                ("target", "--skip-share", "1.5", "'1.5'"), ("target", "--minutes", "0", "'0'"),
                ("target", "--rate", "nan", "'nan'"), ("target", "--window", "1000", "1000"),
                ("target", "--window", "16384", "16384"), ("target", "--sparse-budget", "12", "12"),
                ("target", "--span", "1000", "1000"), ("target", "--threads", "0", "'0'"),
                ("target", "--anchors", "3", "unrecognized"), ("target", "--init", "nowhere", "no config.json"),
                ("draft", "--window", "1024", "unrecognized"), ("draft", "--follow", "4000", "4000"),
                ("draft", "--retrieval-budget", "16384", "16384"), ("draft", "--draft-budget", "16", "16"),
                ("draft", "--distill", self.out, "no config.json"), ("draft", "--books", "nowhere", "nowhere"),
                ("draft", "--synthesize", "nowhere", "nowhere"), ("draft", "--seed", "-1", "'-1'")):
            self.refused(train_pair, [kind, *self.data, *arguments], arguments[0], found)

    def test_options_of_the_evaluation(self):
        models = ["--target", self.out / "model", "--draft", self.out / "model"]
        args, said = self.parsed(evaluate_pair, *self.data, *models, "--parts", "losses,ties")
        self.assertEqual((said, args.parts, args.budget), ("", ["losses", "ties"], [512, 2048]))
        self.refused(evaluate_pair, [*self.data, *models], "--bench", "acceptance")
        for *arguments, found in (
                ("--parts", "losses,tie", "'tie'"), ("--kinds", "book", "'book'"), ("--prompts", "1", "1"),
                ("--prompt", "300", "300"), ("--budget", "100", "100"), ("--budget", "8192", "8192"),
                ("--longest", "1000", "1000"), ("--tokenizer", "a", "unrecognized")):
            self.refused(evaluate_pair, [*self.data, *models, "--bench", sys.executable, *arguments], found)

    def test_a_checkpoint_is_not_overwritten(self):
        arguments = ["draft", *self.data]
        self.refused(train_pair, [*arguments, "--resume"], "--resume", "no such file")
        (self.out / "draft-checkpoint.pt").write_bytes(b"hours of work")
        self.refused(train_pair, arguments, "--resume goes on from it")
        found, _ = self.parsed(train_pair, *arguments, "--resume")
        self.assertTrue(found.resume)

    def test_models(self):
        folder = self.out / "model"
        Llama.load(folder)
        config = json.loads((folder / "config.json").read_text())
        for changed, part in ((config | {"intermediate_size": 40}, "mlp.down_proj.weight: expected [32, 40], "
                               "found [32, 48]"),
                              (config | {"num_hidden_layers": 3}, "expected [32], found none"),
                              ({"hidden_size": 32}, "missing 3 required"), ([], "found:")):
            (folder / "config.json").write_text(json.dumps(changed))
            with self.assertRaises(BadInput) as found:
                Llama.load(folder)
            self.assertIn(part, str(found.exception))
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes(b"short")
        with self.assertRaises(BadInput):
            Llama.load(folder)


if __name__ == "__main__":
    unittest.main()
