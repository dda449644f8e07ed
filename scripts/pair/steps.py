"""What one step of the training computes: a batch, its loss, and what is reported of it.

Batches are made by Batches, in worker processes where there are any; losses in the main process.
"""

import dataclasses

import numpy as np
import torch
import torch.nn.functional as F

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .distill import RetrievalTeacher
from .model import CHUNK, SINKS, Full, FullAndRetrieval, Llama, Streaming, rope_tables
from .texts import BLOCK, Texts

DISTANCES = (1, 512, 2048, 4096, 8192)  # lower bounds of the printed classes of distance
# At which proposals are judged, and what rejections count there: more when cold, since few proposals are
# rejected where probs are spread. 0.1 stands for greedy.
TEMPERATURES, REJECTION_WEIGHTS = (0.1, 0.3, 0.6, 1.0), (0.55, 0.25, 0.15, 0.05)
KL_WEIGHT = 0.5
SHORT_SHARE, SHORTEST = 0.25, 64  # of the drafter's places, and tokens before the earliest
WRITING_TEMPERATURES = (0.1, 0.6, 0.6, 1.0)  # of what the drafter's teacher writes: mostly the default's
AGREE_EVERY = 4  # tokens: the logits of all would take as long as the layers
UNFORESEEN_WEIGHT = 0.4  # in the loss, of FullAndRetrieval.unforeseen_by()
LEAD, LEAD_WEIGHT = 1.0, 0.2  # of lead_missing(): nats, and in the loss


def multiplies_bf16(device):
    """Whether bf16 matrix products are faster there than f32 ones."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    has = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(has and has())


def bf16_products(device):
    """A context in which matrix products are bf16 ones where those are faster."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=multiplies_bf16(device))


def tokens_at_once(device):
    """How many tokens of a step go through the model together. On a CPU few: what a layer leaves then
    still lies in the caches when the next one reads it, and memory is used again rather than new."""
    return 2048 if device.type == "cpu" else 1 << 30


def rejected(logits, verifier):
    """Of rows of logits [n, vocab] of a proposer and a verifier: KL_WEIGHT times the KL to the verifier's
    probs plus the share of proposals that it rejects at TEMPERATURES, by REJECTION_WEIGHTS; and the accepted
    share at each."""
    kl = F.kl_div(logits.log_softmax(-1), verifier.log_softmax(-1), log_target=True,
                  reduction="batchmean")
    accepted = torch.stack([torch.minimum((logits / t).softmax(-1), (verifier / t).softmax(-1))
                            .sum(-1).mean() for t in TEMPERATURES])
    rejections = ((1 - accepted) * accepted.new_tensor(REJECTION_WEIGHTS)).sum()
    return KL_WEIGHT * kl + rejections, accepted.detach()


def lead_missing(logits):
    """logits [..., vocab] -> [...]: by how many nats the lead of the best token over the second is short
    of LEAD. Where two are all but equal, the smallest error of a small cache makes a cold proposal wrong."""
    best, second = logits.topk(2).values.unbind(-1)
    return F.relu(LEAD - (best - second))


def target_loss(model, ids, labels, weights, share, cos, sin, pattern):
    """Of some windows of a batch, which are `share` of it: the sum of their labels' losses by weights
    [window, length], which are 1 together in the batch, with lead_missing() by LEAD_WEIGHT; and each
    label's own loss [window, length], in nats. Where the pattern is FullAndRetrieval, rejected() of what
    the model says over a retrieval cache is added to the sum, by `share`, with itself over all tokens as
    the verifier, and what its queries did not foresee, by UNFORESEEN_WEIGHT. Also returns the accepted
    share per temperature and the unforeseen."""
    both = isinstance(pattern, FullAndRetrieval)
    if both:
        ids, cos, sin = (torch.cat((t, t)) for t in (ids, cos, sin))
        pattern = dataclasses.replace(pattern, unforeseen=[])
    hidden = model.hidden(ids, cos, sin, pattern)
    full = model.lm_head(hidden[:len(labels)]).float()
    losses = F.cross_entropy(full.flatten(0, 1), labels.flatten(), reduction="none")
    losses = losses.view_as(weights)
    loss = ((losses + LEAD_WEIGHT * lead_missing(full)) * weights).sum()
    if not both:
        return loss, losses.detach(), None, None
    some = slice(pattern.block + AGREE_EVERY - 1, None, AGREE_EVERY)
    over_cache = model.lm_head(hidden[len(labels):, some]).float()
    extra, accepted = rejected(over_cache.flatten(0, 1), full[:, some].flatten(0, 1).detach())
    unforeseen = torch.stack(pattern.unforeseen).mean()
    loss = loss + share * (extra + UNFORESEEN_WEIGHT * unforeseen)
    return loss, losses.detach(), accepted, unforeseen.detach()


class MeanOverlaps:
    """Means since the last line of the share of proposals that the verifier accepts."""

    def __init__(self):
        self.sums, self.count = torch.zeros(len(TEMPERATURES)), 0

    def add(self, overlaps, share):
        """`share`: of a step."""
        self.sums += overlaps.float().cpu() * share
        self.count += share

    def line(self):
        means = self.sums / max(self.count, 1e-9)
        return "accepted " + " ".join(f"T{t}:{m:.3f}" for t, m in zip(TEMPERATURES, means))


class TextAndOverlaps:
    """Means since the last line of the drafter's loss on the text, in nats per token, and of what its
    teacher accepts."""

    def __init__(self):
        self.text, self.count, self.overlaps = 0.0, 0, MeanOverlaps()

    def add(self, text, overlaps, share):
        """overlaps: None where there is no teacher. `share`: of a step."""
        self.text += text.item() * share
        self.count += share
        if overlaps is not None:
            self.overlaps.add(overlaps, share)

    def line(self):
        text = f"text:{self.text / max(self.count, 1e-9):.3f}"
        return f"{text} {self.overlaps.line()}" if self.overlaps.count else text


class LossByDistance:
    """Mean losses since the last line: of labels that copy nothing earlier (0), and of those that
    do, by how many tokens back; what is accepted of the target over a retrieval cache, and what its
    queries did not foresee, in nats."""

    def __init__(self):
        self.sums, self.counts = np.zeros(len(DISTANCES) + 1), np.zeros(len(DISTANCES) + 1)
        self.overlaps, self.unforeseen = MeanOverlaps(), 0.0

    def add_cache(self, overlaps, unforeseen, share):
        """`share`: of a step."""
        self.overlaps.add(overlaps, share)
        self.unforeseen += unforeseen.item() * share

    def add(self, losses, sources):
        kind = np.searchsorted(DISTANCES, sources.reshape(-1), side="right")
        self.sums += np.bincount(kind, losses.reshape(-1), len(self.sums))
        self.counts += np.bincount(kind, minlength=len(self.counts))

    def line(self):
        names = ["new"] + [f"{low}+" for low in DISTANCES]
        losses = zip(names, self.sums, self.counts)
        text = " ".join(f"{name}:{s / n:.3f}" for name, s, n in losses if n)
        if self.overlaps.count:
            text += f" {self.overlaps.line()} unforeseen {self.unforeseen / self.overlaps.count:.3f}"
        return text


class TargetSteps:
    """Batches of the target, and their loss."""

    report = LossByDistance

    def __init__(self, args, model, device, compile_):
        self.args, self.model, self.device = args, model, device
        self.compiled_loss = compile_(target_loss)
        self.tables = [t.to(device) for t in rope_tables(model.shape, args.span)]
        self.full, self.both = Full(), FullAndRetrieval(args.sparse_budget)

    @staticmethod
    def batch(args, texts, fraction):
        """At `fraction` of the time: windows and whether attention over a retrieval cache is learned
        beside that to all tokens."""
        both = False
        if fraction > 1 - args.last_share and texts.random.random() < 0.5:
            windows = texts.plain(max(1, args.batch_tokens // args.span), args.span)
        else:
            rows = max(1, args.batch_tokens // args.window)
            both = texts.random.random() < args.sparse_share
            if texts.random.random() < args.skip_share:
                windows = texts.skipping(rows, args.window, args.span)
            else:
                windows = texts.plain(rows, args.window)
        names = ("ids", "labels", "positions", "weights", "sources")
        return {n: torch.from_numpy(np.stack([getattr(w, n) for w in windows])) for n in names}, both

    def parts(self, batch):
        """The batch a few windows at a time, the number of tokens and the share of the batch with them."""
        windows, both = batch
        windows["weights"] = windows["weights"] / windows["weights"].sum()
        count, length = windows["ids"].shape
        at_once = max(1, tokens_at_once(self.device) // length)
        for first in range(0, count, at_once):
            part = {name: t[first:first + at_once] for name, t in windows.items()}
            yield (part, both), len(part["ids"]) / count, part["ids"].numel()

    def loss(self, part, share, report):
        windows, both = part
        ids, labels, positions, weights = (
            windows[name].to(self.device) for name in ("ids", "labels", "positions", "weights"))
        cos, sin = (table[positions][:, None] for table in self.tables)
        pattern = self.both if both else self.full
        with bf16_products(self.device):
            loss, losses, accepted, unforeseen = self.compiled_loss(
                self.model, ids, labels, weights, share, cos, sin, pattern)
        report.add(losses.float().cpu().numpy(), windows["sources"].numpy())
        if both:
            report.add_cache(accepted, unforeseen, share)
        return loss


def draft_loss(model, rows, labels, at, teacher, share, cos, sin, pattern):
    """rows [anchors, length]. With teacher [anchors, follow, vocab]: rejected() of the tokens that lie
    at [anchors, follow] of the rows with the teacher as the verifier, since that is what the drafter is
    for; without: cross-entropy with labels [anchors, length]. Times `share`, which these rows are of
    the step. Also returns the cross-entropy, and the accepted share per temperature or None."""
    logits = model(rows, cos, sin, pattern).float()
    text = F.cross_entropy(logits[:, SINKS:].flatten(0, 1), labels[:, SINKS:].flatten())
    if teacher is None:
        return share * text, text.detach(), None
    followers = logits.gather(1, at[..., None].expand(-1, -1, logits.shape[-1]))
    extra, accepted = rejected(followers.flatten(0, 1), teacher.flatten(0, 1).float())
    return share * (0.1 * text + extra), text.detach(), accepted


class DraftSteps:
    """Batches of the drafter, out of one long text each, and their loss."""

    report = TextAndOverlaps

    def __init__(self, args, model, device, compile_):
        self.args, self.model, self.device = args, model, device
        self.teacher = None
        if args.distill:
            target = Llama.load(args.distill).to(device).eval()
            self.teacher = RetrievalTeacher(target, args.span, args.retrieval_budget,
                                            follow=args.follow, compile_=compile_)
        self.compiled_loss = compile_(draft_loss)
        self.pattern = Streaming(args.draft_budget)
        self.tables = [t.to(device)
                       for t in rope_tables(model.shape, args.draft_budget + args.follow)]

    @staticmethod
    def batch(args, texts, fraction):
        """A text of half the span to the whole, and `anchors` places where a prompt might end, multiples
        of the teacher's chunk: most in its last half, each by SHORT_SHARE anywhere from SHORTEST on, as
        often in any octave. Also whether the teacher writes what follows, or the text goes on."""
        length = int(texts.random.integers(args.span // 2, args.span + 1)) // BLOCK * BLOCK
        end = (length - args.follow) // CHUNK
        late = texts.random.integers(length // 2 // CHUNK, end + 1, args.anchors)
        first = SHORTEST / CHUNK
        short = first * (end / first) ** texts.random.random(args.anchors)
        places = np.where(texts.random.random(args.anchors) < SHORT_SHARE, short.astype(np.int64), late)
        writes = bool(args.distill) and texts.random.random() < args.written_share
        return torch.from_numpy(texts.text(length + 1)), torch.from_numpy(places * CHUNK), writes

    def parts(self, batch):
        """A few places at a time, the share of them in the batch and the number of tokens.
        The rows are what the drafter's cache holds after each place: the first SINKS tokens, then
        the text up to `follow` tokens after the place; before the cache is full, the text from its
        beginning, as long as the other rows. Where the teacher writes, those `follow` tokens but the first
        are its own, each place's at one of WRITING_TEMPERATURES."""
        *batch, writes = batch
        ids, places = (t.to(self.device) for t in batch)
        teacher = written = None
        with bf16_products(self.device):
            if writes:
                temperatures = torch.tensor(WRITING_TEMPERATURES, device=self.device)
                temperatures = temperatures[torch.arange(len(places), device=self.device) % len(temperatures)]
                teacher, written = self.teacher.write(ids[:-1], places, temperatures)
            elif self.teacher:
                teacher = self.teacher(ids[:-1], places)
        sinks = torch.arange(SINKS, device=self.device).expand(len(places), -1)
        recent = torch.arange(SINKS - self.args.draft_budget, self.args.follow, device=self.device)
        full = places.clamp(min=self.args.draft_budget)
        index = torch.cat((sinks, full[:, None] + recent), 1)
        at = (self.args.draft_budget + places - full)[:, None]
        at = at + torch.arange(self.args.follow, device=self.device)
        rows, labels = ids[index], ids[index + 1]
        if written is not None:
            rows.scatter_(1, at, written[:, :-1])
            labels.scatter_(1, at, written[:, 1:])
        at_once = max(1, tokens_at_once(self.device) // index.shape[1])
        for first in range(0, len(places), at_once):
            some = slice(first, first + at_once)
            yield ((rows[some], labels[some], at[some], None if teacher is None else teacher[some]),
                   len(rows[some]) / len(places), rows[some].numel())

    def loss(self, part, share, report):
        with bf16_products(self.device):
            loss, text, accepted = self.compiled_loss(self.model, *part, share, *self.tables, self.pattern)
        report.add(text, accepted, share)
        return loss


class Batches(IterableDataset):
    """An endless row of batches. `fraction` of the time is shared with the worker processes; `start`
    tells the texts of a resumed training from those it has seen."""

    def __init__(self, args, tokenizer, steps, start):
        self.args, self.tokenizer, self.make, self.start = args, tokenizer, steps.batch, start
        self.fraction = torch.zeros(1).share_memory_()

    def __iter__(self):
        worker = get_worker_info()
        texts = Texts(self.args, self.tokenizer, self.args.synthetic_share,
                      seed=(self.args.seed, self.start, worker.id if worker else 0))
        while True:
            yield self.make(self.args, texts, float(self.fraction))

    def loader(self):
        return iter(DataLoader(self, batch_size=None, num_workers=self.args.workers))
