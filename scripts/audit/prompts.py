"""Prompts of about so many tokens, cut from documents with the help of a server that counts them."""

from dataclasses import dataclass

from plots.command import BadInput


@dataclass(frozen=True)
class Prompt:
    where: str  # the document
    start: int  # its first character there
    text: str
    tokens: int  # as the server counts


class Cutter:
    def __init__(self, server, length, tell):
        self.server, self.length, self.tell = server, length, tell
        self.per_token = None  # characters
        self.most = 0  # tokens of the longest document that was too short

    def count(self, text):
        self.tell(f"a prompt of {self.length} tokens")
        return self.server.count(text)

    def is_near(self, tokens):
        # Where counting is cheap, a cut can be nearer.
        return abs(tokens - self.length) <= self.length // (500 if self.server.has_tokenize else 100)

    def cut(self, text, start):
        """(characters, tokens) from `start` on; None: the text is too short."""
        rest = len(text) - start
        if self.per_token is None:
            # About a quarter of the length for a start: more may not fit the server.
            size = min(rest, self.length)
            self.per_token = size / self.count(text[start:start + size])
        size = max(1, min(rest, round(self.length * self.per_token)))
        low, high, tried = 0, rest + 1, []
        for _ in range(10 if self.server.has_tokenize else 3):
            tokens = self.count(text[start:start + size])
            tried.append((size, tokens))
            if self.is_near(tokens):
                break
            if tokens < self.length:
                low = size
            else:
                high = size
            if high - low < 2:
                break
            size = max(low + 1, min(high - 1, round(size * self.length / tokens)))
        size, tokens = min(tried, key=lambda one: abs(one[1] - self.length))
        self.per_token = size / tokens
        if size == rest and tokens < self.length and not self.is_near(tokens):
            self.most = max(self.most, tokens)
            return None
        return size, tokens

    def of(self, documents, most, strides):
        """([Prompt], documents that were too short). With `strides` a document gives one after the other."""
        found, short = [], 0
        for text, where in documents:
            text = text.encode("utf-8", "replace").decode()
            start, before = 0, len(found)
            while start < len(text) and len(found) < most:
                if self.per_token and len(text) - start < 0.5 * self.length * self.per_token:
                    break
                cut = self.cut(text, start)
                if cut is None:
                    break
                found.append(Prompt(where, start, text[start:start + cut[0]], cut[1]))
                start += cut[0]
                if not strides:
                    break
            short += len(found) == before
            if len(found) == most:
                break
        if not found:
            raise BadInput(f"{documents[0][1]}: expected a document of {self.length} tokens, found {self.most} at most"
                           if self.most else
                           f"{documents[0][1]}: expected a document of {self.length} tokens, found shorter ones")
        return found, short
