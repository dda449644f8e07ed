// What goes on beside the threads of a block: barriers in shared memory, copies of boxes, matrix
// products of warpgroups.
#include <cmath>
#include <limits>

#include "ptx_test_support.h"
#include "tf_tensor_map.h"

namespace tf_ptx {
namespace {

constexpr Schedule kSchedules[] = {Schedule::kLowest, Schedule::kHighest, Schedule::kRandom};

// Thread 0 makes the barrier of arena, for `arrivals`; %r1 is its address.
std::string with_barrier(const std::string& arrivals, const std::string& body) {
  return R"(
	mov.u32 %r1, arena;
	setp.ne.s32 %p1, %t, 0;
	@%p1 bra $MADE;
	mbarrier.init.shared::cta.b64 [%r1], )" +
         arrivals + R"(;
	fence.mbarrier_init.release.cluster;
$MADE:
	bar.sync 0;
)" + body;
}
// Until the barrier's first phase is over.
const std::string kWait = R"(
$WAIT:
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
	@!%p2 bra $WAIT;
)";

TEST(Asynchronous, ThreadsThatWaitLetOthersGoOn) {
  // Warp 1 stores and arrives twice, the others wait.
  const std::string body = with_barrier("2", R"(
	shr.u32 %r2, %t, 5;
	setp.ne.s32 %p3, %r2, 1;
	@%p3 bra $WAIT;
	mov.u32 %r3, 77;
	st.shared.u32 [%r1+8], %r3;
	bar.warp.sync -1;
	setp.ne.s32 %p4, %t, 32;
	@%p4 bra $WAIT;
	mbarrier.arrive.shared::cta.b64 _, [%r1];
	mbarrier.arrive.shared::cta.b64 _, [%r1];
)" + kWait + "	ld.shared.u32 %out, [%r1+8];\n");
  for (const Schedule schedule : kSchedules) {
    Options options;
    options.schedule = schedule;
    const Ran ran = run(body, options, 4 * kWarp);
    EXPECT_EQ(ran.outcome.message, "");
    EXPECT_EQ(ran.out, std::vector<std::uint32_t>(4 * kWarp, 77));
  }
}

TEST(Asynchronous, ThreadsThatNobodyWakesAreNamed) {
  const Ran ran = run(with_barrier("1", kWait));
  EXPECT_EQ(ran.outcome.fault, Fault::kDivergence);
  EXPECT_NE(ran.outcome.message.find("for ever"), std::string::npos) << ran.outcome.message;
  EXPECT_EQ(run(with_barrier("1", "mbarrier.arrive.shared::cta.b64 _, [%r1+8];")).outcome.fault,
            Fault::kOther);
}

// Rows 3 to 6 of a tensor of 5 rows of 8 elements of 16 bits, which follows its map: two are there.
Ran copied(const std::string& wait) {
  constexpr std::size_t kMap = 128, kRows = 5;
  Program program(kernel(with_barrier("1", R"(
	@%p1 bra $NEXT;
	mov.u32 %r4, 64;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r4;
	add.s32 %r5, %r1, 128;
	mov.u32 %r6, 0;
	mov.u32 %r7, 3;
	cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%m, {%r6, %r7, %r6, %r6}], [%r1];
$NEXT:
)" + wait + R"(
	shl.b32 %r8, %t, 2;
	and.b32 %r8, %r8, 63;
	add.s32 %r8, %r8, %r1;
	ld.shared.u32 %out, [%r8+128];
	add.s64 %at, %at, 256;
)")),
                  "test.ptx");
  Memory memory(256 + 4 * kWarp);
  std::vector<std::uint32_t> words(memory.as<std::uint32_t>());
  tf_emulator::detail::TensorMap map{};
  map.mark = map.kMark;
  map.address = memory.address() + kMap;
  const std::uint64_t dims[] = {8, kRows, 1, 1}, strides[] = {2, 16, 16, 16};
  const std::uint32_t box[] = {8, 4, 1, 1};
  std::copy_n(dims, 4, map.dims);
  std::copy_n(strides, 4, map.strides);
  std::copy_n(box, 4, map.box);
  std::memcpy(words.data(), &map, sizeof(map));
  for (std::uint32_t i = 0; i < kRows * 4; ++i) words[kMap / 4 + i] = 100 + i;
  memory.put(words);
  Ran ran;
  ran.outcome = launch(program, memory, {}, kWarp, 4096);
  const std::vector<std::uint32_t> all = memory.as<std::uint32_t>();
  ran.out.assign(all.begin() + 64, all.end());
  return ran;
}

TEST(Asynchronous, BoxesArriveWhenTheirBarrierIsWaitedFor) {
  const Ran ran = copied(kWait);
  EXPECT_EQ(ran.outcome.message, "");
  for (std::uint32_t i = 0; i < 16; ++i) EXPECT_EQ(ran.out[i], i < 8 ? 112 + i : 0) << i;
  EXPECT_EQ(copied("").outcome.fault, Fault::kUnwaited);
}

// Row n of a matrix in shared memory holds n sixteen times; ones times it. %out is sum number
// `which` of the thread.
std::string product(const std::string& fence, const std::string& wait, int which) {
  std::string declared, zeros, names;
  for (int i = 0; i < 64; ++i) {
    const std::string name = "%s" + std::to_string(i);
    declared += (i > 0 ? ", " : "") + name;
    zeros += "	mov.f32 " + name + ", 0f3F000000;\n";
    names += (i > 0 ? ", " : "") + name;
  }
  return ".reg .f32 " + declared + ";\n" + zeros + R"(
	cvt.rn.f32.s32 %f1, %t;
	cvt.rn.f16.f32 %h1, %f1;
	mov.b32 %r1, {%h1, %h1};
	mov.u32 %r2, arena;
	shl.b32 %r3, %t, 7;
	add.s32 %r3, %r3, %r2;
	and.b32 %r4, %t, 7;
	shl.b32 %r5, %r4, 4;
	add.s32 %r6, %r3, %r5;
	st.shared.v4.u32 [%r6], {%r1, %r1, %r1, %r1};
	xor.b32 %r5, %r5, 16;
	add.s32 %r6, %r3, %r5;
	st.shared.v4.u32 [%r6], {%r1, %r1, %r1, %r1};
	fence.proxy.async.shared::cta;
	bar.sync 0;
	shr.u32 %r7, %r2, 4;
	cvt.u64.u32 %d1, %r7;
	or.b64 %d1, %d1, 4611686293305294848;
	mov.u32 %r8, 1006648320;
)" + fence +
         "	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" + names +
         "}, {%r8, %r8, %r8, %r8}, %d1, 1, 1, 1, 0;\n	wgmma.commit_group.sync.aligned;\n" + wait +
         "	mov.b32 %out, %s" + std::to_string(which) + ";\n";
}
const std::string kFence = "	wgmma.fence.sync.aligned;\n",
                  kWaitGroup = "	wgmma.wait_group.sync.aligned 0;\n";
// One warpgroup.
Ran multiplied(const std::string& body, const Options& options = {}) {
  return run(body, options, 4 * kWarp, {}, 128 * 128);
}

TEST(Asynchronous, WarpgroupsMultiplyMatricesOfSharedMemory) {
  for (const Schedule schedule : kSchedules) {
    for (const int which : {0, 1, 2, 7, 63}) {
      Options options;
      options.schedule = schedule;
      const Ran ran = multiplied(product(kFence, kWaitGroup, which), options);
      ASSERT_EQ(ran.outcome.message, "");
      for (std::uint32_t t = 0; t < 4 * kWarp; ++t) {
        const int column = which / 4 * 8 + static_cast<int>(t % 4) * 2 + which % 2;
        EXPECT_EQ(std::bit_cast<float>(ran.out[t]), 0.5F + 16.0F * static_cast<float>(column)) << t;
      }
    }
  }
}

TEST(Asynchronous, SumsAreNotThereBeforeTheirGroupIsWaitedFor) {
  const Ran ran = multiplied(product(kFence, "", 0));
  EXPECT_EQ(ran.outcome.message, "");
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(ran.out[0])));
  EXPECT_EQ(multiplied(product("", kWaitGroup, 0)).outcome.fault, Fault::kOther);
}

}  // namespace
}  // namespace tf_ptx
