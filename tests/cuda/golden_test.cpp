// Logits of tiny checkpoints on CUDA beside those of Hugging Face transformers.
#include <gtest/gtest.h>

#include "core/forwarding_backend.h"
#include "cuda/cuda_backend.h"
#include "model/golden.h"
#include "reference/reference_backend.h"

namespace triforce {
namespace {

using testing::Golden;
using testing::largest_difference;
using testing::Loaded;
using testing::logits_at;

class CudaGoldenTest : public ::testing::TestWithParam<std::tuple<const char*, DType>> {};

// What rounding to the run's type changes, as the reference sees it: in bf16 it rounds keys, values
// and the inputs of products. f16 has three bits more.
double effect_of_rounding(const Checkpoint& checkpoint, const Golden& g, DType dtype) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Loaded rounded(*reference, checkpoint, DType::kBF16);
  const double effect = largest_difference(logits_at(rounded, g, 100), g.logits);
  EXPECT_GT(effect, 0);
  return dtype == DType::kBF16 ? effect : effect / 8;
}

// CUDA rounds twice as many values, products and weights of attention besides. Errors that cancel
// in one of the two computations may add in the other.
constexpr double kMoreRoundings = 4;

TEST_P(CudaGoldenTest, LogitsAreThoseOfTransformers) {
  const auto& [name, dtype] = GetParam();
  const Golden g = testing::read_golden(name);
  const Checkpoint checkpoint = Checkpoint::open(testing::golden_folder(name));
  const double tolerance = kMoreRoundings * effect_of_rounding(checkpoint, g, dtype);
  const std::unique_ptr<Backend> b = make_cuda_backend({.device = 0, .dtype = dtype});
  Loaded model(*b, checkpoint, dtype);
  for (const std::size_t step : {100U, 32U, 7U}) {
    const double difference = largest_difference(logits_at(model, g, step), g.logits);
    EXPECT_LE(difference, tolerance) << "passes of " << step;
    if (step == 7) std::printf("%s: %.2e of %.2e\n", name, difference, tolerance);
  }
  // Without what its architecture adds the model is another one.
  const ModelConfig& c = checkpoint.config();
  if (!c.has_qkv_bias() && !c.has_head_norms()) return;
  for (LayerWeights& layer : model.weights.layers) {
    layer.qkv.bias = {};
    if (!layer.head_norms) continue;
    std::vector<float> ones(static_cast<std::size_t>(layer.head_norms.view().numel()), 1.0F);
    b->upload(layer.head_norms.view(), make_view(ones.data(), DType::kF32, {std::ssize(ones)}));
  }
  EXPECT_GT(largest_difference(logits_at(model, g, 32), g.logits), 2 * tolerance);
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaGoldenTest,
                         ::testing::Combine(::testing::Values("yarn_theta_bf16", "mistral_bf16",
                                                              "qwen2_bf16", "qwen3_tied_bf16"),
                                            ::testing::Values(DType::kF16, DType::kBF16)),
                         [](const auto& c) {
                           return fmt::format("{}_{}", std::get<0>(c.param),
                                              to_string(std::get<1>(c.param)));
                         });

}  // namespace
}  // namespace triforce
