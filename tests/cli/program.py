"""Runs the program under test and makes the small inputs it needs."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BINARY = os.environ["TRIFORCE_BENCH"]
SOURCE = Path(os.environ["TRIFORCE_SOURCE"])

# A model of a few thousand weights: every command on it takes a fraction of a second.
TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "rope_scaling": None, "vocab_size": 97, "bos_token_id": 1,
    "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "float16",
    "hidden_act": "silu", "attention_bias": False,
}


# Changes of TINY for ranks that share it: four KV heads, and features that do not divide evenly.
FOUR_HEADS = [("num_key_value_heads", 4), ("intermediate_size", 98)]


def has_samples(path):
    """Whether a run that goes on has written a result in which every case has been timed."""
    try:
        with open(path, encoding="utf-8") as file:
            cases = strict_json(file.read())["cases"]
    except FileNotFoundError:
        return False
    except json.JSONDecodeError:
        return False  # claimed, nothing written yet
    return all(c["timing"] and c["timing"]["samples"] for c in cases)


class ProgramTest(unittest.TestCase):
    """A folder of its own per test, with tiny models and token files in it."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="triforce_cli_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return str(self.folder / name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def tiny(self, shape=(), **changes):
        """Options that run on random weights and token ids, in well under a second."""
        config = self.write("tiny/config.json", json.dumps({**TINY, **dict(shape)}))
        ids = self.write("prompt.ids", "".join(
            " ".join(str(3 + (i * i + 7 * i * d + d) % 90) for i in range(600)) + "\n"
            for d in range(3)))
        options = {"random-weights": config, "random-draft": config, "dataset": ids,
                   "prefill": 128, "gen-len": 12, "budget": 64, "draft-cache-budget": 48,
                   "repetitions": 2, "warmup": 1, "progress": "none",
                   "threads": 1}
        options.update(changes)
        return [word for name, value in options.items() if value is not None
                for word in ([f"--{name}"] if value is True else [f"--{name}", str(value)])]

    def run_program(self, *args, code=0, timeout=120, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        if "stdout" not in kwargs:
            kwargs["stdout"] = subprocess.PIPE
        done = subprocess.run([BINARY, *args], stderr=subprocess.PIPE, timeout=timeout,
                              cwd=self.folder, **kwargs)
        done.err = done.stderr.decode()
        done.out = done.stdout.decode() if done.stdout is not None else ""
        self.assertEqual(done.returncode, code, f"{args}\nstdout: {done.out}\nstderr: {done.err}")
        return done

    def fails(self, code, *args, says=()):
        """Exit code, nothing on stdout, one line on stderr that says all of `says`."""
        done = self.run_program(*args, code=code)
        self.assertEqual(done.out, "")
        self.assertEqual(done.err.count("\n"), 1, done.err)
        self.assertTrue(done.err.startswith("triforce-bench: error: "), done.err)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, done.err)
        return done.err


def strict_json(text):
    """Parses JSON and refuses what Python accepts beyond it."""
    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    def unique(pairs):
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), names
        return dict(pairs)
    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
