// The interpreter on small kernels: values by the PTX manual, and the mistakes that it has to find.
#include "ptx_test_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <regex>
#include <stdexcept>

#include "tf_half_bits.h"

namespace tf_ptx {
namespace {

TEST(Ptx, IntegersWrapRoundAndDivideTowardsZero) {
  EXPECT_EQ(value("add.s32 %out, 2147483647, 2;"), 0x80000001u);
  EXPECT_EQ(value("sub.s32 %out, 3, 5;"), 0xfffffffeu);
  EXPECT_EQ(value("mul.lo.s32 %out, -3, 5;"), static_cast<std::uint32_t>(-15));
  EXPECT_EQ(value("mad.lo.s32 %out, -3, 5, 1;"), static_cast<std::uint32_t>(-14));
  EXPECT_EQ(value("div.s32 %out, -7, 2;"), static_cast<std::uint32_t>(-3));
  EXPECT_EQ(value("div.u32 %out, -7, 2;"), 0x7ffffffcu);
  EXPECT_EQ(value("rem.s32 %out, -7, 2;"), static_cast<std::uint32_t>(-1));
  EXPECT_EQ(value("min.s32 %out, -7, 2;"), static_cast<std::uint32_t>(-7));
  EXPECT_EQ(value("mul.wide.s32 %d1, -3, 5; shr.s64 %d1, %d1, 2; cvt.u32.u64 %out, %d1;"),
            static_cast<std::uint32_t>(-4));
  EXPECT_EQ(value("mul.wide.u32 %d1, -1, 16; shr.u64 %d1, %d1, 32; cvt.u32.u64 %out, %d1;"), 15u);
  EXPECT_EQ(value("cvt.s64.s32 %d1, -5; shr.u64 %d1, %d1, 32; cvt.u32.u64 %out, %d1;"),
            0xffffffffu);
  // Of a register that is wider the low bits.
  EXPECT_EQ(
      value("mov.u64 %d1, 8589934590; cvt.s64.s32 %d1, %d1; shr.u64 %d1, %d1, 32; cvt.u32.u64 "
            "%out, %d1;"),
      0xFFFFFFFFu);
  EXPECT_EQ(value("mov.u32 %out, 0x12348765; cvt.u16.u32 %h1, %out; mov.b32 %out, {%h1, 0};"),
            0x8765u);
  EXPECT_EQ(value("cvt.u64.u32 %d1, -5; shr.u64 %d1, %d1, 32; cvt.u32.u64 %out, %d1;"), 0u);
}

TEST(Ptx, ShiftsPastTheLastBitGiveZerosOrTheSign) {
  EXPECT_EQ(value("shl.b32 %out, 1, 32;"), 0u);
  EXPECT_EQ(value("shl.b32 %out, 3, 31;"), 0x80000000u);
  EXPECT_EQ(value("shr.s32 %out, -8, 40;"), 0xffffffffu);
  EXPECT_EQ(value("shr.u32 %out, -8, 28;"), 15u);
}

TEST(Ptx, Bits) {
  EXPECT_EQ(value("bfi.b32 %out, 0xff, 0x1200034, 8, 12;"), 0x120ff34u & ~0xf0000u);
  EXPECT_EQ(
      value("mov.u32 %r1, 0x33221100; mov.u32 %r2, 0x778855f4; prmt.b32 %out, %r1, %r2, 0xc410;"),
      0xff'f4'11'00u);
  EXPECT_EQ(value("mov.u32 %r1, 0xf0; mov.u32 %r2, 0xcc; lop3.b32 %out, %r1, %r2, 0xaa, 0xea;"),
            0xeau);
  EXPECT_EQ(value("mov.u32 %r1, 0xf0; mov.u32 %r2, 0xcc; lop3.b32 %out, %r1, %r2, 0xaa, 0x16;"),
            0x16u);
  EXPECT_EQ(value("brev.b32 %out, 6;"), 0x60000000u);
  EXPECT_EQ(value("clz.b32 %out, 6;"), 29u);
  EXPECT_EQ(value("bfind.shiftamt.u32 %out, 6;"), 29u);
  EXPECT_EQ(value("bfind.shiftamt.u32 %out, 0;"), 0xffffffffu);
  EXPECT_EQ(value("not.b32 %out, 6;"), ~6u);
  EXPECT_EQ(value("xor.b32 %out, 6, 3;"), 5u);
  EXPECT_EQ(value("mov.u16 %h1, 0x1234; mov.u16 %h2, 0x5678; mov.b32 %out, {%h1, %h2};"),
            0x56781234u);
  EXPECT_EQ(value("mov.u64 %d1, 0x123456789; mov.b64 {%r1, %r2}, %d1; add.s32 %out, %r1, %r2;"),
            0x2345678au);
}

TEST(Ptx, FloatsRoundAsTheirOpcodesSay) {
  EXPECT_EQ(value("add.rn.f32 %f1, 0f3F800000, 0f33800000; mov.b32 %out, %f1;"), of_float(1.0F));
  EXPECT_EQ(value("add.rn.f32 %f1, 0f3F800000, 0f33800001; mov.b32 %out, %f1;"),
            of_float(1.0F + 0x1p-23F));
  // 1 + 2^-24 + ...: to nearest 1 + 2^-23, down 1.
  EXPECT_EQ(value("fma.rm.f32 %f1, 0f3F800000, 0f33800001, 0f3F800000; mov.b32 %out, %f1;"),
            of_float(1.0F));
  // Fused: the product is not rounded before it is added.
  EXPECT_EQ(value("fma.rn.f32 %f1, 0f3F800001, 0f3F800001, 0fBF800002; mov.b32 %out, %f1;"),
            of_float(0x1p-46F));
  EXPECT_EQ(value("cvt.sat.f32.f32 %f1, 0f40000000; mov.b32 %out, %f1;"), of_float(1.0F));
  EXPECT_EQ(value("cvt.sat.f32.f32 %f1, 0f7FC00000; mov.b32 %out, %f1;"), 0u);
  EXPECT_EQ(value("ex2.approx.f32 %f1, 0f40400000; mov.b32 %out, %f1;"), of_float(8.0F));
  EXPECT_EQ(value("ex2.approx.ftz.f32 %f1, 0fC2FE0000; mov.b32 %out, %f1;"), 0u);  // 2^-127
  EXPECT_EQ(value("rcp.approx.ftz.f64 %d1, 0d4008000000000000; mov.b64 {%out, %r1}, %d1;"), 0u);
  EXPECT_EQ(value("cvt.rzi.s32.f32 %out, 0fC0F33333;"), static_cast<std::uint32_t>(-7));  // -7.6
  EXPECT_EQ(value("cvt.rzi.u32.f32 %out, 0fC0F33333;"), 0u);
  EXPECT_EQ(value("cvt.rzi.s32.f32 %out, 0f7F800000;"), 0x7fffffffu);
  EXPECT_EQ(value("cvt.rni.f32.f32 %f1, 0f40200000; mov.b32 %out, %f1;"), of_float(2.0F));  // 2.5
  EXPECT_EQ(value("cvt.rn.f32.s32 %f1, 16777217; mov.b32 %out, %f1;"), of_float(16777216.0F));
}

TEST(Ptx, LeastAndGreatestLetNumbersWinAndKnowTheSignOfZero) {
  EXPECT_EQ(value("max.f32 %f1, 0f7FC00000, 0f3F800000; mov.b32 %out, %f1;"), of_float(1.0F));
  EXPECT_EQ(value("max.f32 %f1, 0f80000000, 0f00000000; mov.b32 %out, %f1;"), 0u);
  EXPECT_EQ(value("min.f32 %f1, 0f00000000, 0f80000000; mov.b32 %out, %f1;"), 0x80000000u);
  EXPECT_EQ(value("min.f32 %f1, 0f7FC00000, 0f7FC00000; mov.b32 %out, %f1;"), 0x7fffffffu);
}

TEST(Ptx, SixteenBitFormats) {
  EXPECT_EQ(value("cvt.rn.f16.f32 %h1, 0f3F801000; mov.b32 %out, {%h1, 0};"),
            0x3c00u);  // ties to even
  EXPECT_EQ(value("cvt.rn.bf16.f32 %h1, 0f3F818000; mov.b32 %out, {%h1, 0};"), 0x3f82u);
  EXPECT_EQ(value("mov.u16 %h1, 0x3c01; cvt.f32.f16 %f1, %h1; mov.b32 %out, %f1;"),
            of_float(1 + 0x1p-10F));
  EXPECT_EQ(value("mov.u16 %h1, 0x3f81; cvt.f32.bf16 %f1, %h1; mov.b32 %out, %f1;"),
            of_float(1 + 0x1p-7F));
}

TEST(Ptx, PairsOfSixteenBitsAreMultipliedAndAdded) {
  EXPECT_EQ(value("mov.u32 %r1, 0x64056408; mov.u32 %r2, 0x3c003c00; mov.u32 %r3, 0xe408e408; "
                  "fma.rn.f16x2 %out, %r1, %r2, %r3;"),
            0xc2000000u);  // 1029 - 1032, 0
  EXPECT_EQ(value("mov.u32 %r1, 0x4305430f; mov.u32 %r2, 0x3f803f80; mov.u32 %r3, 0xc308c308; "
                  "fma.rn.bf16x2 %out, %r1, %r2, %r3;"),
            0xc04040e0u);  // 133 - 136, 7
  EXPECT_EQ(value("mov.u32 %r1, 0x3c013c00; mov.u32 %r3, 0xbc020000; "
                  "fma.rn.f16x2 %out, %r1, %r1, %r3;"),
            0x00103c00u);  // 2^-20: the product is not rounded before it is added
}

// Each with a number, and with a NaN.
TEST(Ptx, ComparisonsWithANaNAreTrueWhereTheirNameEndsInU) {
  struct Case {
    const char* name;
    bool of_numbers, of_nan;  // 1 against 2; 1 against NaN
  };
  for (const Case& c : {Case{"eq", false, false},
                        {"ne", true, false},
                        {"lt", true, false},
                        {"le", true, false},
                        {"gt", false, false},
                        {"ge", false, false},
                        {"neu", true, true},
                        {"ltu", true, true},
                        {"leu", true, true},
                        {"gtu", false, true},
                        {"geu", false, true},
                        {"nan", false, true},
                        {"num", true, false}}) {
    const std::string setp = std::string("setp.") + c.name + ".f32 %p1, 0f3F800000, ";
    EXPECT_EQ(value(setp + "0f40000000; selp.u32 %out, 1, 0, %p1;"), c.of_numbers) << c.name;
    EXPECT_EQ(value(setp + "0f7FC00000; selp.u32 %out, 1, 0, %p1;"), c.of_nan) << c.name;
  }
  EXPECT_EQ(value("setp.lt.s32 %p1, -1, 1; selp.u32 %out, 1, 0, %p1;"), 1u);
  EXPECT_EQ(value("setp.lt.u32 %p1, -1, 1; selp.u32 %out, 1, 0, %p1;"), 0u);
}

TEST(Ptx, LanesThatPartedMeetAgainInEverySchedule) {
  // 100 for odd lanes, then 3 turns a lane of 4 that differ in number.
  const std::string body = R"(
	and.b32 %r1, %t, 1;
	setp.eq.s32 %p1, %r1, 0;
	@%p1 bra $L1;
	mov.u32 %out, 100;
$L1:
	and.b32 %r2, %t, 3;
$L2:
	setp.eq.s32 %p2, %r2, 0;
	@%p2 bra $L3;
	add.s32 %out, %out, 3;
	sub.s32 %r2, %r2, 1;
	bra.uni $L2;
$L3:
	bar.warp.sync -1;
	shfl.sync.idx.b32 %r3|%p3, %out, 3, 31, -1;
	add.s32 %out, %out, %r3;
)";
  for (const Schedule schedule : {Schedule::kLowest, Schedule::kHighest, Schedule::kRandom}) {
    const Ran ran = run(body, {schedule, Sums::kInOrder, 5});
    ASSERT_EQ(ran.outcome.message, "");
    for (std::uint32_t t = 0; t < kWarp; ++t) EXPECT_EQ(ran.out[t], t % 2 * 100 + t % 4 * 3 + 109);
  }
}

TEST(Ptx, ShufflesAndVotes) {
  Ran ran = run("shfl.sync.bfly.b32 %out|%p1, %t, 5, 31, -1;");
  for (std::uint32_t t = 0; t < kWarp; ++t) EXPECT_EQ(ran.out[t], t ^ 5u);
  ran = run("shfl.sync.up.b32 %r1|%p1, %t, 2, 0, -1; selp.u32 %out, %r1, 77, %p1;");
  for (std::uint32_t t = 0; t < kWarp; ++t) EXPECT_EQ(ran.out[t], t < 2 ? 77 : t - 2);
  ran = run("setp.gt.u32 %p1, %t, 29; vote.sync.ballot.b32 %out, %p1, -1;");
  EXPECT_EQ(ran.out[7], 0xc0000000u);
  ran = run("setp.gt.u32 %p1, %t, 31; vote.sync.any.pred %p2, %p1, -1; selp.u32 %out, 1, 2, %p2;");
  EXPECT_EQ(ran.out[7], 2u);
}

// A thread writes its place of shared memory, and reads that of the one 33 further after the
// barrier.
constexpr const char* kExchange = R"(
	shl.b32 %r1, %t, 2;
	mov.u32 %r2, arena;
	add.s32 %r1, %r1, %r2;
	st.shared.u32 [%r1], %t;
	bar.sync 0;
	add.s32 %r3, %t, 33;
	rem.u32 %r3, %r3, 128;
	shl.b32 %r3, %r3, 2;
	add.s32 %r3, %r3, %r2;
	ld.shared.u32 %out, [%r3];
)";

TEST(Ptx, WarpsMeetAtBarriers) {
  const std::string without = std::regex_replace(kExchange, std::regex("bar.sync 0;"), "");
  for (const Schedule schedule : {Schedule::kLowest, Schedule::kHighest, Schedule::kRandom}) {
    const Ran ran = run(kExchange, {schedule, Sums::kInOrder, 3}, 128);
    ASSERT_EQ(ran.outcome.message, "");
    for (std::uint32_t t = 0; t < 128; ++t) EXPECT_EQ(ran.out[t], (t + 33) % 128);
    // Without one, somebody reads too early, whoever goes first.
    EXPECT_NE(run(without, {schedule, Sums::kInOrder, 3}, 128).out, ran.out);
  }
}

TEST(Ptx, AtomicsGiveEveryThreadAnotherNumber) {
  const Ran ran = run(R"(
	setp.ne.s32 %p1, %t, 0;
	@%p1 bra $L1;
	st.shared.u32 [arena], 0;
$L1:
	bar.sync 0;
	atom.shared.add.u32 %out, [arena], 1;
)",
                      {}, 64);
  std::vector<std::uint32_t> sorted = ran.out;
  std::sort(sorted.begin(), sorted.end());
  for (std::uint32_t t = 0; t < 64; ++t) EXPECT_EQ(sorted[t], t);
  // inc goes back to 0 where the bound was reached.
  EXPECT_EQ(run("atom.global.inc.u32 %r1, [%m], 40; ld.global.u32 %out, [%m];", {}, 1, {40}).out[0],
            0u);
}

// 16 bytes of global memory to shared, then read.
std::string copied(const std::string& wait) {
  return R"(
	setp.ne.s32 %p1, %t, 0;
	@%p1 bra $L1;
	mov.u32 %r1, arena;
	mov.u32 %r2, 8;
	cp.async.cg.shared.global [%r1], [%m], 16, %r2;
	cp.async.commit_group;
	cp.async.commit_group;
)" + wait +
         R"(
	ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1];
	add.s32 %out, %r4, %r5;
$L1:
)";
}
TEST(Ptx, CopiesArriveWhenTheyAreWaitedFor) {
  const std::vector<std::uint32_t> before = {1, 20, 300, 4000};
  // 8 bytes are read, the rest is zeros.
  EXPECT_EQ(run(copied("cp.async.wait_group 1;"), {}, kWarp, before).out[0], 20u);
  const Ran ran = run(copied("cp.async.wait_group 2;"), {}, kWarp, before);
  EXPECT_EQ(ran.outcome.fault, Fault::kUnwaited);
  EXPECT_NE(ran.outcome.message.find("ld.shared.v4.u32"), std::string::npos) << ran.outcome.message;
}

TEST(Ptx, AccessesOutsideAreNamed) {
  const Ran global = run("ld.global.u32 %out, [%at+4];");
  EXPECT_EQ(global.outcome.fault, Fault::kOutOfBounds);
  EXPECT_NE(
      global.outcome.message.find("test: block (0,0,0) warp 0: nobody's memory, 4 bytes, lane 31"),
      std::string::npos)
      << global.outcome.message;
  EXPECT_EQ(run("ld.global.u32 %out, [%at+2];").outcome.fault, Fault::kMisaligned);
  EXPECT_EQ(run("ld.shared.u32 %out, [arena+4096];").outcome.fault, Fault::kOutOfBounds);
  EXPECT_EQ(run("ld.shared.u32 %out, [arena+4092];").outcome.fault, Fault::kNone);
  EXPECT_EQ(run("st.global.u32 [8], %t;").outcome.fault, Fault::kOutOfBounds);
}

TEST(Ptx, LanesThatStayAwayAreNamed) {
  const Ran away = run(R"(
	setp.ge.u32 %p1, %t, 16;
	@%p1 bra $L1;
	shfl.sync.bfly.b32 %out|%p2, %t, 1, 31, -1;
	bra.uni $L2;
$L1:
	bar.warp.sync -1;
$L2:
)");
  EXPECT_EQ(away.outcome.fault, Fault::kDivergence);
  EXPECT_NE(away.outcome.message.find("lanes wait for each other"), std::string::npos);
  const Ran ended = run("setp.ge.u32 %p1, %t, 16; @%p1 ret; bar.warp.sync -1;");
  EXPECT_EQ(ended.outcome.fault, Fault::kDivergence);
  EXPECT_NE(ended.outcome.message.find("lanes 0xffff0000 have ended"), std::string::npos);
  EXPECT_EQ(run("setp.ge.u32 %p1, %t, 16; @%p1 bar.sync 0;").outcome.fault, Fault::kDivergence);
}

// One warp multiplies; A 16 x 16 and B 16 x 8 of f16 stand in global memory as fragments: a lane's
// registers one after another.
struct Product {
  std::array<std::array<float, 16>, 16> a{};
  std::array<std::array<float, 8>, 16> b{};
  std::array<std::array<float, 8>, 16> d{};
};

std::vector<float> multiply(const Product& p, Sums sums) {
  const auto half = [](float f) { return tf_emulator::detail::half_of_float(f); };
  std::vector<std::uint32_t> fragments(kWarp * 6);
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    const std::size_t group = lane / 4, pair = lane % 4;
    const auto two = [&](float low, float high) {
      return static_cast<std::uint32_t>(half(low)) | static_cast<std::uint32_t>(half(high)) << 16;
    };
    for (std::size_t r = 0; r < 4; ++r) {
      const auto& row = p.a[group + r % 2 * 8];
      fragments[lane * 6 + r] = two(row[2 * pair + r / 2 * 8], row[2 * pair + r / 2 * 8 + 1]);
    }
    for (std::size_t r = 0; r < 2; ++r) {
      fragments[lane * 6 + 4 + r] =
          two(p.b[2 * pair + 8 * r][group], p.b[2 * pair + 8 * r + 1][group]);
    }
  }
  Program program(kernel(R"(
	mul.wide.u32 %d1, %t, 24;
	add.s64 %d1, %m, %d1;
	ld.global.v2.u32 {%r1, %r2}, [%d1];
	ld.global.v2.u32 {%r3, %r4}, [%d1+8];
	ld.global.v2.u32 {%r5, %r6}, [%d1+16];
	mov.f32 %f1, 0f00000000;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f1,%f1,%f1};
	bar.warp.sync -1;
	mul.wide.u32 %d1, %t, 16;
	add.s64 %d1, %m, %d1;
	st.global.f32 [%d1], %f1;
	st.global.f32 [%d1+4], %f2;
	st.global.f32 [%d1+8], %f3;
	st.global.f32 [%d1+12], %f4;
	mov.u32 %out, %f1;
	mov.u64 %at, %d1;
)"),
                  "mma.ptx");
  Memory memory(4 * fragments.size());
  memory.put(fragments);
  EXPECT_EQ(launch(program, memory, {Schedule::kLowest, sums, 0}).message, "");
  const std::vector<float> raw = memory.as<float>();
  std::vector<float> out(16 * 8);
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    for (std::size_t r = 0; r < 4; ++r) {
      out[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = raw[lane * 4 + r];
    }
  }
  return out;
}

TEST(Ptx, MatricesAreMultipliedAsTheirFragmentsLie) {
  Product p;
  std::mt19937 random(7);
  for (auto& row : p.a)
    for (float& v : row) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
  for (auto& row : p.b)
    for (float& v : row) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
  for (const Sums sums : {Sums::kInOrder, Sums::kTruncated8, Sums::kTruncated16}) {
    const std::vector<float> out = multiply(p, sums);
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t n = 0; n < 8; ++n) {
        float sum = 0;  // whole numbers: exact in any order
        for (std::size_t k = 0; k < 16; ++k) sum += p.a[i][k] * p.b[k][n];
        EXPECT_EQ(out[i * 8 + n], sum);
      }
    }
  }
}

TEST(Ptx, TruncatedSumsCutOffWhatIsTooSmall) {
  // 1 + 3 x 2^-25 is nearer to 1 + 2^-23 than to 1, which is nearer to zero.
  Product p;
  p.a[0][0] = p.b[0][0] = 1;
  for (std::size_t k = 1; k < 4; ++k) p.a[0][k] = 0x1p-12F, p.b[k][0] = 0x1p-13F;
  EXPECT_EQ(multiply(p, Sums::kTruncated8)[0], 1.0F);
  // Eight products of 2^-26 make 2^-23 by themselves; beside a 1 each of them is cut off.
  Product q;
  for (std::size_t k = 0; k < 8; ++k) q.a[0][k] = q.b[k][0] = 0x1p-13F;
  q.a[0][8] = q.b[8][0] = 1;
  EXPECT_EQ(multiply(q, Sums::kTruncated8)[0], 1 + 0x1p-23F);
  EXPECT_EQ(multiply(q, Sums::kTruncated16)[0], 1.0F);
}

TEST(Ptx, MatricesFromSharedMemoryAndTheirTranspose) {
  // Shared memory holds 16-bit numbers 0, 1, ...: row r of matrix i begins at 64 i + 8 r.
  const std::string body = R"(
	shl.b32 %r1, %t, 4;
	mov.u32 %r2, arena;
	add.s32 %r1, %r1, %r2;
	mul.lo.s32 %r3, %t, 524296;
	add.s32 %r3, %r3, 65536;
	st.shared.u32 [%r1], %r3;
	add.s32 %r3, %r3, 131074;
	st.shared.u32 [%r1+4], %r3;
	add.s32 %r3, %r3, 131074;
	st.shared.u32 [%r1+8], %r3;
	add.s32 %r3, %r3, 131074;
	st.shared.u32 [%r1+12], %r3;
	bar.sync 0;
	ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%r4,%r5,%r6,%r7}, [%r1];
	mov.u32 %out, %r6;
)";
  const auto with = [&](const std::string& trans) {
    return std::regex_replace(body, std::regex("TRANS"), trans);
  };
  const Ran plain = run(with("")), transposed = run(with(".trans"));
  ASSERT_EQ(plain.outcome.message, "");
  const Ran moved = run(with("") + "movmatrix.sync.aligned.m8n8.trans.b16 %out, %out;");
  for (std::uint32_t t = 0; t < kWarp; ++t) {
    const std::uint32_t row = t / 4, column = t % 4 * 2, first = 128 + 8 * row + column;
    EXPECT_EQ(plain.out[t], first | (first + 1) << 16);
    const std::uint32_t across = 128 + 8 * column + row;
    EXPECT_EQ(transposed.out[t], across | (across + 8) << 16);
    EXPECT_EQ(moved.out[t], transposed.out[t]);
  }
}

TEST(Ptx, FunctionsAreCalledWithTheLanesThatAreThere) {
  const std::string function = R"(
.func (.param .b32 result) twice(.param .b32 number)
{
	.reg .b32 	%r<4>;
	ld.param.u32 	%r1, [number];
	mov.u32 	%r2, %tid.x;
	add.s32 	%r3, %r1, %r2;
	st.param.b32 	[result], %r3;
	ret;
}
)";
  Program program(function + kernel(R"(
	setp.lt.u32 %p1, %t, 4;
	@%p1 bra $L1;
	{
	.param .b32 param0;
	.param .b32 retval0;
	st.param.b32 [param0], %t;
	call.uni (retval0), twice, (param0);
	ld.param.u32 %out, [retval0];
	}
$L1:
)"),
                  "call.ptx");
  Memory memory(4 * kWarp);
  ASSERT_EQ(launch(program, memory).message, "");
  for (std::uint32_t t = 0; t < kWarp; ++t) {
    EXPECT_EQ(memory.as<std::uint32_t>()[t], t < 4 ? 0 : 2 * t);
  }
}

TEST(Ptx, CoverageSaysWhatNeverRan) {
  Program program(kernel("setp.lt.u32 %p1, %t, 99; @%p1 bra $L1; mov.u32 %out, 5;\n$L1:"),
                  "coverage.ptx");
  const std::vector<Coverage> before = program.coverage();
  for (const std::uint64_t times : before.at(0).executed) EXPECT_EQ(times, 0u);
  Memory memory(4 * kWarp);
  ASSERT_EQ(launch(program, memory).message, "");
  const std::vector<Coverage> coverage = program.coverage();
  ASSERT_EQ(coverage.size(), 1u);
  for (std::size_t i = 0; i < coverage[0].instructions.size(); ++i) {
    EXPECT_EQ(coverage[0].executed[i] == 0, coverage[0].instructions[i] == "mov.u32 %out, 5")
        << coverage[0].instructions[i];
  }
}

TEST(Ptx, WhatIsNotExecutedIsRefusedAndNamed) {
  const auto refused = [](const std::string& body) {
    try {
      Program program(kernel(body), "file.ptx");
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string opcode = refused("add.rz.f32 %f1, %f2, %f3;");
  EXPECT_NE(opcode.find("file.ptx: an opcode that is not executed: add.rz.f32"), std::string::npos)
      << opcode;
  EXPECT_NE(refused("ld.volatile.global.u32 %out, [%m];"), "");
  EXPECT_NE(refused("mov.u32 %out, %nobody;").find("%nobody"), std::string::npos);
  EXPECT_NE(refused("bra $L9;").find("no label $L9"), std::string::npos);
  EXPECT_NE(refused("add.s32 %out, 1;"), "");
}

TEST(Ptx, ArgumentsMustFitTheParameters) {
  Program program(kernel(""), "test.ptx");
  Memory memory(4 * kWarp);
  const std::uint32_t narrow = 0;
  Launch shape;
  shape.arguments = {std::as_bytes(std::span(&narrow, 1))};
  EXPECT_EQ(program.run("test", shape, memory, {}).message,
            "test: argument 1 has 4 bytes, in PTX 8");
  shape.arguments.clear();
  EXPECT_EQ(program.run("test", shape, memory, {}).message, "test: 0 arguments, in PTX 1");
}

TEST(Ptx, NamesOfUnnamedNamespacesAreTheHosts) {
  EXPECT_EQ(Program::kernel_name("_ZN1a41_GLOBAL__N__72f2784a_9_sample_cu_2a908d2a6kernelEv"),
            "_ZN1a12_GLOBAL__N_16kernelEv");
  EXPECT_EQ(Program::kernel_name("_ZN1a12_GLOBAL__N_16kernelEv"), "_ZN1a12_GLOBAL__N_16kernelEv");
  EXPECT_EQ(Program::kernel_name("_Z6kernelv"), "_Z6kernelv");
}

}  // namespace
}  // namespace tf_ptx
