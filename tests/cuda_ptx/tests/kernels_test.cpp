// The interpreter on what nvcc makes of kernels/*.cu.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ptx.h"

namespace tf_ptx {
namespace {

std::string folder(const std::string& architecture) {
  return std::string(TF_PTX_DIR) + "/" + architecture;
}

class Kernels : public testing::TestWithParam<const char*> {
 protected:
  Program program_{folder(GetParam())};
};

// A program that has an opcode which is not executed is not read: its constructor throws.
TEST_P(Kernels, AreTheSameOnBothArchitecturesButForThoseOfSm90a) {
  const Program other(folder("sm_80"));
  std::vector<std::string> names = program_.kernels();
  const auto of_sm_90a = [](const std::string& name) {
    return name.find("prefill_wgmma_kernel") != std::string::npos;
  };
  EXPECT_EQ(std::erase_if(names, of_sm_90a), GetParam() == std::string("sm_90") ? 2U : 0U);
  EXPECT_EQ(names, other.kernels());
  EXPECT_GE(program_.kernels().size(), 100u);
}

// One allocation.
class Memory final : public GlobalMemory {
 public:
  explicit Memory(std::size_t floats) : values(floats) {}
  bool may_use(std::uintptr_t address, std::size_t bytes, bool) override {
    const std::uintptr_t at = address - reinterpret_cast<std::uintptr_t>(values.data());
    const std::size_t size = values.size() * sizeof(float);
    return at < size && bytes <= size - at;
  }
  std::string describe(std::uintptr_t) override { return "nobody's memory"; }
  std::vector<float> values;
};

// rms_norm_kernel of f32: every bit of what the source says, in the order in which it says it.
TEST_P(Kernels, NormaliseRows) {
  constexpr std::size_t kRows = 3, kWidth = 1000, kThreads = 256, kPerThread = 4;
  const std::string kernel =
      "_ZN8triforce7kernels12_GLOBAL__N_115rms_norm_kernelIfLi4EEEvPKflS4_lfPT_l";
  ASSERT_TRUE(program_.has(kernel));
  Memory memory(kRows * kWidth * 2 + kWidth);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& v : memory.values) v = normal(random);
  const float* const x = memory.values.data();
  const float* const weight = x + kRows * kWidth;
  float* const out = memory.values.data() + kRows * kWidth + kWidth;
  const std::int64_t width = kWidth;
  const float epsilon = 1e-5F;
  Launch launch;
  launch.grid.x = kRows;
  launch.block.x = kThreads;
  launch.shared_bytes = kThreads / 32 * sizeof(float);
  const auto bytes = [](const auto& value) { return std::as_bytes(std::span(&value, 1)); };
  launch.arguments = {bytes(x),       bytes(width), bytes(weight), bytes(width),
                      bytes(epsilon), bytes(out),   bytes(width)};
  ASSERT_EQ(program_.run(kernel, launch, memory, {}).message, "");
  for (std::size_t row = 0; row < kRows; ++row) {
    const float* const from = x + row * kWidth;
    // A thread's every 256th element, then lanes by halves, then warps in order.
    std::vector<float> sums(kThreads);
    for (std::size_t i = 0; i < kThreads; ++i) {
      for (std::size_t j = 0; j < kPerThread; ++j) {
        const std::size_t at = i + kThreads * j;
        const float v = at < kWidth ? from[at] : 0;
        sums[i] = std::fma(v, v, sums[i]);
      }
    }
    for (std::size_t half = 16; half > 0; half /= 2) {
      const std::vector<float> before = sums;
      for (std::size_t i = 0; i < kThreads; ++i) sums[i] = before[i] + before[i ^ half];
    }
    float all = sums[0];
    for (std::size_t warp = 1; warp < kThreads / 32; ++warp) all += sums[32 * warp];
    const float scale = 1.0F / std::sqrt(all / static_cast<float>(kWidth) + epsilon);
    for (std::size_t i = 0; i < kWidth; ++i) {
      ASSERT_EQ(out[row * kWidth + i], from[i] * scale * weight[i]) << row << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ptx, Kernels, testing::Values("sm_80", "sm_90"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace tf_ptx
