"""The cards whose memory kernels are to keep busy, and how many blocks of a kernel fit one of their
multiprocessors.

Limits of a multiprocessor: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability". Multiprocessors, boost clock and bandwidth: the vendor's data sheets. Rates of units:
the guide's table of arithmetic throughput and, for matrix products, the data sheets' TFLOP/s over
multiprocessors and clock. Latencies: published micro-benchmarks (arXiv 2208.11174 for the A100,
2402.13499 for Hopper and Ada), rounded. What the second-level cache gives: 3840 and 1946 bytes a
cycle measured on A100 and RTX 4090 (analysis_A100.md and analysis_RTX4090.md of
github.com/smallscientist1/cuda_microbenchmark, by cp.async); of the H200 the lower end of 5.5 to the
6.65 TB/s that OpenXLA's model of fused products has as measured on an H100 within one half of its
cache; of the RTX 3090, of which there is no measurement, half of the 64 bytes a cycle that each of its
48 slices could give. First-level cache and shared memory are one memory: tuning guides of the
architectures, "Unified Shared Memory/L1/Texture Cache", which also list the sizes that the shared part
can have.

Of Blackwell less is published, and more is assumed.
B200: bandwidth and clock are those of NVIDIA's data sheet, of which 2.25 PFLOP/s make 1.85 GHz.
mma.sync is taken to run at Hopper's rate. FlashAttention 2, which consists of it, reaches 330 to 362
TFLOP/s there (meta-pytorch/tritonbench #171). Each of the two dies is taken to have an H200's
second-level cache. It answers after 150 ns (chipsandcheese.com, "Nvidia's B200"). Half of all requests
are taken to go to the other die, which is 300 cycles more (SemiAnalysis, "Dissecting Nvidia Blackwell").
sm_120: latencies are an RTX 5080's (arXiv 2507.10789), rounded, also those of a GB10's LPDDR5X. The
second-level cache is taken to give a multiprocessor as many bytes a cycle as an RTX 4090's. An RTX
5090 has half the rate of matrix products. The others have all of it: 243 TFLOP/s were measured on an RTX
PRO 6000 of 300 W (github.com/waynehacking8/blackwell-tensorcore-kernels), 92 on a GB10
(huggingface/kernels #283). A GB10 is of compute capability 12.1 and runs code of sm_120.
"""
from dataclasses import dataclass

REGISTERS = 65536       # of a multiprocessor
REGISTER_UNIT = 256     # a warp gets a multiple of it
RESERVED_SHARED = 1024  # bytes of every block
SHARED_UNIT = 128
SHARED_SIZES_KB = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)  # as far as a card has them


@dataclass(frozen=True)
class Card:
    name: str
    architecture: str
    multiprocessors: int
    clock_hz: float
    bytes_per_s: float  # of its memory, nominal
    shared_bytes: int   # of a multiprocessor
    threads: int
    blocks: int
    # Cycles for which one instruction of a warp keeps its unit of a quarter multiprocessor.
    product_cycles: float  # mma.m16n8k16, sums in f32
    f32_cycles: int
    f64_cycles: int
    # Cycles from request to result.
    memory_cycles: int
    l2_cycles: int
    l2_bytes_per_s: float  # to all multiprocessors together
    near_bytes: int        # shared memory and first-level cache of a multiprocessor

    @property
    def block_shared_bytes(self):
        """Shared memory that one block may have."""
        return self.shared_bytes - RESERVED_SHARED

    def memory_cycles_for(self, transfer_bytes):
        """Cycles that a multiprocessor's share of the bandwidth needs for so many bytes."""
        return transfer_bytes * self.multiprocessors / self.bytes_per_s * self.clock_hz

    def l2_cycles_for(self, transfer_bytes):
        """The same of what the second-level cache gives."""
        return transfer_bytes * self.multiprocessors / self.l2_bytes_per_s * self.clock_hz

    def first_level_bytes(self, blocks, shared_bytes):
        """What is left for the first-level cache beside `blocks` blocks of so much shared memory."""
        needed = blocks * round_up(shared_bytes + RESERVED_SHARED, SHARED_UNIT)
        return self.near_bytes - min(
            size for size in (*(k << 10 for k in SHARED_SIZES_KB if k << 10 < self.shared_bytes),
                              self.shared_bytes) if size >= needed)


CARDS = (
    Card("A100", "sm_80", 108, 1.41e9, 2039e9, 164 << 10, 2048, 32, 8, 2, 4, 570, 200, 5.4e12,
         192 << 10),
    Card("H200", "sm_90", 132, 1.755e9, 4800e9, 228 << 10, 2048, 32, 6.5, 1, 2, 660, 260, 5.5e12,
         256 << 10),
    Card("RTX 3090", "sm_86", 82, 1.695e9, 936e9, 100 << 10, 1536, 16, 32, 1, 64, 500, 220,
         2.6e12, 128 << 10),
    Card("RTX 4090", "sm_89", 128, 2.52e9, 1008e9, 100 << 10, 1536, 24, 32, 1, 64, 560, 270,
         4.9e12, 128 << 10),
    Card("B200", "sm_100", 148, 1.85e9, 7700e9, 228 << 10, 2048, 32, 6.5, 1, 2, 810, 430, 11e12,
         256 << 10),
    Card("RTX 5090", "sm_120", 170, 2.407e9, 1792e9, 100 << 10, 1536, 24, 32, 1, 64, 880, 360,
         6.2e12, 128 << 10),
    Card("RTX PRO 6000", "sm_120", 188, 2.6e9, 1792e9, 100 << 10, 1536, 24, 16, 1, 64, 880, 360,
         7.4e12, 128 << 10),
    Card("GB10", "sm_120", 48, 2.5e9, 273e9, 100 << 10, 1536, 24, 16, 1, 64, 880, 360,
         1.8e12, 128 << 10),
)


def round_up(n, unit):
    return -(-n // unit) * unit


def blocks_on(card, registers, threads, shared_bytes):
    """Blocks of a kernel that fit a multiprocessor: registers of a thread, threads of a block, bytes
    of shared memory of a block, static and dynamic. 0: none does."""
    warps = -(-threads // 32)
    of_registers = REGISTERS // (round_up(registers * 32, REGISTER_UNIT) * warps)
    of_shared = card.shared_bytes // round_up(shared_bytes + RESERVED_SHARED, SHARED_UNIT)
    return min(of_registers, of_shared, card.threads // (warps * 32), card.blocks)
