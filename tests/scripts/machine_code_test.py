#!/usr/bin/env python3
"""The checks of machine code (tests/cuda/machine_code) find planted mistakes and nothing in code that
has none. What needs nvcc and cuobjdump is skipped without them."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cuda"))
from machine_code import cards, check, expected, issue, rules, sass  # noqa: E402
from machine_code.flow import Flow  # noqa: E402

A100, H200, RTX_3090, RTX_4090, B200, RTX_5090, *_ = cards.CARDS
PLANTED = pathlib.Path(sass.__file__).with_name("planted.cu")
PLANTED_EARLY = PLANTED.with_name("planted_early.cu")


def control(stall=1, written=7, read=7, waits=0):
    return stall << 41 | written << 46 | read << 49 | waits << 52


def listing(*lines):
    """Instructions from lines like "@P0 BRA 0x40"."""
    code = []
    for at, line in enumerate(lines):
        code.append(sass.parse_instruction(
            f"        /*{at * 16:04x}*/     {line} ;    /* 0x0000000000000000 */"))
        code[-1].control = control()
    return code


def starts(flow, blocks):
    return {flow.blocks[b].start for b in blocks}


class Listings(unittest.TestCase):
    def test_instructions_are_read(self):
        kernel, = sass.parse_listing(
            "\tcode for sm_80\n\t\tFunction : _Z1fv\n"
            "        /*0010*/              @!P3 LDG.E.128 R4, [R2.64+0x10] ;   /* 0x0000000402047981 */\n"
            "                                                          /* 0x002ea2000c1e1d00 */\n")
        i, = kernel.instructions
        self.assertEqual((kernel.architecture, i.address, i.predicate, i.opcode, i.operands),
                         ("sm_80", 16, "!P3", "LDG.E.128", "R4, [R2.64+0x10]"))
        self.assertEqual((i.stall, i.written, i.read, i.waits), (1, 2, 7, 0b000010))

    def test_names_are_short(self):
        self.assertEqual(list(sass.demangle(["_ZN8triforce7kernels12_GLOBAL__N_11fILi3EEEvPf"])),
                         ["f<3>"])


class Flows(unittest.TestCase):
    def test_loops_nest(self):
        flow = Flow(listing("NOP", "IADD3 R1", "FADD R2", "@P0 BRA 0x20", "@P1 BRA 0x10", "EXIT",
                            "BRA 0x60"))
        inner, outer = flow.loops()  # the jump to itself that ends all code is none
        self.assertEqual(starts(flow, inner.blocks), {2})
        self.assertEqual(starts(flow, outer.blocks), {1, 2, 4})
        self.assertEqual(outer.inner, inner.blocks)

    def test_code_out_of_line_is_no_loop(self):
        self.assertEqual(Flow(listing("@P0 BRA 0x30", "FADD R1", "EXIT", "MOV R1", "BRA 0x10"))
                         .loops(), [])

    def test_calls_return_or_only_jump(self):
        # 0x60 returns; 0x40, which is called from the loop's end, does not.
        flow = Flow(listing("NOP", "CALL.REL 0x60", "@P0 CALL.REL 0x40", "BRA 0x10", "FADD R1",
                            "EXIT", "MUFU.RCP R1", "RET.REL R2"))
        self.assertEqual(flow.routines, {0x60})
        loop, = flow.loops()
        self.assertEqual(starts(flow, loop.blocks), {1, 3})

    def test_a_full_tile_is_the_way_with_most_work(self):
        flow = Flow(listing("NOP", "@P0 BRA 0x50", "HMMA R1", "LDSM R2", "BRA 0x60", "LDG.E.U16 R3",
                            "@P1 BRA 0x10", "EXIT"))
        path = flow.busiest_path(flow.loops()[0], lambda i: i.starts("HMMA", "LDSM"))
        self.assertEqual([i.address for i in path], [0x10, 0x20, 0x30, 0x40, 0x60])


class Occupancy(unittest.TestCase):
    # As CUDA's occupancy calculator has it.
    def test_blocks(self):
        for card, registers, threads, shared, blocks in (
                (A100, 64, 256, 0, 4), (A100, 65, 256, 0, 3), (A100, 255, 128, 0, 2),
                (A100, 32, 32, 0, 32), (A100, 32, 1024, 0, 2), (A100, 32, 128, 65536, 2),
                (A100, 32, 128, 98304, 1), (H200, 32, 128, 65536, 3), (RTX_4090, 32, 128, 65536, 1),
                (RTX_4090, 32, 1024, 0, 1), (RTX_4090, 32, 32, 0, 24), (RTX_3090, 32, 32, 0, 16),
                (RTX_3090, 32, 128, 101377, 0), (A100, 168, 384, 0, 1),
                (B200, 32, 128, 65536, 3), (RTX_5090, 32, 32, 0, 24), (RTX_5090, 32, 128, 101377, 0)):
            self.assertEqual(cards.blocks_on(card, registers, threads, shared), blocks,
                             (card.name, registers, threads, shared))

    def test_a_share_of_the_bandwidth(self):
        # 2039 GB/s over 108 multiprocessors at 1.41 GHz: 13.4 bytes a cycle.
        self.assertAlmostEqual(A100.memory_cycles_for(32768), 2447.2, delta=0.1)
        # 5.4 TB/s of the second-level cache: 35.5 bytes a cycle.
        self.assertAlmostEqual(A100.l2_cycles_for(32768), 924.1, delta=0.1)

    def test_what_is_left_for_the_first_level_cache(self):
        for card, blocks, shared, left_kb in (
                (A100, 2, 4096, 192 - 16), (A100, 1, 163 << 10, 192 - 164), (H200, 2, 32768, 256 - 100),
                (H200, 3, 16384, 256 - 64), (H200, 0, 0, 256), (RTX_4090, 1, 65536, 128 - 100)):
            self.assertEqual(card.first_level_bytes(blocks, shared), left_kb << 10,
                             (card.name, blocks, shared))


class Issue(unittest.TestCase):
    @staticmethod
    def cycles(code, card=A100, blocks=1, warps=4):
        return issue.cycles_of_turn(code, card, blocks, warps)

    def test_units_have_a_rate(self):
        products = listing(*["HMMA.16816.F32 R1"] * 32)
        self.assertAlmostEqual(self.cycles(products), 32 * 8, delta=2)
        self.assertAlmostEqual(self.cycles(products, RTX_4090), 32 * 32, delta=2)
        self.assertAlmostEqual(self.cycles(listing(*["FFMA R1"] * 64)), 64 * 2, delta=2)
        self.assertAlmostEqual(self.cycles(listing(*["FFMA R1"] * 64), H200), 64, delta=2)
        self.assertAlmostEqual(self.cycles(listing(*["DADD R1"] * 8), RTX_4090), 8 * 64, delta=2)
        # One unit for loads and stores: four warps' matrix loads, 4 cycles each.
        self.assertAlmostEqual(self.cycles(listing(*["LDSM.16.M88.4 R1"] * 16)), 4 * 16 * 4, delta=12)

    def test_a_quarter_issues_one_instruction_a_cycle(self):
        self.assertAlmostEqual(self.cycles(listing(*["NOP"] * 100), warps=16), 400, delta=8)

    def test_a_result_is_waited_for(self):
        code = listing("LDG.E.128 R1", "FADD R2", *["NOP"] * 10)
        code[0].control, code[1].control = control(written=2), control(waits=4)
        alone = self.cycles(code)
        self.assertGreater(alone, A100.l2_cycles)
        self.assertLess(alone, A100.l2_cycles + 40)
        # Other blocks issue meanwhile.
        self.assertLess(self.cycles(code, blocks=4), alone / 3)
        code[1].control = control()
        self.assertLess(self.cycles(code), 20)

    def test_words_come_from_l2_at_its_rate(self):
        words, parts = listing(*["LDG.E R1"] * 64), listing(*["LDG.E.128 R1"] * 64)
        self.assertAlmostEqual(self.cycles(words), 4 * 64 * 2, delta=12)
        self.assertAlmostEqual(self.cycles(parts), 4 * 64 * 4, delta=12)

    def test_stalls_are_kept(self):
        code = listing(*["NOP"] * 10)
        for i in code:
            i.control = control(stall=7)
        self.assertAlmostEqual(self.cycles(code), 70, delta=2)

    def test_a_barrier_waits_for_the_block(self):
        # 8 warps on 4 quarters; those that come first wait for the others.
        code = listing("BAR.SYNC 0x0", *["FFMA R1"] * 20)
        self.assertGreater(self.cycles(code, warps=8), 2 * 20 * 2 - 4)


class Counts(unittest.TestCase):
    def test_three_operands_are_the_work_of_two(self):
        code = listing("FMNMX R1", "FMNMX3 R2", "FADD R3")
        self.assertEqual([check.count_of(code, kind) for kind in ("FMNMX", "FADD", "LDG")], [3, 1, 0])


class Exemptions(unittest.TestCase):
    FINDING = rules.Finding("f<T>", "sm_80", "spill", 5, "5 LDL")

    def judge(self, findings, *exemptions, exact=True):
        return expected.judge(findings, ["sm_80"], exact, exemptions)

    def test_what_is_known_passes(self):
        self.assertEqual(self.judge([self.FINDING], expected.Exemption("spill", "f<T>", 5, "")), [])

    def test_what_is_not_fails(self):
        for other in (expected.Exemption("spill", "g", 5, ""), expected.Exemption("f64", "f<T>", 5, ""),
                      expected.Exemption("spill", "f", 5, "")):
            self.assertIn("f<T> (sm_80): spill: 5 LDL", self.judge([self.FINDING], other))
        elsewhere = expected.Exemption("spill", "f<T>", 5, "", ("sm_90", "sm_100"))
        self.assertEqual(len(self.judge([self.FINDING], elsewhere)), 1)

    def test_more_of_it_fails(self):
        line, = self.judge([self.FINDING], expected.Exemption("spill", "f<T>", 4, ""))
        self.assertIn("expected at most 4, found 5", line)

    def test_an_exemption_without_a_finding_fails(self):
        line, = self.judge([], expected.Exemption("spill", "f<T>", 5, ""))
        self.assertIn("no longer applies to sm_80", line)

    def test_another_compiler_has_other_amounts(self):
        known = expected.Exemption("spill", "f<T>", 4, "")
        self.assertEqual(self.judge([self.FINDING], known, exact=False), [])
        self.assertEqual(self.judge([], known, exact=False), [])
        self.assertEqual(len(self.judge([self.FINDING], exact=False)), 1)


class Blocks(unittest.TestCase):
    @staticmethod
    def words(kernel, architecture, blocks):
        row = {"kernel": kernel, "architecture": architecture, "card": "X", "blocks": blocks,
               "cycles": None, "memory_cycles": None}
        return [f.words for f in check.findings_of(row)]

    def test_prompts_have_two_on_the_cards_of_data_centres(self):
        kernel = "prefill_kernel<T, 128, false>"
        for architecture in ("sm_80", "sm_90"):
            self.assertEqual(self.words(kernel, architecture, 2), [])
            self.assertEqual(self.words(kernel, architecture, 1),
                             ["1 blocks on a multiprocessor, expected at least 2, on X"])
        self.assertEqual(self.words(kernel, "sm_89", 1), [])


class Patterns(unittest.TestCase):
    """A kernel of another name would be checked by nothing."""
    KERNELS = {"split_kernel<T, 128, 1, false>", "split_kernel<T, 64, 1, true>",
               "wide_split_kernel<T, 128, 4, false>", "linear_kernel<T, StoreColumns<T, 2>, 16>",
               "linear_kernel<T, StoreRotated<T>, 1>", "probs_kernel<true, true>",
               "sample_kernel", "verify_kernel", "prefill_kernel<T, 128, false>",
               "prefill_kernel<T, 64, false>", "key_mass_kernel<T>", "read_kernel",
               "expand_keys_kernel<T, 128>", "split_kernel<Codes<T, 4>, 64, 1, false>",
               "rms_norm_kernel<T, 4>", "linear_kernel<Codes<T, 4>, StoreSwiglu<T>, 1>"}

    def test_all_are_used(self):
        self.assertEqual(expected.unused_patterns(self.KERNELS, ["sample_kernel"], ["sm_80"]), [])

    def test_a_kernel_of_one_architecture_is_expected_there(self):
        launches, kernel = ["prefill_wgmma_kernel<T>"], {"prefill_wgmma_kernel<T>"}
        self.assertEqual(expected.unused_patterns(self.KERNELS, launches, ["sm_86", "sm_89"]), [])
        wrong = expected.unused_patterns(self.KERNELS, launches, ["sm_80", "sm_90"])
        self.assertEqual({line.split(":")[0] for line in wrong}, {"REQUIRED", "launches.json"})
        self.assertEqual(
            expected.unused_patterns(self.KERNELS | kernel, launches, ["sm_80", "sm_90"]), [])

    def test_a_renamed_kernel_is_missed(self):
        for kernel, where in (("read_kernel", "REQUIRED"), ("rms_norm_kernel<T, 4>", "EARLY"),
                              ("sample_kernel", "TIMED_PASSES"),
                              ("split_kernel<T, 128, 1, false>", "TIMED_LOOPS"),
                              ("prefill_kernel<T, 64, false>", "BLOCKS")):
            if where == "TIMED_LOOPS":
                kernels = {k for k in self.KERNELS if not k.endswith("1, false>")}
            else:
                kernels = self.KERNELS - {kernel}
            self.assertIn(where, {line.split(":")[0]
                                  for line in expected.unused_patterns(kernels, [], ["sm_80"])})
        line, = expected.unused_patterns(self.KERNELS, ["old_kernel"], ["sm_80"])
        self.assertEqual(line, "launches.json: expected kernels that are old_kernel, found none")


class Early(unittest.TestCase):
    """The law of kernels that begin early, in listings."""
    PREFETCH = ("LDG.E.NA.128", 2)
    CLEAN = ("LDG.E.NA.128.CONSTANT R4, [R2]", "@P1 LDG.E.NA.128.CONSTANT R8, [R2]", "LDS R1, [R9]",
             "@!PT ACQBULK", "ACQBULK", "PREEXIT", "LDG.E R4, [R2]", "STG.E [R2], R4", "EXIT",
             "BRA 0x90")

    def words(self, *lines, prefetch=None, wanted=False, architecture="sm_90"):
        kernel = sass.Kernel("f", "f", architecture, listing(*lines))
        return [f.words for f in rules.early(rules.Code(kernel), prefetch, wanted)]

    def test_the_law_is_kept(self):
        self.assertEqual(self.words(*self.CLEAN, prefetch=self.PREFETCH, wanted=True), [])
        # Other devices have no such launch; and most kernels do not begin early.
        self.assertEqual(self.words("LDG.E R1, [R2]", "EXIT"), [])
        self.assertEqual(self.words("LDG.E R1, [R2]", "EXIT", wanted=True, architecture="sm_89"), [])

    def test_loads_that_are_not_of_weights(self):
        self.assertEqual(self.words(*self.CLEAN, wanted=True),
                         ["LDG.E.NA.128.CONSTANT at 0x0 before ACQBULK",
                          "LDG.E.NA.128.CONSTANT at 0x10 before ACQBULK"])

    def test_a_prefetch_that_is_lost(self):
        late = (self.CLEAN[0], *self.CLEAN[2:5], self.CLEAN[1], *self.CLEAN[5:])
        self.assertEqual(self.words(*late, prefetch=self.PREFETCH),
                         ["1 LDG.E.NA.128 before ACQBULK, expected at least 2"])

    def test_all_that_touches_memory_comes_after_the_wait(self):
        for opcode in ("LD.E", "LDG.E", "ST.E", "STG.E.128", "ATOM.E.ADD", "ATOMG.E.ADD", "RED.E.ADD",
                       "REDG.E.ADD", "LDGSTS.E.BYPASS.128", "UBLKCP.S.G", "UTMALDG.2D", "CCTL.IVALL",
                       "TLD.LZ", "SUST.D.BA", "SULD.D.BA"):
            self.assertEqual(self.words(opcode + " R4", "ACQBULK", "PREEXIT", "EXIT"),
                             [f"{opcode} at 0x0 before ACQBULK"])
        self.assertEqual(self.words("XYZ R4, desc[UR4][R2.64]", "ACQBULK", "PREEXIT", "EXIT"),
                         ["XYZ at 0x0 before ACQBULK"])
        for opcode in ("LDS", "STS", "ATOMS.ADD", "LDL", "STL", "LDC", "LDSM.16.M88.4", "REDUX"):
            self.assertEqual(self.words(opcode + " R4", "ACQBULK", "PREEXIT", "EXIT"), [])

    def test_every_way_comes_to_the_wait(self):
        # Past it by a jump, by a condition, and by an end before it.
        self.assertEqual(self.words("@P0 BRA 0x20", "ACQBULK", "PREEXIT", "STG.E [R2]", "EXIT"),
                         ["PREEXIT at 0x20 before ACQBULK", "STG.E at 0x30 before ACQBULK",
                          "EXIT at 0x40 before ACQBULK"])
        self.assertEqual(self.words("@P0 ACQBULK", "PREEXIT", "EXIT"),
                         ["PREEXIT at 0x10 before ACQBULK", "EXIT at 0x20 before ACQBULK"])
        self.assertEqual(self.words("@P0 EXIT", "ACQBULK", "PREEXIT", "EXIT"),
                         ["EXIT at 0x0 before ACQBULK"])
        self.assertEqual(self.words("@P0 BRX R2", "ACQBULK", "PREEXIT", "EXIT"),
                         ["BRX at 0x0 before ACQBULK"])

    def test_what_is_called_before_the_wait_counts(self):
        self.assertEqual(self.words("CALL.REL 0x50", "ACQBULK", "PREEXIT", "EXIT", "BRA 0x40",
                                    "STG.E [R2]", "RET.REL R2"),
                         ["STG.E at 0x50 before ACQBULK"])
        self.assertEqual(self.words("ACQBULK", "CALL.REL 0x50", "PREEXIT", "EXIT", "BRA 0x40",
                                    "STG.E [R2]", "RET.REL R2"), [])

    def test_kernels_that_begin_early_wait_and_let_go(self):
        self.assertEqual(self.words("STG.E [R2]", "EXIT", wanted=True), ["no ACQBULK", "no PREEXIT"])
        self.assertEqual(self.words("PREEXIT", "STG.E [R2]", "EXIT"), ["no ACQBULK"])
        self.assertEqual(self.words("ACQBULK", "STG.E [R2]", "EXIT"), ["no PREEXIT"])


def compiled(test, source, architecture):
    """(folder, {name: Code} of its kernels) of a source that nvcc compiles for a test class, or
    raises SkipTest."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        raise unittest.SkipTest("no nvcc on this machine")
    try:
        for tool in ("cuobjdump", "nvdisasm"):
            sass.find_tool(tool)
    except sass.NoTools as e:
        raise unittest.SkipTest(str(e))
    folder = tempfile.mkdtemp()
    test.addClassCleanup(shutil.rmtree, folder)
    made = pathlib.Path(folder) / f"{source.name}.o"
    subprocess.run([nvcc, "-std=c++20", "-O3", "-fmad=false", f"-arch={architecture}", "-c", source,
                    "-o", made], check=True)
    return folder, {k.name: rules.Code(k) for k in sass.read_object(made)}


class PlantedEarly(unittest.TestCase):
    """The law of kernels that begin early, in code that nvcc made."""

    def test_mistakes(self):
        _, codes = compiled(type(self), PLANTED_EARLY, "sm_90")
        prefetch = expected.EARLY["linear_kernel"]
        found = {name: [f.words for f in rules.early(code, prefetch, True)]
                 for name, code in codes.items()}
        fetches = ("late", "clean", "load", "store", "atomic", "trigger")
        words = {name.removesuffix("_kernel"): " and ".join(
            w for w in lines if name.startswith(fetches) or not w.startswith("0 LDG"))
            for name, lines in found.items()}
        at = " at 0x[0-9a-f]+ before ACQBULK"
        for name, pattern in (
                ("clean", ""), ("late", "0 LDG.E.NA.128.CONSTANT before ACQBULK, expected at least 8"),
                ("load", rf"LDG\.E{at}"), ("store", rf"STG\.E{at}"),
                ("atomic", rf"(ATOMG|REDG?)\.\S+{at}"), ("copy", rf"LDGSTS\.\S+{at}"),
                ("trigger", rf"PREEXIT{at}"), ("exit", rf"EXIT{at}"),
                ("branch", rf"PREEXIT{at}.*STG\.E{at}.*EXIT{at}"), ("no_wait", "no ACQBULK"),
                ("no_trigger", "no PREEXIT")):
            self.assertRegex(words.pop(name), f"^{pattern}$", name)
        self.assertEqual(words, {})


class Planted(unittest.TestCase):
    """Every rule finds its mistake in code that nvcc made."""

    @classmethod
    def setUpClass(cls):
        cls.folder, cls.codes = compiled(cls, PLANTED, "sm_80")

    def test_rules(self):
        found = {name: {f.rule for f in rules.find(code)} for name, code in self.codes.items()}
        self.assertEqual(found, {
            "spill_kernel": {"spill"}, "generic_kernel": {"generic"}, "serial_kernel": {"serial"},
            "serial_loop_kernel": {"serial"}, "narrow_kernel": {"narrow"}, "f64_kernel": {"f64"},
            "size_kernel": {"size"}, "clean_products_kernel": set(), "slow_products_kernel": set(),
            "cached_kernel": set()})
        self.assertEqual(set(rules.RULES), set().union(*found.values()))  # each has its mistake

    def test_missing_instructions(self):
        stream = ("LDG.E.NA.128", "HMMA.16816.F32")
        self.assertEqual(list(rules.missing(self.codes["clean_products_kernel"], stream)), [])
        self.assertEqual([f.words for f in rules.missing(self.codes["cached_kernel"], stream)],
                         ["no LDG.E.NA.128 in the kernel", "no HMMA.16816.F32 in the kernel"])

    def test_loops_that_issue_longer_than_memory_takes(self):
        timed = expected.TimedLoop(r"(clean|slow)_products_kernel", lambda m: 256 * 16)

        def findings(name, shared_bytes=0):
            with unittest.mock.patch.object(expected, "TIMED_LOOPS", (timed,)):
                row = check.measure(self.codes[name],
                                    {"threads": 256, "shared_bytes": shared_bytes}, A100)
            return [f.words for f in check.findings_of(row)]
        self.assertEqual(findings("clean_products_kernel"), [])
        slow, = findings("slow_products_kernel")
        self.assertRegex(slow, r"a tile takes \d+ cycles, reading it \d+ on A100")
        self.assertEqual(findings("clean_products_kernel", 1 << 20),
                         ["0 blocks on a multiprocessor, expected at least 1, on A100"])
        # Rows that take longer to come than memory takes for the tile: 2.65 times its bytes do.
        timed = expected.TimedLoop(timed.kernel, timed.tile_bytes, lambda m: 256 * 16 * 166 // 100)
        fed, = findings("clean_products_kernel")
        self.assertRegex(fed, r"a tile takes \d+ cycles of the second-level cache, reading it \d+ on")
        timed = expected.TimedLoop(timed.kernel, timed.tile_bytes, lambda m: 256 * 16 * 164 // 100)
        self.assertEqual(findings("clean_products_kernel"), [])
        # A loop that reads nothing from memory is compared with its own products.
        timed = expected.TimedLoop(timed.kernel, lambda m: 0, lambda m: 16, lambda m: 4096)
        self.assertEqual(findings("slow_products_kernel"), [])
        timed = expected.TimedLoop(timed.kernel, lambda m: 0, lambda m: 1 << 20)
        self.assertRegex(findings("clean_products_kernel")[0], r"second-level cache, issuing it \d+ on")

    def test_rows_of_products(self):
        rows = {}
        for timed in expected.TIMED_LOOPS:
            if "linear_kernel" not in timed.kernel:
                continue
            for rest in ("StoreColumns<float, 1>, 2", "StoreSwiglu<T>, 2"):
                if found := re.fullmatch(timed.kernel, f"linear_kernel<T, {rest}>"):
                    rows[rest] = timed.rows_bytes(found)
                    self.assertEqual(timed.tile_bytes(found), 32 << 10)
        # 16 rows of 32 numbers for every tile of weights of 1 KB, or for two of them.
        self.assertEqual(list(rows.values()), [32 << 10, 16 << 10])

    def test_rows_of_products_of_codes(self):
        sizes = {}
        for timed in expected.TIMED_LOOPS:
            for rest in ("4>, StoreSwiglu<T>, 2", "8>, StoreColumns<float, 1>, 1"):
                if found := re.fullmatch(timed.kernel, f"linear_kernel<Codes<T, {rest}>"):
                    sizes[rest] = (timed.tile_bytes(found), timed.rows_bytes(found))
        # 32 groups with their scales; 16 rows of 64 numbers for two of them, or 8 rows for each.
        self.assertEqual(list(sizes.values()),
                         [(32 * (512 + 32), 32 << 10), (32 * (1024 + 32), 32 << 10)])

    def test_a_block_of_wide_attention_takes_a_part_of_a_tile(self):
        bytes_of = {}
        for timed in expected.TIMED_LOOPS:
            for kernel in ("split_kernel<T, 128, 2, false>", "wide_split_kernel<T, 128, 2, false>",
                           "wide_split_kernel<T, 64, 4, false>"):
                if found := re.fullmatch(timed.kernel, kernel):
                    bytes_of[kernel] = timed.tile_bytes(found)
        self.assertEqual(list(bytes_of.values()), [32 << 10, 16 << 10, 4 << 10])

    def test_passes_are_found_by_what_they_do(self):
        code = self.codes["f64_kernel"]
        own = max((own for _, own in code.bodies()), key=len)
        loads = sum(i.starts("LDG") for i in own)
        self.assertGreater(loads, 0)

        def rows(**timed):
            timed = expected.TimedPass(**{"kernel": "f64_kernel", "name": "sum", "lacks": (),
                                          "warps": 2, **timed})
            with unittest.mock.patch.object(expected, "TIMED_PASSES", (timed,)):
                return list(check.measure_passes(code, A100))
        row, = rows(has={"LDG": loads})
        self.assertEqual((row["kernel"], row["card"], row["pass"], row["ids"]),
                         ("f64_kernel", "A100", "sum", loads * 2 * 32))
        self.assertGreater(row["cycles"], A100.l2_cycles)  # one after another
        in_order, = rows(has={"LDG": loads}, loads_an_id=0)
        self.assertEqual(in_order["ids"], loads)  # one addition of a double for each
        self.assertEqual(rows(has={"LDG": loads}, kernel="g"), [])
        for wrong in ({"has": {"LDG": loads + 1}}, {"has": {"LDG": 1}, "lacks": ("LDG",)}):
            with self.assertRaisesRegex(RuntimeError, "expected a loop"):
                rows(**wrong)

    def test_the_program_fails(self):
        done = subprocess.run([sys.executable, check.__file__, "--objects", self.folder],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("spill_kernel (sm_80): spill: ", done.stderr)


class Program(unittest.TestCase):
    def test_no_objects(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, check.__file__, "--objects", folder],
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected objects of .cu files, found none", done.stderr)

    def test_no_tools(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(sass, "INSTALLED_TOOLS", pathlib.Path(folder)), \
                self.assertRaisesRegex(sass.NoTools, "expected in CUDA's bin folder"):
            sass.find_tool("a-tool-that-nobody-has")


if __name__ == "__main__":
    unittest.main()
