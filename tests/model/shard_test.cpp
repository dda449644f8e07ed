// What ranks that share a model hold: together all of it, each value once.
#include <gtest/gtest.h>

#include <cstring>

#include "model/tiny_model.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

using testing::host_copy;
using testing::tiny_config;

struct Rows {
  std::int64_t begin, end;
};
using Floats = std::vector<float>;

// All values of a matrix of the reference backend, which holds f32 row by row.
Floats values_of(const Matrix& m) {
  const auto* data = static_cast<const float*>(m.storage.data());
  return {data, data + m.rows * m.cols};
}
void append_rows(Floats& to, const Matrix& m, const Rows& rows) {
  const Floats all = values_of(m);
  to.insert(to.end(), all.begin() + rows.begin * m.cols, all.begin() + rows.end * m.cols);
}
// The columns of the matrices of all ranks side by side.
Floats beside(const std::vector<const Matrix*>& parts) {
  Floats all;
  for (std::int64_t r = 0; r < parts[0]->rows; ++r) {
    for (const Matrix* m : parts) append_rows(all, *m, {r, r + 1});
  }
  return all;
}

// `sizes[r][i]`: rows of the i-th of the stacked parts on rank r. All ranks' rows of the first
// part, then those of the second, and so on.
Floats above(const std::vector<const Matrix*>& ranks,
             const std::vector<std::vector<std::int64_t>>& sizes) {
  Floats all;
  for (std::size_t part = 0; part < sizes[0].size(); ++part) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      std::int64_t begin = 0;
      for (std::size_t i = 0; i < part; ++i) begin += sizes[r][i];
      append_rows(all, *ranks[r], {begin, begin + sizes[r][part]});
    }
  }
  return all;
}

ModelConfig config_of_six_heads(Architecture architecture = Architecture::kLlama) {
  ModelConfig c = tiny_config(12, 6, 8);
  c.architecture = architecture;
  c.intermediate = 41;  // which no number of ranks divides
  return c;
}

// A bias as a matrix of one column.
Matrix as_column(Backend& backend, const Tensor& bias) {
  Matrix m = backend.make_matrix(bias.view().shape[0], 1, DType::kF32, MemTag::kTargetWeights);
  std::memcpy(m.storage.data(), bias.view().data, static_cast<std::size_t>(bias.view().bytes()));
  return m;
}

TEST(Shard, PartsFollowEachOtherAndDifferByOne) {
  for (const std::int64_t n : {1, 2, 7, 40, 41, 11008}) {
    for (int size = 1; size <= 8; ++size) {
      std::int64_t end = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Part p = part_of(n, {rank, size});
        EXPECT_EQ(p.begin, end);
        EXPECT_GE(p.count, n / size);
        EXPECT_LE(p.count, n / size + 1);
        end = p.begin + p.count;
      }
      EXPECT_EQ(end, n) << size;
    }
  }
}

class ShardOf : public ::testing::TestWithParam<Architecture> {};

TEST_P(ShardOf, EveryWeightIsOnOneRankOrOnAll) {
  const ModelConfig c = config_of_six_heads(GetParam());
  const auto backend = make_reference_backend();
  const ModelWeights whole = random_weights(*backend, c, DType::kF32, 5, MemTag::kDraftWeights, {});
  for (const int size : {1, 2, 3, 6}) {
    std::vector<ModelWeights> ranks;
    for (int r = 0; r < size; ++r) {
      ranks.push_back(
          random_weights(*backend, c, DType::kF32, 5, MemTag::kTargetWeights, {}, {r, size}));
      EXPECT_EQ(values_of(ranks.back().embed), values_of(whole.embed));
      EXPECT_EQ(values_of(ranks.back().head()), values_of(whole.head()));
    }
    std::vector<std::vector<std::int64_t>> qkv, gate_up;
    for (const ModelWeights& w : ranks) {
      const LocalShape s = w.shape();
      EXPECT_EQ(s.heads * 6, s.kv_heads * 12);
      qkv.push_back({s.query_width(), s.kv_width(), s.kv_width()});
      gate_up.push_back({s.intermediate, s.intermediate});
    }
    for (std::size_t l = 0; l < whole.layers.size(); ++l) {
      const auto of_ranks = [&](Matrix LayerWeights::*matrix) {
        std::vector<const Matrix*> all;
        for (const ModelWeights& w : ranks) all.push_back(&(w.layers[l].*matrix));
        return all;
      };
      const LayerWeights& want = whole.layers[l];
      EXPECT_EQ(above(of_ranks(&LayerWeights::qkv), qkv), values_of(want.qkv)) << size;
      EXPECT_EQ(above(of_ranks(&LayerWeights::gate_up), gate_up), values_of(want.gate_up)) << size;
      if (c.has_qkv_bias()) {
        std::vector<Matrix> biases;
        std::vector<const Matrix*> of_bias;
        for (const ModelWeights& w : ranks)
          biases.push_back(as_column(*backend, w.layers[l].qkv.bias));
        for (const Matrix& m : biases) of_bias.push_back(&m);
        EXPECT_EQ(above(of_bias, qkv), host_copy(*backend, want.qkv.bias.view())) << size;
      }
      for (const ModelWeights& w : ranks) {
        // Every head has the norm of its kind, which the random source makes ones.
        const Tensor& norms = w.layers[l].head_norms;
        const auto heads = static_cast<std::size_t>(w.shape().heads + w.shape().kv_heads);
        const auto dims = c.has_head_norms() ? static_cast<std::size_t>(c.head_dim) : 0;
        EXPECT_EQ(norms ? host_copy(*backend, norms.view()) : Floats(), Floats(heads * dims, 1.0F));
      }
      EXPECT_EQ(beside(of_ranks(&LayerWeights::out)), values_of(want.out)) << size;
      EXPECT_EQ(beside(of_ranks(&LayerWeights::down)), values_of(want.down)) << size;
    }
  }
}

TEST_P(ShardOf, LedgerAndProgressEqualTheFormula) {
  const ModelConfig c = config_of_six_heads(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int rank : {0, 1, 2}) {
      const auto backend = make_reference_backend();
      const Shard shard{rank, 3};
      std::int64_t last = 0;
      const auto progress = [&](std::int64_t done, std::int64_t total) {
        EXPECT_EQ(total, weight_bytes(c, shard, dtype));
        last = done;
      };
      const ModelWeights w =
          random_weights(*backend, c, dtype, 5, MemTag::kTargetWeights, progress, shard);
      EXPECT_EQ(last, weight_bytes(c, shard, dtype));
      EXPECT_EQ(backend->allocator().ledger(MemTag::kTargetWeights).live_bytes, last);
      EXPECT_EQ(kv_bytes_per_token(c, shard, dtype), c.kv_bytes_per_token(dtype) / 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, ShardOf,
                         ::testing::Values(Architecture::kLlama, Architecture::kQwen2,
                                           Architecture::kQwen3),
                         [](const auto& c) { return std::string(to_string(c.param)); });

TEST(Shard, RankZeroDigestsTheWholeCheckpoint) {
  for (const char* name :
       {"mha_f32", "gqa_linear_f16", "yarn_sharded_f16", "qwen2_bf16", "qwen3_tied_bf16"}) {
    const Checkpoint checkpoint =
        Checkpoint::open(std::filesystem::path(TF_SOURCE_DIR) / "tests" / "golden" / name);
    const auto backend = make_reference_backend();
    const auto load = [&](const Shard& shard) {
      return load_weights(*backend, checkpoint, checkpoint.config(), DType::kF32,
                          MemTag::kTargetWeights, {}, shard);
    };
    const std::string whole = load({}).weights_digest;
    const int ranks = checkpoint.config().kv_heads;
    ASSERT_GT(ranks, 1) << name;
    EXPECT_EQ(load({0, ranks}).weights_digest, whole) << name;
    EXPECT_EQ(load({ranks - 1, ranks}).weights_digest, "") << name;
  }
}

// Those of the stored model differ between q and k.
TEST(Shard, EveryHeadHasTheNormOfItsKind) {
  const Checkpoint checkpoint = Checkpoint::open(std::filesystem::path(TF_SOURCE_DIR) / "tests" /
                                                 "golden" / "qwen3_tied_bf16");
  const auto backend = make_reference_backend();
  const auto norms = [&](const Shard& shard) {
    const ModelWeights w = load_weights(*backend, checkpoint, checkpoint.config(), DType::kF32,
                                        MemTag::kTargetWeights, {}, shard);
    return host_copy(*backend, w.layers.back().head_norms.view());
  };
  const ModelConfig& c = checkpoint.config();
  const std::ptrdiff_t q = std::ptrdiff_t{c.heads} * c.head_dim, d = c.head_dim;
  const Floats whole = norms({});
  ASSERT_EQ(std::ssize(whole), q + c.kv_heads * d);
  const Floats of_q(whole.begin(), whole.begin() + d), of_k(whole.end() - d, whole.end());
  EXPECT_NE(of_q, of_k);
  for (const int rank : {0, 1, 2}) {
    Floats expected;
    for (int h = 0; h < c.heads / 3; ++h) {
      expected.insert(expected.end(), of_q.begin(), of_q.end());
    }
    for (int h = 0; h < c.kv_heads / 3; ++h) {
      expected.insert(expected.end(), of_k.begin(), of_k.end());
    }
    EXPECT_EQ(norms({rank, 3}), expected) << rank;
  }
}

TEST(Shard, RanksThatDoNotDivideTheHeadsAreRefused) {
  ModelConfig c = config_of_six_heads();
  for (const int ranks : {1, 2, 3, 6}) EXPECT_NO_THROW(check_ranks(c, ranks));
  const auto line_of = [&](int ranks) -> std::string {
    try {
      check_ranks(c, ranks);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kUsage);
      return e.what();
    }
    return "nothing";
  };
  for (const int ranks : {-1, 0, 4, 5, 12}) {
    EXPECT_EQ(line_of(ranks),
              fmt::format("--tp: expected a divisor of the 6 KV heads of tiny, found {}", ranks));
  }
  c.intermediate = 5;
  EXPECT_EQ(line_of(6), "--tp: expected at most the 5 intermediate features of tiny, found 6");
}

}  // namespace
}  // namespace triforce
