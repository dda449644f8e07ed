"""Token windows of books and synthetic documents, with the positions they have in their text."""

import dataclasses
import hashlib
import lzma
import os
import pathlib
import subprocess
import tarfile

import numpy as np
import sentencepiece
from plots.command import BadInput

from .model import BOS, TARGET

BLOCK = 64  # tokens; windows are put together from such blocks of a text
WINDOWS_PER_TEXT = 4


@dataclasses.dataclass
class Window:
    """What one row of a batch is: all arrays [length]."""

    ids: np.ndarray
    labels: np.ndarray  # the token that follows each of ids in the text
    positions: np.ndarray  # ascending; consecutive within a block
    weights: np.ndarray  # of each label in the loss
    sources: np.ndarray  # how many tokens before the label its copy lies, where there is one; else 0


def gram_ids(ids, size):
    """A number per token that is equal where the last `size` tokens are (up to 64-bit hashing)."""
    grams = np.zeros(len(ids), dtype=np.uint64)
    for back in range(size):
        shifted = np.concatenate((np.zeros(back, np.uint64), ids[:len(ids) - back].astype(np.uint64)))
        grams = grams * np.uint64(0x9E3779B97F4A7C15) + shifted + np.uint64(1)
        grams ^= grams >> np.uint64(29)
    return grams


def copy_distances(ids, positions, size=5):
    """Per token the distance in positions to the nearest earlier token after the same `size` tokens
    as precede it, 0 where there is none: the way back to what a reader would copy."""
    grams = gram_ids(ids, size)
    order = np.argsort(grams, kind="stable")
    ordered = grams[order]
    same = ordered[1:] == ordered[:-1]
    distances = np.zeros(len(ids), dtype=np.int64)
    later, earlier = order[1:][same], order[:-1][same]
    distances[later] = positions[later] - positions[earlier]
    return distances


def token_files(args, tokenizer):
    """{part: file of the ids, uint16, of the books of that part}; the files are made once and kept in
    --out. One book in 25, by the hash of its name, is held out."""
    key = hashlib.sha256(pathlib.Path(tokenizer).read_bytes()).hexdigest()[:8]
    paths = {part: pathlib.Path(args.out) / f"books-{part}-{key}.bin" for part in ("train", "held")}
    if all(path.exists() for path in paths.values()):
        return paths
    sp = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    ids = {"train": [], "held": []}
    for name, text in read_books(args.books):
        held = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 25 == 0
        ids["held" if held else "train"].append(np.array([BOS] + sp.encode(text), dtype=np.uint16))
    for part, path in paths.items():
        if not ids[part]:
            raise BadInput(f"--books {args.books}: expected .txt files of which one in 25 is held "
                           f"out, found none for the part '{part}'")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.concatenate(ids[part]).tofile(path)
    return paths


class Texts:
    """Windows of random texts. `seed` is of the choice of books and places, and of the documents;
    `synthetic_share` of the texts of text() are documents."""

    def __init__(self, args, tokenizer, synthetic_share=0.5, held_out=False, seed=0):
        self.sp = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
        self.synthesize, self.share = args.synthesize, synthetic_share
        self.random = np.random.default_rng(seed)
        # Training draws document seeds above 2^32; the program and the evaluation use small ones.
        self.seed = 7 if held_out else int(self.random.integers(1 << 32, 1 << 40))
        self.next_document = 0
        path = token_files(args, tokenizer)["held" if held_out else "train"]
        self.books = np.memmap(path, dtype=np.uint16, mode="r")

    def book(self, length):
        at = int(self.random.integers(0, len(self.books) - length))
        window = self.books[at:at + length].astype(np.int64)
        window[0] = BOS  # every prompt begins with it
        return window

    def documents(self, count, length):
        size = 4 * length + 2048  # about 3.4 bytes a token
        command = [self.synthesize, "--seed", self.seed, "--first", self.next_document,
                   "--count", max(count, 2), "--bytes", size]
        self.next_document += max(count, 2)
        out = output_of(command, "documents")
        rows = []
        for text in out.decode("ascii").split("\0")[:count]:
            ids = [BOS] + self.sp.encode(text)
            assert len(ids) >= length, (len(ids), length)
            rows.append(np.array(ids[:length], dtype=np.int64))
        return rows

    def text(self, length):
        """`length` tokens of a new document (by chance `share`) or a book."""
        if self.random.random() < self.share:
            return self.documents(1, length)[0]
        return self.book(length)

    def plain(self, rows, length):
        """The first `length` tokens of each of `rows` texts."""
        return [self._window(self.text(length + 1), np.arange(length // BLOCK)) for _ in range(rows)]

    def skipping(self, rows, length, span):
        """`rows` windows of `length` tokens, WINDOWS_PER_TEXT of a text, each of which covers
        2 * length to `span` positions (PoSE, arXiv 2309.10400): the first block of the text, the
        blocks up to the window's end, and between them those that share most with its end, so that
        what the end refers to is in sight, and some by chance."""
        windows = []
        while len(windows) < rows:
            ids = self.text(span + 1)
            count = min(WINDOWS_PER_TEXT, rows - len(windows))
            windows += [self._skipping(ids, length) for _ in range(count)]
        return windows

    def _skipping(self, ids, length):
        size, whole = length // BLOCK, (len(ids) - 1) // BLOCK
        end = int(2 * size * (whole / (2 * size)) ** self.random.random() ** 0.5)
        ids = ids[:end * BLOCK + 1]
        tail = int(self.random.integers(size // 4, size * 5 // 8 + 1))
        between = np.arange(1, end - tail)
        relevance = self._shared(ids[:-1], tail)[between] + self.random.random(len(between))
        by_chance = self.random.random(len(between)) < 0.1
        best = np.argsort(-(relevance + by_chance * 1000.0), kind="stable")[:size - tail - 1]
        chosen = np.concatenate(([0], np.sort(between[best]), np.arange(end - tail, end)))
        return self._window(ids, chosen, tail)

    @staticmethod
    def _shared(ids, tail):
        """Per block how many rare 4-grams it has that also occur in the last `tail` blocks."""
        grams = gram_ids(ids, 4)
        _, index, counts = np.unique(grams, return_inverse=True, return_counts=True)
        rare = (counts >= 2) & (counts <= 8)
        in_tail = np.zeros(len(counts), dtype=bool)
        in_tail[index[-tail * BLOCK:]] = True
        hits = (rare & in_tail)[index]
        return hits.reshape(-1, BLOCK).sum(1).astype(np.float64)

    @staticmethod
    def _window(ids, blocks, tail=None):
        positions = (blocks[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
        rows, labels = ids[positions], ids[positions + 1]
        # Distances belong to labels: label i copies what followed the earlier match of ids[..i].
        sources = copy_distances(rows, positions)
        weights = np.ones(len(rows), dtype=np.float32)
        if tail is not None:
            weights[:-tail * BLOCK] = 0.3
        weights[sources >= 512] *= 2
        # After a gap the nearest text is missing.
        gaps = np.flatnonzero(np.diff(positions) > 1) + 1
        weights[(gaps[:, None] + np.arange(BLOCK // 8)).reshape(-1)] = 0
        return Window(rows, labels, positions, weights, sources)


def output_of(command, expected):
    """What a program prints, in bytes; BadInput where it fails, which says why on stderr itself."""
    done = subprocess.run([str(a) for a in command], check=False, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise BadInput(f"{command[0]}: expected {expected}, found exit code {done.returncode}")
    return done.stdout


def read_books(source):
    """Yields (file name, text) of every .txt in a folder or a tar archive, sorted by name."""
    source = pathlib.Path(source)
    if source.is_dir():
        for path in sorted(source.rglob("*.txt")):
            yield path.name, path.read_text(encoding="utf-8", errors="replace")
        return
    try:
        with tarfile.open(source) as archive:
            for member in sorted(archive.getmembers(), key=lambda m: m.name):
                if member.isfile() and member.name.endswith(".txt"):
                    text = archive.extractfile(member).read().decode("utf-8", errors="replace")
                    yield os.path.basename(member.name), text
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError) as error:
        raise BadInput(f"--books {source}: expected a folder or a tar archive of .txt files, found: "
                       f"{error}") from error


def train_tokenizer(books, path):
    corpus = path.with_suffix(".txt")
    with open(corpus, "w", encoding="utf-8") as f:
        for _, text in read_books(books):
            f.write(text)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(path.with_suffix("")), vocab_size=TARGET.vocab_size,
        model_type="bpe", byte_fallback=True, bos_id=BOS, eos_id=2, unk_id=0, pad_id=-1,
        num_threads=os.cpu_count(), input_sentence_size=200000, shuffle_input_sentence=True,
        minloglevel=1)  # warnings
    corpus.unlink()
