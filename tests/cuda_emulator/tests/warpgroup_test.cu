// Matrix products of warpgroups, barriers in shared memory and copies of boxes: right, and with
// every mistake that the emulator finds.
#include <cmath>
#include <random>

#include "emulator_test_support.h"
#include "kernels/ptx_sm90.cuh"

namespace {

using emulator_test::device_array;
using emulator_test::launch;
using emulator_test::ok;
using emulator_test::to_device;
using tf_emulator::Trap;
namespace ptx = triforce::kernels::ptx;

enum class Mistake {
  kNone,
  kNoWaitForTheCopy,
  kNoWaitForTheProducts,
  kNoFence,
  kNoProxyFence,
  kCopyOverOperands,
  kOperandsRewritten,
  kNobodyArrives,
  kOneWaitsForAll,
  kWarpsApart,
};

constexpr int kRows = 64, kColumns = 128, kDepth = 64;  // one panel
constexpr int kTile = kColumns * 128, kMatrix = kRows * 128;

// out[64 x 128] = a[64 x 64] b^T by one warpgroup. To it ones times the first 16 rows of b are
// added, twice side by side. b comes as a box, its rows swizzled as they lie.
template <Mistake kMistake>
__global__ void multiply(const __grid_constant__ CUtensorMap b, const __half* a, float* out) {
  TF_SHARED(unsigned char, arena);
  const std::uint32_t tile = ptx::shared_address(arena), rows = tile + kTile;
  const std::uint32_t here = rows + kMatrix, free = here + 8;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    ptx::init_barrier(here, 1);
    ptx::init_barrier(free, 1);
    ptx::publish_barriers();
  }
  for (int part = thread; part < kRows * 8; part += 128) {
    const int row = part / 8, c = part % 8;
    auto* const to = reinterpret_cast<__half*>(arena + kTile + row * 128 + (c ^ row % 8) * 16);
    for (int i = 0; i < 8; ++i) to[i] = a[row * kDepth + c * 8 + i];
  }
  if (kMistake != Mistake::kNoProxyFence) ptx::fence_async_proxy();
  __syncthreads();
  if (thread == 127) {  // the first to go on
    if (kMistake != Mistake::kNobodyArrives) ptx::arrive_expecting(here, kTile);
    ptx::copy_box(tile, b, 0, 0, 0, 0, here);
  }
  const bool waits = kMistake == Mistake::kNoWaitForTheCopy ? false
                     : kMistake == Mistake::kOneWaitsForAll ? thread >= 96
                                                            : true;
  if (waits) ptx::wait(here, 0);
  ptx::Sums d;
  if (kMistake != Mistake::kNoFence) ptx::products_fence();
  for (int k = 0; k < kDepth / 16; ++k) {
    const int other = kMistake == Mistake::kWarpsApart && thread >= 96 ? 3 - k : k;
    ptx::products<__half>(d, ptx::swizzled_matrix(rows + other * 32, 16, 1024),
                          ptx::swizzled_matrix(tile + other * 32, 16, 1024), k > 0);
  }
  const std::uint32_t one = 0x3c003c00;
  std::uint32_t ones[4] = {one, one, one, one};
  ptx::products<__half>(d, ones, ptx::swizzled_matrix(tile, 0, 1024));
  ptx::products_commit();
  if (kMistake == Mistake::kOperandsRewritten) ones[1] = 0;
  if (kMistake == Mistake::kCopyOverOperands && thread == 0) {
    ptx::arrive_expecting(here, kTile);
    ptx::copy_box(tile, b, 0, 0, 0, 0, here);
  }
  float early = 0;
  if (kMistake == Mistake::kNoWaitForTheProducts) early = d[0][0];
  ptx::products_wait<0>(d);
  if (kMistake == Mistake::kNone) {
    // Who has waited may have the tile loaded anew.
    if (thread == 0) ptx::arrive(free);
    if (thread == 32) {
      ptx::wait(free, 0);
      ptx::arrive_expecting(here, kTile);
      ptx::copy_box(tile, b, 0, 64, 0, 0, here);
      ptx::wait(here, 1);
    }
  }
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      out[(row + i / 2 * 8) * kColumns + n * 8 + lane % 4 * 2 + i % 2] = d[n][i] + early;
    }
  }
}

class WarpgroupTest : public emulator_test::Emulator {
 protected:
  static constexpr int kTensorRows = 100;  // fewer than the box has: zeros follow

  void SetUp() override {
    Emulator::SetUp();
    on(90);
    std::mt19937 random(3);
    std::uniform_int_distribution<int> small(-8, 8);
    for (auto* const values : {&a_, &b_}) {
      values->resize(values == &a_ ? kRows * kDepth : kTensorRows * kDepth);
      for (float& v : *values) v = static_cast<float>(small(random));
    }
    std::vector<__half> a(a_.size()), b(b_.size());
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = __float2half(a_[i]);
    for (int row = 0; row < kTensorRows; ++row) {
      for (int j = 0; j < kDepth; ++j) {
        b[static_cast<std::size_t>(row * kDepth + ((j / 8) ^ row % 8) * 8 + j % 8)] =
            __float2half(b_[static_cast<std::size_t>(row * kDepth + j)]);
      }
    }
    device_a_ = device_array<__half>(a.size());
    device_b_ = device_array<__half>(b.size());
    to_device(device_a_, a.data(), a.size() * 2);
    to_device(device_b_, b.data(), b.size() * 2);
    out_ = device_array<float>(kRows * kColumns);
  }

  static void on(int architecture) {
    tf_emulator::Limits limits;
    limits.architecture = architecture;
    tf_emulator::set_limits(limits);
  }

  CUtensorMap tensor() {
    using Encode =
        CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    void* encode = nullptr;
    cudaDriverEntryPointQueryResult answer{};
    ok(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                        &answer));
    EXPECT_EQ(answer, cudaDriverEntryPointSuccess);
    const cuuint64_t dims[] = {kDepth, kTensorRows, 1, 1}, strides[] = {128, 16, 16};
    const cuuint32_t box[] = {kDepth, kColumns, 1, 1}, every[] = {1, 1, 1, 1};
    CUtensorMap map;
    EXPECT_EQ(reinterpret_cast<Encode*>(encode)(
                  &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, device_b_, dims, strides, box, every,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_SUCCESS);
    return map;
  }

  template <Mistake kMistake>
  void run() {
    launch(multiply<kMistake>, 1, 128, kTile + kMatrix + 16, stream_, tensor(), device_a_, out_);
  }

  std::vector<float> result() {
    std::vector<float> out(kRows * kColumns);
    ok(cudaMemcpy(out.data(), out_, out.size() * 4, cudaMemcpyDeviceToHost));
    return out;
  }

  std::vector<float> a_, b_;
  __half *device_a_ = nullptr, *device_b_ = nullptr;
  float* out_ = nullptr;
};

TEST_F(WarpgroupTest, ProductsAreThoseOfTheMatrices) {
  run<Mistake::kNone>();
  expect_fine();
  const auto b = [&](int row, int j) {
    return row < kTensorRows ? b_[static_cast<std::size_t>(row * kDepth + j)] : 0.0F;
  };
  const std::vector<float> got = result();
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kColumns; ++n) {
      float sum = 0;
      for (int k = 0; k < kDepth; ++k)
        sum += a_[static_cast<std::size_t>(m * kDepth + k)] * b(n, k);
      for (int k = 0; k < 16; ++k) sum += b(k, n % 64);
      ASSERT_EQ(got[static_cast<std::size_t>(m * kColumns + n)], sum) << m << " " << n;
    }
  }
}

TEST_F(WarpgroupTest, SumsAreNotThereBeforeTheyAreWaitedFor) {
  run<Mistake::kNoWaitForTheProducts>();
  expect_fine();
  for (const float v : result()) ASSERT_TRUE(std::isnan(v));
}

TEST_F(WarpgroupTest, ReadOfWhatABoxFillsBeforeItsBarrier) {
  run<Mistake::kNoWaitForTheCopy>();
  expect_trap(Trap::kUninitialised,
              {"multiply", "before the cp.async that fills it was waited for"});
}

TEST_F(WarpgroupTest, WarpsThatHaveNotWaitedForTheBarrierThemselves) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  run<Mistake::kOneWaitsForAll>();
  expect_trap(Trap::kRace, {"wgmma reads", "a copy"});
}

TEST_F(WarpgroupTest, OrdinaryStoresWithoutAProxyFence) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  run<Mistake::kNoProxyFence>();
  expect_trap(Trap::kRace, {"wgmma reads", "fence.proxy.async"});
}

TEST_F(WarpgroupTest, CopyOverOperandsOfProductsUnderWay) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  run<Mistake::kCopyOverOperands>();
  expect_trap(Trap::kRace, {"cp.async.bulk.tensor", "a matrix product"});
}

TEST_F(WarpgroupTest, RegistersWrittenBeforeTheirProductWasWaitedFor) {
  run<Mistake::kOperandsRewritten>();
  expect_trap(Trap::kRace, {"registers of a product"});
}

TEST_F(WarpgroupTest, NoFenceBeforeTheFirstProduct) {
  run<Mistake::kNoFence>();
  expect_trap(Trap::kOther, {"wgmma.fence"});
}

TEST_F(WarpgroupTest, WarpsOfAWarpgroupWithOtherOperands) {
  run<Mistake::kWarpsApart>();
  expect_trap(Trap::kDivergence, {"another warp of the warpgroup"});
}

TEST_F(WarpgroupTest, BarrierThatIsNeverComplete) {
  run<Mistake::kNobodyArrives>();
  expect_trap(Trap::kDeadlock, {"waits for an mbarrier"});
}

TEST_F(WarpgroupTest, OtherDevicesHaveNoneOfIt) {
  on(80);
  run<Mistake::kNone>();
  expect_trap(Trap::kOther, {"code of sm_90a on a device of sm_80"});
}

}  // namespace
