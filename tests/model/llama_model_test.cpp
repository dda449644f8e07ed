// The forward pass: any split into passes, any kind of logits, bad tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/forwarding_backend.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::random_tokens;
using testing::Tiny;
using testing::tiny_config;

TEST(LlamaModel, EveryChunkingGivesTheSameBits) {
  // The reference backend computes every row alone, so the bits must agree, for any dtype.
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Tiny t(tiny_config(), dtype);
    const std::vector<Token> tokens = random_tokens(61, 61, 1);
    FullCache once = t.full();
    const std::vector<float> expected = t.run(tokens, once, 61);
    for (const std::int64_t step : {1, 7, 32, 33}) {
      FullCache cache = t.full();
      EXPECT_EQ(t.run(tokens, cache, step), expected) << to_string(dtype) << " step " << step;
      EXPECT_EQ(cache.length(), 61);
    }
  }
}

TEST(LlamaModel, LastAndNoLogitsAreThoseOfAll) {
  Tiny t(tiny_config());
  const std::vector<Token> tokens = random_tokens(40, 61, 2);
  for (const std::size_t n : {1U, 5U, 40U}) {
    FullCache a = t.full();
    FullCache b = t.full();
    const std::span<const Token> first(tokens.data(), n);
    const std::vector<float> all = t.run(first, a, 64);
    const TensorView last = t.model.forward(first, b, Logits::kLast);
    ASSERT_EQ(last.shape[0], 1);
    EXPECT_EQ(testing::host_copy(*t.backend, last), std::vector<float>(all.end() - 61, all.end()));
    FullCache c = t.full();
    EXPECT_EQ(t.model.forward(first, c, Logits::kNone).data, nullptr);
    // The rows a pass without logits leaves must serve the next one.
    const Token next = 3;
    EXPECT_EQ(t.run({&next, 1}, a, 1), t.run({&next, 1}, c, 1));
  }
}

TEST(LlamaModel, RejectsTokensOutsideTheVocabulary) {
  Tiny t(tiny_config());
  FullCache cache = t.full();
  for (const Token bad : {-1, 61, 1 << 30}) {
    try {
      t.model.forward({&bad, 1}, cache, Logits::kLast);
      FAIL() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kBadInput);
      EXPECT_EQ(e.kind(), "TokenRange");
    }
    EXPECT_EQ(cache.length(), 0);
  }
}

struct Reference {
  std::unique_ptr<Backend> backend = make_reference_backend(8);
};
class CountedUploads final : private Reference, public ForwardingBackend {
 public:
  CountedUploads() : ForwardingBackend(*backend) {}
  int uploads = 0;

 protected:
  void do_upload(TensorView dst, TensorView src) override {
    ++uploads;
    ForwardingBackend::do_upload(dst, src);
  }
};

// Tokens, lengths and positions go together, those of first layers that read the full cache, too.
TEST(LlamaModel, APassIsOneUpload) {
  auto counted = std::make_unique<CountedUploads>();
  const int& uploads = counted->uploads;
  Tiny t(tiny_config(), DType::kF32, 7, 512, std::move(counted));
  const ModelConfig& c = t.weights.config;
  const std::vector<Token> tokens = random_tokens(60, c.vocab, 3);
  FullCache full = t.full();
  for (const std::size_t n : {1U, 7U, 40U}) {
    const int before = uploads;
    t.model.forward(std::span(tokens).first(n), full, Logits::kAll, nullptr,
                    throughput_path(static_cast<std::int64_t>(n)));
    EXPECT_EQ(uploads, before + 1) << n;
  }
  RetrievalCache small(*t.backend, full, c.layers, c.heads, c.kv_heads, c.head_dim, 8,
                       t.weights.dtype, {32, 8, Selection::kMeanKey, {}, 1});
  testing::end_and_feed_again(t, std::span(tokens).first(5), full, small);
  const int before = uploads;
  t.model.forward(std::span(tokens).first(2), small, Logits::kAll);
  EXPECT_EQ(uploads, before + 1);
}

// Counts what it is asked to multiply.
class CountedOperations final : private Reference, public ForwardingBackend {
 public:
  CountedOperations() : ForwardingBackend(*backend) {}
  double operations = 0;

 protected:
  void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                 RowPath path) override {
    operations += 2.0 * static_cast<double>(x.shape[0] * w.rows * w.cols);
    ForwardingBackend::do_linear(x, w, out, accumulate, path);
  }
  void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                    TensorView out, std::span<const TensorView> mass, int chunk,
                    RowPath path) override {
    for (std::int64_t i = 0; i < q.shape[0]; ++i) {
      const std::int64_t keys =
          *sequences.front().length - q.shape[0] + i + 1;  // q k and p v, a head each
      operations += 4.0 * static_cast<double>(keys * q.shape[1] * q.shape[2]);
    }
    ForwardingBackend::do_attention(q, sequences, rope, out, mass, chunk, path);
  }
};

TEST(LlamaModel, PrefillComputesTheOperationsThatAreCounted) {
  for (const auto& [heads, kv_heads, layers] :
       {std::array{4, 2, 2}, std::array{6, 1, 3}, std::array{3, 3, 1}}) {
    auto counted = std::make_unique<CountedOperations>();
    const double& operations = counted->operations;
    ModelConfig c = tiny_config(heads, kv_heads);
    c.layers = layers;
    Tiny t(c, DType::kF32, 7, 512, std::move(counted));
    const std::vector<Token> tokens = random_tokens(150, c.vocab, 3);
    for (const std::size_t n : {1U, 64U, 150U}) {
      FullCache full = t.full();
      const double before = operations;
      for (std::size_t i = 0; i < n; i += 64) {
        const std::span part = std::span(tokens).subspan(i, std::min<std::size_t>(64, n - i));
        ASSERT_TRUE(t.model.prefill(part, full, nullptr, {}));
      }
      EXPECT_EQ(LlamaModel::prefill_operations(c, static_cast<std::int64_t>(n)),
                operations - before)
          << n;
    }
  }
}

TEST(LlamaModel, APassComputesTheOperationsThatAreCounted) {
  auto counted = std::make_unique<CountedOperations>();
  const double& operations = counted->operations;
  const ModelConfig c = tiny_config(6, 1);
  Tiny t(c, DType::kF32, 7, 512, std::move(counted));
  const std::vector<Token> tokens = random_tokens(67, c.vocab, 3);
  FullCache full = t.full();
  ASSERT_TRUE(t.model.prefill(std::span(tokens).first(60), full, nullptr, {}));
  const double before = operations;
  t.model.forward(std::span(tokens).subspan(60), full, Logits::kAll);
  const LlamaModel::RowOperations row = LlamaModel::row_operations(c);
  const double seen = 7 * 60 + 7 * 8 / 2;  // of seven rows
  EXPECT_EQ(7 * row.of_weights + seen * row.of_each_key, operations - before);
  double weights = 0, keys = 0;
  const ModelConfig shared = tiny_config(6, 3);
  for (int rank = 0; rank < 3; ++rank) {
    const LlamaModel::RowOperations part = LlamaModel::row_operations(shared, {rank, 3});
    weights += part.of_weights;
    keys += part.of_each_key;
  }
  const LlamaModel::RowOperations whole = LlamaModel::row_operations(shared);
  const double head = 2.0 * static_cast<double>(shared.hidden * shared.vocab);
  EXPECT_EQ(weights, whole.of_weights + 2 * head);  // each has the whole
  EXPECT_EQ(keys, whole.of_each_key);
}

TEST(LlamaModel, RanksShareTheOperationsOfAPrefill) {
  const ModelConfig c = tiny_config(6, 3);
  double sum = 0;
  for (int rank = 0; rank < 3; ++rank) sum += LlamaModel::prefill_operations(c, 100, {rank, 3});
  EXPECT_EQ(sum, LlamaModel::prefill_operations(c, 100));
}

TEST(LlamaModel, LedgerEqualsTheFormula) {
  const ModelConfig c = tiny_config();
  Tiny t(c);
  EXPECT_EQ(t.backend->allocator().ledger(MemTag::kActivations).live_bytes,
            LlamaModel::activation_bytes(c, DType::kF32, 64, 64));
  FullCache cache = t.full(100);
  EXPECT_EQ(t.backend->allocator().ledger(MemTag::kKvFull).live_bytes,
            KvStorage::bytes(c.layers, c.kv_heads, c.head_dim, 100, DType::kF32, 8));
  EXPECT_EQ(cache.capacity(), 104);  // whole granules
}

// The table of a tied model is held once, and its head is that table: a copy of it changes no bit.
TEST(LlamaModel, ATiedTableIsHeldOnce) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto live = [](const Tiny& model) {
      return model.backend->allocator().ledger(MemTag::kTargetWeights).live_bytes;
    };
    ModelConfig c = tiny_config();
    const Tiny untied(c, dtype);
    const std::int64_t bytes = c.weight_bytes(dtype),
                       table_bytes = c.vocab * c.hidden * size_of(dtype);
    c.tied_embeddings = true;
    Tiny t(c, dtype);
    EXPECT_EQ(bytes - c.weight_bytes(dtype), table_bytes);
    EXPECT_EQ(live(untied) - live(t), table_bytes);
    EXPECT_EQ(&t.weights.head(), &t.weights.embed);
    const std::vector<Token> tokens = random_tokens(20, 61, 1);
    FullCache once = t.full();
    const std::vector<float> expected = t.run(tokens, once, 20);
    const Matrix& table = t.weights.embed;
    t.weights.lm_head =
        t.backend->make_matrix(table.rows, table.cols, dtype, MemTag::kTargetWeights);
    t.backend->set_rows(*t.weights.lm_head, 0,
                        make_view(table.storage.data(), dtype, {table.rows, table.cols}));
    FullCache again = t.full();
    EXPECT_EQ(t.run(tokens, again, 20), expected);
  }
}

// A matrix of f32 with the values and the bias that a quantised one stands for, by products with
// rows of I.
Matrix widened(Backend& b, Matrix& m) {
  Tensor bias = std::exchange(m.bias, {});
  std::vector<float> values(static_cast<std::size_t>(m.rows * m.cols));
  std::vector<float> unit(static_cast<std::size_t>(m.cols));
  std::vector<float> column(static_cast<std::size_t>(m.rows));
  Matrix plain = b.make_matrix(m.rows, m.cols, DType::kF32, MemTag::kTargetWeights);
  for (std::int64_t k = 0; k < m.cols; ++k) {
    std::ranges::fill(unit, 0.0F);
    unit[static_cast<std::size_t>(k)] = 1;
    b.linear(make_view(unit.data(), DType::kF32, {1, m.cols}), m,
             make_view(column.data(), DType::kF32, {1, m.rows}), false);
    for (std::int64_t r = 0; r < m.rows; ++r) {
      values[static_cast<std::size_t>(r * m.cols + k)] = column[static_cast<std::size_t>(r)];
    }
  }
  b.set_rows(plain, 0, make_view(values.data(), DType::kF32, {m.rows, m.cols}));
  if (bias) {
    plain.bias = Tensor(b.allocator(), DType::kF32, {m.rows}, b.place(), MemTag::kTargetWeights);
    b.upload(plain.bias.view(), bias.view());
  }
  m.bias = std::move(bias);
  return plain;
}

// A pass that drafts is one of a model that has the copies for its own, and changes no other pass.
TEST(LlamaModel, DraftsMultiplyWithTheQuantisedCopies) {
  const std::vector<Token> tokens = random_tokens(12, 61, 1);
  const auto logits = [&](Tiny& t, const ModelWeights& w, Precision precision) {
    LlamaModel model(*t.backend, w, 512, 64, 64);
    FullCache cache = t.full();
    const PassPart part{tokens, &cache};
    return testing::host_copy(*t.backend, model.forward(std::span(&part, 1), Logits::kAll,
                                                        RowPath::kInvariant, precision));
  };
  for (const auto by : {Quantisation::kInt8, Quantisation::kInt4}) {
    for (const bool tied : {false, true}) {
      ModelConfig c = tiny_config();
      c.tied_embeddings = tied;
      if (tied) c.architecture = Architecture::kQwen2;  // with biases
      Tiny t(c);
      const auto make = [&](Quantisation drafts) {
        return random_weights(*t.backend, c, DType::kF32, 7, MemTag::kTargetWeights, {}, {},
                              drafts);
      };
      const ModelWeights own = make(Quantisation::kNone);
      ModelWeights both = make(by), copies = make(Quantisation::kNone);
      ASSERT_TRUE(both.drafts);
      for (std::size_t l = 0; l < copies.layers.size(); ++l) {
        for (Matrix LayerMatrices::*m : {&LayerMatrices::qkv, &LayerMatrices::out,
                                         &LayerMatrices::gate_up, &LayerMatrices::down}) {
          copies.layers[l].*m = widened(*t.backend, both.drafts->layers[l].*m);
        }
      }
      copies.lm_head = widened(*t.backend, both.drafts->head);
      EXPECT_EQ(logits(t, both, Precision::kOwn), logits(t, own, Precision::kOwn));
      EXPECT_EQ(logits(t, both, Precision::kDraft), logits(t, copies, Precision::kOwn));
      EXPECT_NE(logits(t, both, Precision::kDraft), logits(t, own, Precision::kOwn));
    }
  }
}

TEST(RandomWeights, AreAPureFunctionOfTheSeed) {
  Tiny a(tiny_config());
  Tiny b(tiny_config());
  Tiny other(tiny_config(), DType::kF32, 8);
  const auto head = [](const Tiny& t) {
    const Matrix& m = t.weights.embed;
    std::vector<float> values(static_cast<std::size_t>(m.rows * m.cols));
    std::memcpy(values.data(), m.storage.data(), values.size() * sizeof(float));
    return values;
  };
  EXPECT_EQ(head(a), head(b));
  EXPECT_NE(head(a), head(other));
  EXPECT_TRUE(a.weights.random);
  // 61 * 24 draws of deviation 1.28 / sqrt(24): mean within five deviations of the mean.
  double sum = 0;
  double squares = 0;
  for (const float x : head(a)) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  const double n = 61 * 24;
  const double sigma = 1.28 / std::sqrt(24.0);
  EXPECT_LT(std::abs(sum / n), 5 * sigma / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n) / sigma, 1.0, 5 * std::sqrt(0.5 / n));
}

}  // namespace
}  // namespace triforce
