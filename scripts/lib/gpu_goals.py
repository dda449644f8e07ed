"""The goals of a GPU: what scripts/gpu_suite.sh measures against, and scripts/cuda_model.py predicts.

Those of cards are of the paper's setting: Llama2-7B-128K with Llama-68M, 124,928 tokens, budget 4,096.
"""
from dataclasses import dataclass, field

# Acceptance per token: Table 2 of the paper at temperature 0.6. The optimistic rates show what a
# better drafter would give; they are never reported without the paper's beside them.
PAPER_RATES = {"outer": 0.9137, "inner": 0.4036}
OPTIMISTIC_RATES = {"outer": 0.976, "inner": 0.6}
PAPER_GAMMAS = (6, 1)  # gamma and inner gamma
PAPER_PREFILL = 124928


def as_option(rates):
    """Rates as --synthetic-acceptance takes them."""
    return ",".join(f"{level}={rate:g}" for level, rate in rates.items())


@dataclass(frozen=True)
class Goal:
    name: str
    at_least: float = None
    at_most: float = None
    of_card: dict = field(default_factory=dict)  # at most, by what is in a device's name

    def most_on(self, device):
        """What a device is to take at most, or None."""
        return next((most for card, most in self.of_card.items() if card in device), self.at_most)


ATTENTION = Goal("attention, {} rows, of copy bandwidth", at_least=0.92)
LINEAR = Goal("linear layers, {} rows, lowest of copy bandwidth", at_least=0.92)
STEP = Goal("autoregressive step, of its byte floor at copy bandwidth", at_most=1.10)
VERIFICATION = Goal("verification at gamma 6, in autoregressive steps", at_most=1.05)
RETRIEVAL = Goal("retrieval pass, 2 rows, ms", of_card={"H200": 4.0})
DRAFTER = Goal("drafter step, us", of_card={"A100": 160, "H200": 131})
TRIFORCE = Goal("TriForce, paper's rates, gammas 6 and 1, ms/token",
                of_card={"A100": 16.0, "H200": 6.8})
PREFILL = Goal("prefill, s", of_card={"A100": 33.0, "H200": 15.0})
FAR_ROWS = Goal("far KV rows streamed, {} queries, of host-to-device bandwidth", at_least=0.9)
OFFLOAD = Goal("KV offload, stream: of measured host-to-device bandwidth", at_least=0.9)
HYBRID = Goal("KV offload, hybrid: verification, over its bound", at_most=1.15)
