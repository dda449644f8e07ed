"""The cards that passes are predicted for. What is not here comes from `triforce-bench plan` and from
the machine code."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Early:
    """Programmatic dependent launch: the kernels of a recorded pass but its first begin while the one
    before ends. Assumes that the multiprocessors that its last blocks leave have room for blocks of the
    next, as they do: products and attention fill them two to four times. Microseconds: with them a
    recorded pass of Llama-68M takes the 62 us that an H200 was measured to take."""
    gap: float    # from the last block's end to where the blocks that wait go on
    start: float  # of ramp and small: the start of blocks, which is over by then
    first: float  # of a product's ramp: its first weights, which it requests before it waits


@dataclass(frozen=True)
class Card:
    name: str             # of `plan`
    machine: str          # id there, whose gpu_gbs is what kernels achieve
    loops: str            # of loops files
    # Microseconds.
    gap: float            # between two kernels of a replayed graph, or of a stream
    ramp: float           # until a kernel that reads weights or KV runs at full rate, and its end
    small: float          # a kernel of a few rows of activations: start, two round trips, end
    host: float           # the result to the host, the next pass from it
    upload: float
    # What cuBLASLt achieves in the products of a prefill, of the data sheet's 312, 989, 165, 2250, 210
    # and 504 TFLOP/s of dense f16 with sums in f32. Of an H200 it was measured (prefill_linear/* of
    # `triforce-cuda-bench`, less the weights' order), of a GB10 by others (huggingface/kernels #283).
    # Assumed: 79% of an A100 and an RTX PRO 6000, 91% of an RTX 4090 and 5090, of a B200 as of an H200.
    cublas_tflops: float
    # What attention of a prefill achieves, measured; None: it is derived from its machine code, which
    # is not done for kernels that give their products to a warpgroup's unit and go on.
    prefill_tflops: float = None
    early: Early = None   # where kernels begin before those before them have ended


CARDS = (
    Card("A100", "a100-80g", "A100", 1.3, 1.6, 1.4, 20, 3, 245),
    # On one H200: 4096 queries of 32 heads at the end of 124,928 keys.
    Card("H200", "h200", "H200", 1.2, 1.6, 1.4, 20, 3, 700, 610, Early(0.9, 0.1, 0.0)),
    Card("RTX 4090", "rtx4090", "RTX 4090", 1.0, 1.6, 1.2, 18, 3, 150),
    # Nobody has run the program on these. Microseconds are those of the H200 and of the RTX 4090, of
    # whose gap as large a share is left as of the H200's where kernels begin early.
    Card("B200", "b200", "B200", 1.2, 1.6, 1.4, 20, 3, 1590, early=Early(0.9, 0.1, 0.0)),
    Card("RTX 5090", "rtx5090", "RTX 5090", 1.0, 1.6, 1.2, 18, 3, 190, early=Early(0.75, 0.1, 0.0)),
    Card("RTX PRO 6000", "pro6000", "RTX PRO 6000", 1.0, 1.6, 1.2, 18, 3, 400,
         early=Early(0.75, 0.1, 0.0)),
    Card("GB10", "gb10", "GB10", 1.0, 1.6, 1.2, 18, 3, 92, early=Early(0.75, 0.1, 0.0)),
)
