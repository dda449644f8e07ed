// Logits of tiny checkpoints against Hugging Face transformers and, for yarn, the published
// modeling code's formula; scripts/make_golden_models.py made them.
#include <gtest/gtest.h>

#include "core/forwarding_backend.h"
#include "cpu/cpu_backend.h"
#include "model/golden.h"

namespace triforce {
namespace {

using testing::f32_tolerance;
using testing::Golden;
using testing::golden_folder;
using testing::largest_difference;
using testing::Loaded;
using testing::logits_at;
using testing::read_golden;

class GoldenLogits : public ::testing::TestWithParam<const char*> {};

void expect_logits(Backend& b, const std::string& name, double roundings) {
  const Golden g = read_golden(name);
  ASSERT_EQ(g.tokens.size(), 100U);
  ASSERT_GE(g.reference_error, 0);
  const Checkpoint checkpoint = Checkpoint::open(golden_folder(name));
  ASSERT_EQ(static_cast<std::int64_t>(g.logits.size()),
            static_cast<std::int64_t>(g.positions.size()) * checkpoint.config().vocab);
  const double tolerance = f32_tolerance(b, checkpoint, g, roundings);
  Loaded model(b, checkpoint, DType::kF32);
  for (const std::size_t step : {100U, 33U, 32U, 7U, 1U}) {
    const double difference = largest_difference(logits_at(model, g, step), g.logits);
    EXPECT_LE(difference, tolerance) << b.description() << ", passes of " << step;
    if (step == 1) std::printf("%s: %.2e of %.2e\n", name.c_str(), difference, tolerance);
  }
}

TEST_P(GoldenLogits, ReferenceBackend) {
  const std::unique_ptr<Backend> b = make_reference_backend();
  expect_logits(*b, GetParam(), 4);
}

TEST_P(GoldenLogits, CpuBackendAtEveryLevel) {
  for (const cpu::Isa isa : cpu::usable_isas()) {
    const std::unique_ptr<Backend> b = make_cpu_backend({2, isa});
    expect_logits(*b, GetParam(), 100);
  }
}

// Rows in host memory, all of them or but for a head, brought through slots or read where they lie.
TEST_P(GoldenLogits, OffloadedRowsChangeNoBit) {
  const Golden g = read_golden(GetParam());
  const Checkpoint checkpoint = Checkpoint::open(golden_folder(GetParam()));
  const std::unique_ptr<Backend> b = make_cpu_backend({2, {}});
  Loaded model(*b, checkpoint, DType::kF32);
  const auto layers = static_cast<std::size_t>(checkpoint.config().layers);
  for (const int near : {0, std::min(1, checkpoint.config().kv_heads - 1)}) {
    for (const int slots : {0, 2}) {
      const KvHomes homes{std::vector<int>(layers, near), slots};
      for (const std::size_t step : {32U, 1U}) {
        EXPECT_EQ(model.run(g.tokens, step, homes), model.run(g.tokens, step))
            << near << " near, " << slots << " slots, passes of " << step;
      }
    }
  }
}

// Mistakes in where the biases of Qwen2 and the norms of Qwen3's heads belong.
enum class Mistake : std::uint8_t { kNoBias, kBiasOfAnotherHead, kNoNorm, kNormOfAnotherHead };

class Mistaken final : public ForwardingBackend {
 public:
  Mistaken(Backend& to, Mistake mistake) : ForwardingBackend(to), mistake_(mistake) {}

 private:
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override {
    ForwardingBackend::do_linear(x, w, out, accumulate, path);
    if (!w.bias || mistake_ > Mistake::kBiasOfAnotherHead) return;
    const auto* bias = w.bias.view().as<const float>();
    constexpr std::int64_t kHeadDim = 64;
    for (std::int64_t t = 0; t < out.shape[0]; ++t) {
      float* const row = out.as<float>() + t * out.stride[0];
      for (std::int64_t i = 0; i < w.rows; ++i) {
        row[i] -= bias[i];
        if (mistake_ == Mistake::kBiasOfAnotherHead) row[i] += bias[(i + kHeadDim) % w.rows];
      }
    }
  }
  void do_head_norm(TensorView x, TensorView w, float eps) override {
    if (mistake_ == Mistake::kNoNorm) return;
    if (mistake_ == Mistake::kNormOfAnotherHead) {  // that of k's heads for q's
      const Tensor all_of_last(allocator(), DType::kF32, {w.shape[0], w.shape[1]}, place(),
                               MemTag::kWorkspace);
      const TensorView to = all_of_last.view();
      for (std::int64_t h = 0; h < w.shape[0]; ++h) copy(to.rows(h, 1), w.rows(w.shape[0] - 1, 1));
      return ForwardingBackend::do_head_norm(x, to, eps);
    }
    ForwardingBackend::do_head_norm(x, w, eps);
  }
  Mistake mistake_;
};

TEST(GoldenArchitectures, MistakesAreFarBeyondTheTolerance) {
  const std::unique_ptr<Backend> b = make_cpu_backend({2, {}});
  const std::pair<const char*, Mistake> cases[] = {
      {"qwen2_bf16", Mistake::kNoBias},
      {"qwen2_bf16", Mistake::kBiasOfAnotherHead},
      {"qwen3_tied_bf16", Mistake::kNoNorm},
      {"qwen3_tied_bf16", Mistake::kNormOfAnotherHead}};
  for (const auto& [name, mistake] : cases) {
    const Golden g = read_golden(name);
    const Checkpoint checkpoint = Checkpoint::open(golden_folder(name));
    const double tolerance = f32_tolerance(*b, checkpoint, g, 100);
    Mistaken mistaken(*b, mistake);
    Loaded model(mistaken, checkpoint, DType::kF32);
    EXPECT_GT(largest_difference(logits_at(model, g, 32), g.logits), 10 * tolerance)
        << name << ", mistake " << static_cast<int>(mistake);
  }
}

// Verification is bit-identical. Logits of passes of 1..32 rows are equal, at every level
// and dtype.
TEST_P(GoldenLogits, PassesOfUpTo32RowsHaveTheSameBits) {
  const Golden g = read_golden(GetParam());
  const Checkpoint checkpoint = Checkpoint::open(golden_folder(GetParam()));
  for (const cpu::Isa isa : cpu::usable_isas()) {
    const std::unique_ptr<Backend> b = make_cpu_backend({2, isa});
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Loaded model(*b, checkpoint, dtype);
      const std::vector<float> expected = model.run(g.tokens, 1);
      for (const std::size_t step : {2U, 3U, 7U, 8U, 17U, 32U}) {
        EXPECT_EQ(model.run(g.tokens, step), expected)
            << b->description() << " " << to_string(dtype) << ", passes of " << step;
      }
    }
  }
}

TEST(LoadWeights, ReportsProgressInBytesOfTheRunsDtype) {
  const Checkpoint checkpoint = Checkpoint::open(golden_folder("yarn_sharded_f16"));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::unique_ptr<Backend> b = make_reference_backend();
    std::int64_t last = 0;
    const ModelWeights w =
        load_weights(*b, checkpoint, checkpoint.config(), dtype, MemTag::kDraftWeights,
                     [&](std::int64_t done, std::int64_t total) {
                       EXPECT_GT(done, last);
                       EXPECT_EQ(total, checkpoint.config().weight_bytes(dtype));
                       last = done;
                     });
    EXPECT_EQ(last, checkpoint.config().weight_bytes(dtype));
    // All of it is in the ledger under its tag.
    EXPECT_EQ(b->allocator().ledger(MemTag::kDraftWeights).live_bytes, last);
    EXPECT_EQ(w.config_sha256, checkpoint.config_sha256());
    EXPECT_FALSE(w.random);
  }
}

// A drafter takes its target's vocabulary. Logits of ids that it has keep their bits; others are
// never proposed, and may be read.
TEST(LoadWeights, AnotherVocabulary) {
  for (const char* name : {"mha_f32", "tied_head_dim_bf16", "qwen3_tied_bf16"}) {
    const Checkpoint checkpoint = Checkpoint::open(golden_folder(name));
    for (const bool reference : {true, false}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, reference ? "reference" : "cpu"));
      const auto backend = reference ? make_reference_backend() : make_cpu_backend({});
      ModelConfig c = checkpoint.config();
      const std::int64_t own = c.vocab;
      const std::vector<Token> tokens = {0, 5, static_cast<Token>(own - 6), 1, 7};
      testing::Loaded plain(*backend, checkpoint, DType::kF32);
      const auto live = [&] {
        return backend->allocator().ledger(MemTag::kTargetWeights).live_bytes;
      };
      const std::int64_t besides = live() - c.weight_bytes(DType::kF32);  // tables of RoPE
      const std::vector<float> expected = plain.run(tokens, 3);
      for (const std::int64_t vocab : {own + 70, own - 5}) {
        c.vocab = vocab;
        c.stored_vocab = vocab > own ? own : 0;
        const std::int64_t before = live();
        testing::Loaded other(*backend, checkpoint, c, DType::kF32);
        if (reference) {
          EXPECT_EQ(live() - before - besides, c.weight_bytes(DType::kF32));
        }
        EXPECT_EQ(other.weights.weights_digest, plain.weights.weights_digest);
        const std::vector<float> found = other.run(tokens, 3);
        ASSERT_EQ(std::ssize(found), std::ssize(tokens) * vocab);
        for (std::int64_t row = 0; row < std::ssize(tokens); ++row) {
          for (std::int64_t id = 0; id < vocab; ++id) {
            const float logit = found[static_cast<std::size_t>(row * vocab + id)];
            if (id < own) {
              ASSERT_EQ(logit, expected[static_cast<std::size_t>(row * own + id)]) << id;
            } else {
              ASSERT_LT(logit, -1e29F) << id;
            }
          }
        }
        if (vocab < own) continue;
        const std::vector<Token> beyond = {static_cast<Token>(own + 3)};
        const std::vector<float> after = other.run(beyond, 1);
        for (std::int64_t id = 0; id < own; ++id) {
          ASSERT_TRUE(std::isfinite(after[static_cast<std::size_t>(id)])) << id;
        }
      }
    }
  }
}

TEST(LoadWeights, TheDigestIsThatOfTheStoredValues) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "weights_digest";
  const std::unique_ptr<Backend> b = make_reference_backend();
  const auto digest = [&](const fs::path& from, DType dtype) {
    const Checkpoint checkpoint = Checkpoint::open(from);
    return load_weights(*b, checkpoint, checkpoint.config(), dtype, MemTag::kTargetWeights, {})
        .weights_digest;
  };
  for (const char* name : {"mha_f32", "tied_head_dim_bf16", "qwen2_bf16", "qwen3_tied_bf16"}) {
    fs::remove_all(folder);
    fs::copy(golden_folder(name), folder);
    const std::string stored = digest(folder, DType::kF32);
    EXPECT_EQ(stored.size(), 64U);
    // Neither the run's dtype nor the folder's name is part of it.
    EXPECT_EQ(digest(golden_folder(name), DType::kBF16), stored);
    // One bit of one value is, in every tensor.
    const fs::path file = folder / "model.safetensors";
    for (const TensorInfo& t : read_safetensors_header(file).tensors) {
      const auto flip = [&] {
        std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
        f.seekg(t.end - 1);
        const auto bit = static_cast<char>(f.get() ^ 1);
        f.seekp(t.end - 1);
        f.put(bit);
        ASSERT_TRUE(f.good());
      };
      flip();
      EXPECT_NE(digest(folder, DType::kF32), stored) << t.name;
      flip();
    }
    EXPECT_EQ(digest(folder, DType::kF32), stored);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenLogits,
                         ::testing::Values("mha_f32", "gqa_linear_f16", "tied_head_dim_bf16",
                                           "yarn_sharded_f16", "yarn_theta_bf16", "gqa_llama3_bf16",
                                           "mistral_bf16", "qwen2_bf16", "qwen3_tied_bf16"),
                         [](const auto& c) { return std::string(c.param); });

}  // namespace
}  // namespace triforce
