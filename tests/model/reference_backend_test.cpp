// The oracle itself, on cases small enough to work out by hand.
#include "reference/reference_backend.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/tiny_model.h"

namespace triforce {
namespace {

class Reference : public ::testing::Test {
 protected:
  std::vector<float> probs(std::vector<float> logits, const SamplingParams& params) {
    const auto n = static_cast<std::int64_t>(logits.size());
    std::vector<float> out(logits.size());
    b_->to_probs(make_view(logits.data(), DType::kF32, {1, n}), params,
                 make_view(out.data(), DType::kF32, {1, n}));
    return out;
  }
  Tensor tensor(std::initializer_list<std::int64_t> shape, const std::vector<float>& values) {
    Tensor t(b_->allocator(), DType::kF32, shape, Place::kHost, MemTag::kActivations);
    std::copy(values.begin(), values.end(), t.view().as<float>());
    return t;
  }
  std::unique_ptr<Backend> b_ = make_reference_backend(1);
};

TEST_F(Reference, GreedyTakesTheLowestIdOfTheLargest) {
  EXPECT_EQ(probs({1, 3, 3, 2}, {0, 1, 0}), (std::vector<float>{0, 1, 0, 0}));
  EXPECT_EQ(probs({1, 3, 3, 2}, {0, 0.5F, 2}), (std::vector<float>{0, 1, 0, 0}));
}

TEST_F(Reference, TemperatureThenTopKThenTopP) {
  // At temperature 2, exp(2 ln x / 2) = x: weights 1, 2, 4, 1.
  const std::vector<float> logits = {0, 2 * std::log(2.0F), 2 * std::log(4.0F), 0};
  const auto near = [](const std::vector<float>& got, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(got[i]), expected[i], 2e-7);
    }
  };
  near(probs(logits, {2, 1, 0}), {0.125, 0.25, 0.5, 0.125});
  near(probs(logits, {2, 1, 2}), {0, 1.0 / 3, 2.0 / 3, 0});
  near(probs(logits, {2, 1, 3}), {1.0 / 7, 2.0 / 7, 4.0 / 7, 0});  // of equals the lower id
  near(probs(logits, {2, 0.6F, 0}), {0, 1.0 / 3, 2.0 / 3, 0});     // 0.5 is short of 0.6
  near(probs(logits, {2, 0.6F, 2}), {0, 0, 1, 0});                 // of the top 2, 2/3 is enough
}

TEST_F(Reference, OneNonFiniteLogitMakesTheWholeRowNan) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const float x : probs({1, bad, 2}, {1, 0.9F, 0})) EXPECT_TRUE(std::isnan(x));
    for (const float x : probs({1, bad, 2}, {0, 1, 0})) EXPECT_TRUE(std::isnan(x));
  }
}

TEST_F(Reference, LinearRoundsToTheDtypeOfTheWeights) {
  // 1 + 2^-8 is halfway between two bf16 values and rounds to even, 1; f16 and f32 keep it.
  const float x = 1 + 0x1p-8F;
  for (const auto& [dtype, weight, expected] :
       {std::tuple{DType::kF32, x, x * x}, std::tuple{DType::kF16, x, x * x},
        std::tuple{DType::kBF16, x, 1.0F}, std::tuple{DType::kBF16, 2.0F, 2.0F}}) {
    Matrix m = b_->make_matrix(1, 1, dtype, MemTag::kTargetWeights);
    b_->set_rows(m, 0, tensor({1, 1}, {weight}).view());
    const Tensor out = tensor({1, 1}, {10});
    b_->linear(tensor({1, 1}, {x}).view(), m, out.view(), false);
    EXPECT_EQ(*out.view().as<float>(), expected) << to_string(dtype);
    b_->linear(tensor({1, 1}, {x}).view(), m, out.view(), true);
    EXPECT_EQ(*out.view().as<float>(), 2 * expected) << to_string(dtype);
  }
}

// One head of two dimensions; the second key is the first turned by a right angle.
TEST_F(Reference, AttentionOverTwoRows) {
  std::vector<float> k = {1, 0, 0, 1, 9, 9};
  std::vector<float> v = {1, 2, 3, 4, 9, 9};
  const std::int32_t length = 2;
  KvView kv;
  kv.k = k.data();
  kv.v = v.data();
  kv.kv_heads = kv.layer_heads = 1;
  kv.head_dim = 2;
  kv.capacity = 3;
  kv.head_stride = 6;
  kv.length = &length;
  // Scores sqrt(2) ln 3 / sqrt(2) = ln 3 and 0: probabilities 3/4 and 1/4.
  const auto s = static_cast<float>(std::sqrt(2.0) * std::log(3.0));
  const Tensor q = tensor({2, 1, 2}, {s, 0, s, 0});
  const Tensor out = tensor({2, 2}, {0, 0, 0, 0});
  const Tensor mass = tensor({1, 3}, {7, 7, 7});
  b_->attention(q.view(), kv, {}, out.view(), mass.view(), 1);
  const float* o = out.view().as<float>();
  EXPECT_EQ(o[0], 1);  // the first query sees the first row only
  EXPECT_EQ(o[1], 2);
  EXPECT_NEAR(o[2], 1.5, 2e-7);
  EXPECT_NEAR(o[3], 2.5, 3e-7);
  const float* m = mass.view().as<float>();
  EXPECT_NEAR(m[0], 1.75, 2e-7);
  EXPECT_NEAR(m[1], 0.25, 1e-7);
  EXPECT_EQ(m[2], 0);
}

TEST_F(Reference, ChunksByMeanKeyKeepTheFirst) {
  std::vector<float> k = {0, 0, 0, 0, 1, 0, 3, 0, 5, 0, 5, 0, 2, 0, 2, 0};
  std::vector<float> v(16);
  std::vector<float> to_k(16);
  std::vector<float> to_v(16);
  KvView src;
  src.k = k.data();
  src.v = v.data();
  src.kv_heads = src.layer_heads = 1;
  src.head_dim = 2;
  src.capacity = 8;
  src.head_stride = 16;
  KvView dst = src;
  dst.k = to_k.data();
  dst.v = to_v.data();
  const Tensor scores = tensor({1, 4}, {9, 9, 9, 9});
  b_->score_chunks(tensor({2, 2}, {1, 0, 1, 0}).view(), src, 2, 4, scores.view());
  const float* s = scores.view().as<float>();
  EXPECT_EQ(std::vector<float>(s, s + 4), (std::vector<float>{0, 4, 10, 4}));
  b_->score_chunks(tensor({2, 2}, {1, 0, -2, 0}).view(), src, 2, 4, scores.view(),
                   ChunkRule::kKeyBounds);
  EXPECT_EQ(std::vector<float>(s, s + 4), (std::vector<float>{0, 1, -5, -2}));
  b_->score_chunks(tensor({2, 2}, {1, 0, 1, 0}).view(), src, 2, 4, scores.view());
  std::vector<std::int32_t> ids(3);
  b_->top_chunks(scores.view(), make_view(ids.data(), DType::kI32, {1, 3}));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 2, 1}));  // of equals the lower id
  b_->gather_chunks(src, make_view(ids.data(), DType::kI32, {1, 3}), 2, dst);
  EXPECT_EQ(to_k, (std::vector<float>{0, 0, 0, 0, 5, 0, 5, 0, 1, 0, 3, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace triforce
