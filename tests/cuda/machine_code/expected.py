"""What is known of the kernels' machine code: instructions that must be there, the loops whose time
is compared with memory's, and the list of exceptions from the rules."""
import re
from dataclasses import dataclass

# The compiler that the amounts below are of. With another one only findings without an exception
# are failures.
NVCC = "13.0"

# In the outermost loop of matrix products, on the way of a full tile, or of the whole kernel where it
# has none. Copies past the first-level cache and without registers, weights read once, operands by
# matrix loads, products by tensor cores.
REQUIRED = {
    "split_kernel": ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4", "MOVM.16.MT88",
                     "HMMA.16816.F32"),
    "wide_split_kernel": ("LDSM.16.M88.4", "LDSM.16.MT88.4", "MOVM.16.MT88", "HMMA.16816.F32"),
    "prefill_kernel": ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4", "HMMA.16816.F32"),
    # Boxes by bulk copies, products of a warpgroup, registers that go from one warpgroup to others.
    "prefill_wgmma_kernel": ("UTMALDG.4D", "HGMMA.64x128x16.F32", "WARPGROUP.DEPBAR",
                             "SYNCS.PHASECHK.TRANS64.TRYWAIT", "USETMAXREG.TRY_ALLOC",
                             "USETMAXREG.DEALLOC"),
    "key_mass_kernel": ("LDSM.16.M88.4", "HMMA.16816.F32"),
    "expand_keys_kernel": ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4",
                           "HMMA.16816.F32"),
    "linear_kernel": ("LDG.E.NA.128.CONSTANT", "HMMA.16816.F32"),
    "read_kernel": ("LDG.E.128",),
}

# Kernels that are compiled for one architecture alone.
ONLY_FOR = {"prefill_wgmma_kernel": "sm_90"}


# Kernels that begin early where the device can, and the loads that they may do before they wait for
# those before them: (opcode, at least how many), or none. The first weights of a product: two loads
# for each of kTilesAhead tiles (kernels/linear_tile.cuh).
EARLY = {
    "rms_norm_kernel": None,
    "split_kernel": None,
    "linear_kernel": ("LDG.E.NA.128.CONSTANT", 8),
}
# The same of kernels that load other ones before it: (a regular expression, loads). With as many
# sums as there are for 128 rows the compiler leaves none. A unit of codes is one load or two, and one
# of its scales.
EARLY_OF = ((r"linear_kernel<.*, 16>", ("LDG.E.NA.128.CONSTANT", 0)),
            (r"linear_kernel<Codes<T, 4>, .*, 1>, 1>", ("LDG.E.NA.", 6)),
            (r"linear_kernel<Codes<T, 4>, .*", ("LDG.E.NA.", 8)),
            (r"linear_kernel<Codes<T, 8>, .*, 2>", ("LDG.E.NA.", 6)),
            (r"linear_kernel<Codes<T, 8>, .*", ("LDG.E.NA.", 12)))


def early_loads(kernel):
    """What a kernel may load before it waits."""
    return next((loads for pattern, loads in EARLY_OF if re.fullmatch(pattern, kernel)),
                EARLY.get(kernel.split("<")[0]))


@dataclass(frozen=True)
class TimedLoop:
    """A loop over tiles. What a block does in a turn, as functions of a match of `kernel`."""
    kernel: str         # a regular expression
    tile_bytes: object  # from memory, which is to take longer than all else; 0: from caches alone
    rows_bytes: object = lambda m: 0  # of activations, from caches, of as many rows as there can be
    operations: object = lambda m: 0  # of floating point, where these are what the loop is for


LINEAR_WARPS = 8  # of a block
WEIGHT_TILE_BYTES = 16 * 32 * 2
PREFILL_ROWS = 128                 # queries of a block


def _linear_tiles(m):
    """Tiles of 16 x 32 weights that a block takes in a turn."""
    return LINEAR_WARPS * (2 if int(m["groups"]) > 12 else 4)


def _rows_of_tiles(m):
    """8 rows of 32 columns for each tile of weights, which tiles of several strips share."""
    return _linear_tiles(m) // int(m["own"] or 2) * int(m["groups"]) * 8 * 32 * 2


def _code_units(m):
    """Groups of 16 x 64 codes, with their scales, that a block takes in a turn."""
    if (m["own"] or "2") == "1":
        return LINEAR_WARPS * (4 if m["bits"] == "8" else 3)
    return LINEAR_WARPS * 2 * (1 if m["bits"] == "8" and int(m["groups"]) > 1 else 2)


def _prefill_keys(m):
    return 32 if int(m["dim"]) > 64 else 64


TIMED_LOOPS = (
    # 64 keys and values of 16 bits.
    TimedLoop(r"split_kernel<T, (\d+), \d, false>", lambda m: 64 * int(m[1]) * 2 * 2),
    # The same of the part of a tile that a block takes; it has 32 rows for each part.
    TimedLoop(r"wide_split_kernel<T, (\d+), (?P<parts>\d), false>",
              lambda m: 64 // int(m["parts"]) * int(m[1]) * 2 * 2),
    # The same in codes, with a scale and a zero of 16 bits for each dimension of keys and each value.
    TimedLoop(r"split_kernel<Codes<T, (?P<bits>\d)>, (?P<dim>\d+), \d, false>",
              lambda m: 2 * 64 * int(m["dim"]) * int(m["bits"]) // 8 + (int(m["dim"]) + 64) * 4),
    TimedLoop(r"linear_kernel<T, Store(Columns<float, (?P<own>\d)>|Swiglu<T>|Rotated<T>), "
              r"(?P<groups>\d+)>",
              lambda m: _linear_tiles(m) * WEIGHT_TILE_BYTES, _rows_of_tiles),
    TimedLoop(r"linear_kernel<Codes<T, (?P<bits>\d)>, Store(Columns<float, (?P<own>\d)>|Swiglu<T>), "
              r"(?P<groups>\d)>",
              lambda m: _code_units(m) * (16 * 64 * int(m["bits"]) // 8 + 32),
              lambda m: _code_units(m) // int(m["own"] or 2) * int(m["groups"]) * 8 * 64 * 2),
    # Keys and values, which blocks of other queries have brought to the second-level cache; a
    # product of queries and keys, one of weights and values.
    TimedLoop(r"prefill_kernel<T, (?P<dim>\d+), false>", lambda m: 0,
              lambda m: _prefill_keys(m) * int(m["dim"]) * 2 * 2,
              lambda m: 2 * 2 * PREFILL_ROWS * _prefill_keys(m) * int(m["dim"])),
)


@dataclass(frozen=True)
class TimedPass:
    """A loop whose time a block waits for, with no other on its multiprocessor; found by what its own
    code has, not that of loops inside it: opcodes and at least how many, none of `lacks`."""
    kernel: str        # a regular expression
    name: str
    has: dict
    lacks: tuple
    warps: int         # that run it
    loads_an_id: int = 1  # 0: it reads no ids of a vocabulary


TIMED_PASSES = (
    # 64 keys of the drafter's window, rotated where they lie.
    TimedPass(r"split_kernel<T, 64, 1, true>", "tile", {"HMMA": 8, "LDSM": 4}, (), 4, 0),
    # Sixteen splits of a row, which a warp of the last block adds.
    TimedPass(r"split_kernel<T, \d+, \d, \w+>", "add", {"SHFL": 32, "FFMA": 32}, ("HMMA",), 4, 0),
    # Logits to shared memory, their greatest and their mean; measures of bins; ids of one bin; the
    # probabilities. Of an atomic operation on the lower half of a bin the one on the upper half, which
    # is rare, stands for lanes that meet.
    TimedPass(r"probs_kernel<.*", "look", {"LDG": 8, "FMNMX": 8}, ("MUFU",), 32),
    TimedPass(r"probs_kernel<.*", "weigh", {"ATOMS": 4, "MUFU": 4}, (), 32),
    TimedPass(r"probs_kernel<.*", "gather", {"FMNMX": 4, "FSETP": 8}, ("ATOMS", "MUFU"), 32),
    TimedPass(r"probs_kernel<.*", "give", {"STG": 4, "MUFU": 4}, (), 32),
    # Sums of chunks; sums of lanes in their order, which one warp makes.
    TimedPass(r"probs_kernel<\w+, true>", "sum", {"DADD": 16, "SHFL": 6}, (), 32),
    TimedPass(r"probs_kernel<\w+, true>", "order", {"DADD": 4, "SHFL": 8}, ("LDS", "LDG"), 1, 0),
    TimedPass(r"sample_kernel", "sum", {"DADD": 16, "SHFL": 6}, (), 16),
    TimedPass(r"sample_kernel", "order", {"DADD": 4, "SHFL": 8}, ("LDS", "LDG"), 1, 0),
    TimedPass(r"verify_kernel", "sum", {"DADD": 32, "SHFL": 6}, (), 16, 2),
    TimedPass(r"verify_kernel", "order", {"DADD": 4, "SHFL": 8}, ("LDS", "LDG"), 1, 0),
)

# Blocks of a kernel that a multiprocessor is to hold: (kernel, {architecture: at least}, else). Two
# cover what the other waits for; with 100 KiB of shared memory split attention has to do with one.
BLOCKS = (
    (r"(wide_)?split_kernel<T, 128, .*", {"sm_80": 2, "sm_90": 2}, 1),
    (r"(wide_)?split_kernel<T, 64, .*", {}, 2),
    (r"prefill_kernel<T, 128, .*", {"sm_80": 2, "sm_90": 2}, 1),
    (r"prefill_kernel<T, 64, .*", {}, 2),
    (r"expand_keys_kernel<.*", {"sm_80": 2, "sm_90": 2, "sm_100": 2}, 1),
    (r"linear_kernel<.*, (8|1\d)>", {}, 1),  # whose registers are full of sums
    (r"linear_kernel<.*", {}, 2),
)


def unused_patterns(kernels, launches, architectures):
    """Lines: what here or among the launches names no kernel, and so checks nothing. Kernels that no
    one of these architectures has are not expected."""
    def is_elsewhere(pattern):
        return any(name in pattern and only not in architectures for name, only in ONLY_FOR.items())
    patterns = ([(name + "(<.*)?", "REQUIRED") for name in REQUIRED] +
                [(name + "(<.*)?", "EARLY") for name in EARLY] +
                [(t.kernel, "TIMED_LOOPS") for t in TIMED_LOOPS] +
                [(t.kernel, "TIMED_PASSES") for t in TIMED_PASSES] +
                [(pattern, "BLOCKS") for pattern, _, _ in BLOCKS] +
                [(re.escape(name), "launches.json") for name in launches])
    return [f"{where}: expected kernels that are {pattern}, found none"
            for pattern, where in dict.fromkeys(patterns)
            if not is_elsewhere(pattern)
            and not any(re.fullmatch(pattern, kernel) for kernel in kernels)]


def blocks_wanted(kernel, architecture):
    """At least how many blocks a multiprocessor is to hold; 1: the kernel is to start at all."""
    for pattern, wanted, otherwise in BLOCKS:
        if re.fullmatch(pattern, kernel):
            return wanted.get(architecture, otherwise)
    return 1


@dataclass(frozen=True)
class Exemption:
    """Findings of a rule that are known. One that finds nothing any more is an error, and so is a
    larger amount."""
    rule: str
    kernel: str           # a regular expression
    amount: int           # the largest of all matching kernels; see rules.py
    reason: str
    architectures: tuple = ()  # empty: all

    def is_for(self, architecture):
        return not self.architectures or architecture in self.architectures


OF_MANY_ROWS = ("products, and rows from the second-level cache, take longer than weights, which are read "
                "once; in parts of 32 rows it would be longer")
OF_MANY_QUERIES = ("products of more than 32 queries take longer than keys, which are read once; "
                   "scripts/cuda_model.py reckons with it")
OF_FEW_BITS = "codes are a quarter or half of the bytes, and rows those of weights of 16 bits"
OF_CODES_OF_ROWS = "codes are a quarter or half of the bytes, and each becomes a value first"
ALL_BUT_RTX_4090 = ("sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
EXEMPTIONS = (
    Exemption("issue", r"linear_kernel<T, StoreColumns<float, 2>, 16>", 668, OF_MANY_ROWS),
    Exemption("l2", r"linear_kernel<T, StoreColumns<float, 2>, 16>", 436, OF_MANY_ROWS),
    Exemption("issue", r"linear_kernel<T, StoreColumns<float, 2>, 12>", 411, OF_MANY_ROWS,
              ALL_BUT_RTX_4090),
    Exemption("l2", r"linear_kernel<T, StoreColumns<float, 2>, 12>", 349, OF_MANY_ROWS,
              ALL_BUT_RTX_4090),
    Exemption("issue", r"linear_kernel<T, StoreColumns<float, 2>, 10>", 312, OF_MANY_ROWS,
              ("sm_80", "sm_86", "sm_90", "sm_100")),
    Exemption("l2", r"linear_kernel<T, StoreColumns<float, 2>, 10>", 305, OF_MANY_ROWS,
              ALL_BUT_RTX_4090),
    Exemption("issue", r"linear_kernel<T, StoreColumns<float, 2>, 8>", 287, OF_MANY_ROWS,
              ("sm_90", "sm_100")),
    Exemption("l2", r"linear_kernel<T, StoreColumns<float, 2>, 8>", 262, OF_MANY_ROWS,
              ("sm_80", "sm_86", "sm_90", "sm_100")),
    Exemption("issue", r"linear_kernel<T, StoreColumns<float, 1>, \d>|split_kernel<T, \d+, 4, false>",
              112, "with the latency that a B200's second-level cache is taken to have, and for 25 to "
              "32 rows; scripts/cuda_model.py reckons with it", ("sm_100",)),
    Exemption("issue", r"wide_split_kernel<T, \d+, 4, false>", 351, OF_MANY_QUERIES),
    Exemption("issue", r"wide_split_kernel<T, \d+, 2, false>", 151, OF_MANY_QUERIES,
              ("sm_86", "sm_90", "sm_100")),
    Exemption("serial", r"linear_kernel<(T|Codes<T, \d>), StoreColumns<float, \d>, \d+>", 2,
              "the residual stream is read and written at the end of a block, two numbers a thread"),
    Exemption("serial", r"gather_kernel", 4,
              "once a rebuild: views hold pointers of which no compiler knows that caches are apart"),
    Exemption("l2", r"linear_kernel<T, .*", 175,
              "where the first-level cache holds none of x, which it does of 4096 columns up to 24 "
              "rows and of 11008 up to 10; scripts/cuda_model.py reckons with the rest",
              ("sm_90", "sm_100")),
    Exemption("issue", r"linear_kernel<Codes<T, 4>, .*", 147, OF_FEW_BITS + "; of rounds that are whole, "
              "which are not what is counted, up to 8 rows take less time than codes", ("sm_90",)),
    Exemption("issue", r"linear_kernel<Codes<T, 4>, .*", 240, OF_FEW_BITS, ("sm_100",)),
    Exemption("issue", r"linear_kernel<Codes<T, 8>, .*", 160, OF_FEW_BITS, ("sm_100",)),
    Exemption("issue", r"split_kernel<Codes<T, 4>, \d+, 1, false>", 145, OF_CODES_OF_ROWS,
              ("sm_80", "sm_86", "sm_90")),
    Exemption("issue", r"split_kernel<Codes<T, 4>, \d+, \d, false>", 303, OF_CODES_OF_ROWS,
              ("sm_80", "sm_86", "sm_90")),
    Exemption("issue", r"split_kernel<Codes<T, 4>, \d+, 4, false>", 103, OF_CODES_OF_ROWS, ("sm_89",)),
    Exemption("issue", r"split_kernel<Codes<T, 4>, \d+, [34], false>", 146, OF_CODES_OF_ROWS,
              ("sm_120",)),
    Exemption("issue", r"split_kernel<Codes<T, 4>, \d+, 1, false>", 196, OF_CODES_OF_ROWS, ("sm_100",)),
    Exemption("issue", r"split_kernel<Codes<T, 4>, \d+, \d, false>", 333, OF_CODES_OF_ROWS, ("sm_100",)),
    Exemption("issue", r"split_kernel<Codes<T, 8>, \d+, [34], false>", 170, OF_CODES_OF_ROWS,
              ("sm_86", "sm_90")),
    Exemption("issue", r"split_kernel<Codes<T, 8>, \d+, \d, false>", 184, OF_CODES_OF_ROWS, ("sm_100",)),
    Exemption("early", r"linear_kernel<Codes<T, 8>, .*, 2>", 6,
              "ptxas for these puts the loads behind the wait, as registers are few",
              ("sm_100", "sm_120")),
    Exemption("l2", r"linear_kernel<Codes<T, 4>, .*", 252, OF_FEW_BITS, ("sm_80", "sm_86", "sm_90", "sm_100")),
    Exemption("l2", r"linear_kernel<Codes<T, 8>, .*", 172, OF_FEW_BITS, ("sm_90", "sm_100")),
    Exemption("narrow", r"score_kernel<.*", 16, "once after a prompt and a rebuild"),
    Exemption("narrow", r"mean_keys_kernel<.*", 1, "each chunk once, and rows may be on the host"),
    Exemption("narrow", r"(pack|unpack)_kernel<.*", 1,
              "weights change their order when they are loaded, and for prompts' products"),
    Exemption("narrow", r"gather_kernel|reorder_rows_kernel", 1,
              "rows change between the device's and the host's order, element by element"),
    Exemption("narrow", r"keep_rows_kernel<unsigned short>", 16,
              "rows on the host, whose elements that follow each other are not of one row"),
    Exemption("f64", r"(sample|verify)_kernel|probs_kernel<\w+, true>", 146,
              "sums over the vocabulary are in double, as the host's are"),
    Exemption("f64", r"probs_kernel<\w+, false>", 8, "the share of a row's granules is in double"),
)


def judge(findings, architectures, exact, exemptions=EXEMPTIONS):
    """Lines: what is wrong with findings of code for `architectures`. `exact`: amounts count, too,
    because the compiler is NVCC's."""
    wrong, used = [], set()
    for f in sorted(findings, key=lambda f: (f.kernel, f.architecture, f.rule, f.words)):
        known = next((e for e in exemptions if e.rule == f.rule and
                      e.is_for(f.architecture) and re.fullmatch(e.kernel, f.kernel)), None)
        if known is None:
            wrong.append(f"{f.kernel} ({f.architecture}): {f.rule}: {f.words}")
            continue
        used.add((known, f.architecture))
        if exact and f.amount > known.amount:
            wrong.append(f"{f.kernel} ({f.architecture}): {f.rule}: {f.words}; expected at most "
                         f"{known.amount}, found {f.amount}")
    for e in exemptions:
        for architecture in architectures:
            if exact and e.is_for(architecture) and (e, architecture) not in used:
                wrong.append(f"the exemption of {e.kernel} from {e.rule} no longer applies to "
                             f"{architecture}: take it out")
    return wrong
