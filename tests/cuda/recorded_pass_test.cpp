// Passes as they are recorded: how many kernels they are, which of them begin early, and what is
// left of one that throws. Of the emulator, which counts and checks.
#include <gtest/gtest.h>

#include "cuda/device_test.h"
#include "decode/toy_models.h"
#include "kernels/kernels.h"
#include "model/full_cache.h"
#include "tf_emulator.h"
#include "triforce/communicator.h"
#include "triforce/model.h"
#include "triforce/pass_kernels.h"

namespace triforce {
namespace {

using namespace cuda;
using RecordedPassTest = DeviceTest;

// A model of sizes as real ones have them, but for their size.
struct Passes {
  explicit Passes(Backend& b, Communicator* ranks = nullptr, std::int64_t intermediate = 64,
                  Architecture architecture = Architecture::kLlama)
      : config(model_config(intermediate, architecture)),
        weights(random_weights(b, config, b.activation_dtype(), 3, MemTag::kTargetWeights, {},
                               ranks == nullptr ? Shard{} : ranks->shard())),
        model(b, weights, 128, 32, 32, ranks),
        cache(b, config.layers, weights.shape().kv_heads, config.head_dim, 128, 32, weights.dtype) {
  }
  static ModelConfig model_config(std::int64_t intermediate, Architecture architecture) {
    ModelConfig c = toy_config("toy", 2, 4, 2, 64, 61);
    c.architecture = architecture;
    c.hidden = 40;
    c.intermediate = intermediate;
    return c;
  }
  // Launched, recorded and replayed; the kernels of the last.
  tf_emulator::Counters replayed(Backend& b, std::int64_t rows) {
    const std::vector<Token> tokens(static_cast<std::size_t>(rows), 7);
    tf_emulator::Counters before, after;
    for (int i = 0; i < 3; ++i) {
      b.synchronize();
      before = tf_emulator::counters();
      model.forward(tokens, cache, Logits::kAll);
      b.synchronize();
      after = tf_emulator::counters();
      cache.truncate(0);
    }
    return {.launches = after.launches - before.launches,
            .early_launches = after.early_launches - before.early_launches};
  }
  // Layers whose attention is two kernels in a pass over so many rows.
  std::uint64_t wide_attentions(std::int64_t rows) const {
    const std::int64_t packed = rows * config.heads / config.kv_heads;
    return packed > kernels::kAttentionRows ? static_cast<std::uint64_t>(config.layers) : 0;
  }
  ModelConfig config;
  ModelWeights weights;
  LlamaModel model;
  FullCache cache;
};

TEST_P(RecordedPassTest, ARecordedPassIsAsManyKernelsAsPlansCount) {
  Passes passes(*b_);
  for (const std::int64_t rows : {1, 2, 7, 16, 32}) {
    EXPECT_EQ(passes.replayed(*b_, rows).launches,
              static_cast<std::uint64_t>(pass_kernels(passes.config.layers)) +
                  passes.wide_attentions(rows))
        << rows;
  }
  EXPECT_EQ(pass_kernels(32), 227);
}

// A bias is added where products are stored; norms of heads keep two kernels from being one.
TEST_P(RecordedPassTest, BiasesTakeNoKernelAndHeadNormsTwo) {
  for (const Architecture a : {Architecture::kQwen2, Architecture::kQwen3}) {
    Passes passes(*b_, nullptr, 64, a);
    const int layers = passes.config.layers;
    EXPECT_EQ(passes.replayed(*b_, 7).launches,
              static_cast<std::uint64_t>(pass_kernels(layers, 1, passes.config.has_head_norms())))
        << to_string(a);
    EXPECT_EQ(pass_kernels(layers, 1, passes.config.has_head_norms()),
              pass_kernels(layers) + (a == Architecture::kQwen3 ? 2 * layers : 0));
  }
}

// So a pass with a kernel more is seen: SwiGLU is one of its own where features are no whole tiles.
TEST_P(RecordedPassTest, AKernelMoreIsCounted) {
  Passes passes(*b_, nullptr, 56);
  for (const std::int64_t rows : {1, 7}) {
    const int layers = passes.config.layers;
    EXPECT_EQ(passes.replayed(*b_, rows).launches,
              static_cast<std::uint64_t>(pass_kernels(layers) + layers))
        << rows;
  }
}

// The first of two ranks; what the other one gives is whatever lies there.
class HalfOfTheRanks final : public Communicator {
 public:
  HalfOfTheRanks() : Communicator({.rank = 0, .size = 2}) {}
  std::string description() const override { return "one of two ranks"; }
  bool recordable() const override { return true; }

 private:
  void do_all_gather(TensorView /*parts*/) override {}
};

TEST_P(RecordedPassTest, ARecordedPassOfARankIsAsManyKernelsAsPlansCount) {
  HalfOfTheRanks ranks;
  Passes passes(*b_, &ranks);
  for (const std::int64_t rows : {1, 2, 32}) {
    EXPECT_EQ(passes.replayed(*b_, rows).launches,
              static_cast<std::uint64_t>(pass_kernels(passes.config.layers, 2)) +
                  passes.wide_attentions(rows))
        << rows;
  }
}

// A device whose kernels may begin before those before them have ended, until its end.
struct EarlyDevice {
  explicit EarlyDevice(int driver = 13000, int runtime = 13000) {
    tf_emulator::Limits limits;
    limits.architecture = 90;
    limits.driver_version = driver;
    limits.runtime_version = runtime;
    tf_emulator::set_limits(limits);
    kernels::forget_devices();
  }
  EarlyDevice(const EarlyDevice&) = delete;
  EarlyDevice& operator=(const EarlyDevice&) = delete;
  ~EarlyDevice() {
    tf_emulator::set_limits({});
    kernels::forget_devices();
  }
};

// On sm_90 all kernels of a pass but the first and those of wide attention may begin before those
// before them have ended; the emulator finds what they do too early.
TEST_P(RecordedPassTest, RecordedKernelsBeginEarlyWhereTheDeviceCan) {
  Passes before(*b_);
  EXPECT_EQ(before.replayed(*b_, 2).early_launches, 0U);
  const EarlyDevice device;
  Passes passes(*b_);
  for (const std::int64_t rows : {1, 2, 3, 7, 9, 17, 25, 32}) {
    const tf_emulator::Counters counters = passes.replayed(*b_, rows);
    EXPECT_EQ(counters.early_launches + 1 + 2 * passes.wide_attentions(rows), counters.launches)
        << rows;
  }
}

// Recordings keep such launches from CUDA 12.3 on.
TEST_P(RecordedPassTest, NothingBeginsEarlyWithAnOldDriverOrRuntime) {
  for (const auto& [driver, runtime] : {std::pair{12020, 12080}, {12080, 12020}}) {
    const EarlyDevice device(driver, runtime);
    Passes passes(*b_);
    EXPECT_EQ(passes.replayed(*b_, 2).early_launches, 0U) << driver << " " << runtime;
  }
  const EarlyDevice device(12030, 12030);
  Passes passes(*b_);
  EXPECT_GT(passes.replayed(*b_, 2).early_launches, 0U);
}

// Products fetch weights before they wait for the kernels before them: weights that were written
// just now are waited for.
TEST_P(RecordedPassTest, WeightsAreThereBeforeAProductFetchesThem) {
  const EarlyDevice device;
  constexpr std::int64_t kWidth = 64;
  const Tensor x = filled(GetParam(), {1, kWidth}, 1), out = filled(DType::kF32, {1, kWidth}, 2);
  const Tensor rows = filled(DType::kF32, {kWidth, kWidth}, 3);
  Matrix m = b_->make_matrix(kWidth, kWidth, GetParam(), MemTag::kTargetWeights);
  const auto product_of_new_weights = [&](const auto& around) {
    b_->clear(out.view());
    b_->set_rows(m, 0, rows.view());
    around([&] { b_->linear(x.view(), m, out.view(), false); });
    return bits(out);
  };
  const auto alone = product_of_new_weights([](const auto& body) { body(); });
  EXPECT_NE(alone, std::vector<std::uint16_t>(2 * kWidth));
  EXPECT_EQ(product_of_new_weights([&](const auto& body) { b_->replay({}, body); }), alone);
}

// Kernels by themselves do not wait: what the test above would find.
TEST(EarlyProducts, FetchWeightsThatTheKernelBeforeWrites) {
  if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not checked in this build";
  tf_emulator::reset();
  {
    const EarlyDevice device;
    constexpr std::int64_t kWidth = 64;
    const auto zeros = [](DType dtype, std::int64_t n) {
      void* p = nullptr;
      TF_CUDA(cudaMalloc(&p, static_cast<std::size_t>(n * size_of(dtype))));
      TF_CUDA(cudaMemset(p, 0, static_cast<std::size_t>(n * size_of(dtype))));
      return make_view(p, dtype, {n / kWidth, kWidth});
    };
    const TensorView x = zeros(DType::kF16, kWidth), out = zeros(DType::kF32, kWidth);
    const TensorView from = zeros(DType::kF32, kWidth * kWidth);
    const TensorView weights = zeros(DType::kF16, kWidth * kWidth);
    const auto run = [&] {
      kernels::linear(x, {weights.data, DType::kF16, kWidth, kWidth}, out, false, nullptr);
      return cudaDeviceSynchronize();
    };
    kernels::convert(from, weights, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(run(), cudaSuccess);
    kernels::convert(from, weights, nullptr);
    EXPECT_NE(run(), cudaSuccess);
    const tf_emulator::TrapReport trap = tf_emulator::last_trap();
    EXPECT_EQ(trap.kind, tf_emulator::Trap::kEarly);
    EXPECT_NE(trap.message.find("linear_kernel"), std::string::npos) << trap.message;
  }
  tf_emulator::reset();
}

// Nor is anything left to do of a pass that throws: here where a product is held back.
TEST_P(RecordedPassTest, APassThatThrowsLeavesNothingBehind) {
  struct Throws final : LayerObserver {
    bool begin_pass(std::int64_t /*n*/, RowPath /*path*/) override { return true; }
    TensorView mass(int layer) override {
      if (layer == 1) throw Error(ExitCode::kBadInput, "Test", "of the observer");
      return {};
    }
    int mass_chunk() const override { return 0; }
    void on_range(int /*layer*/, TensorView /*q*/, const KvView& /*kv*/,
                  TensorView /*mass*/) override {}
  } observer;
  Passes passes(*b_);
  const std::vector<Token> tokens{7, 9};
  const auto launches_of = [&](LayerObserver* observing) {
    b_->synchronize();
    const std::uint64_t before = tf_emulator::counters().launches;
    EXPECT_EQ(observing != nullptr, [&] {
      try {
        passes.model.forward(tokens, passes.cache, Logits::kAll, observing);
      } catch (const Error&) {
        return true;
      }
      return false;
    }());
    b_->synchronize();
    return tf_emulator::counters().launches - before;
  };
  // Of two layers: the embedding, all of the first layer, and the norm of the second.
  EXPECT_EQ(launches_of(&observer), static_cast<std::uint64_t>(1 + kernels_per_layer() + 1));
  passes.cache.cancel();
  EXPECT_EQ(launches_of(nullptr), static_cast<std::uint64_t>(pass_kernels(2)));
  passes.cache.truncate(0);
}

INSTANTIATE_TEST_SUITE_P(Types, RecordedPassTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce
