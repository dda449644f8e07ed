// What a far KV cache moves over the bus and what kernels its passes take, counted by the emulated
// device.
#include <gtest/gtest.h>
#include <tf_emulator.h>

#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "model/full_cache.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

constexpr std::int64_t kCapacity = 320, kPrompt = 200, kTile = 64;
constexpr std::int64_t kRowBytes = 2 * 64 * 2;  // K and V of one head of 64 dimensions in f16

class BusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!tf_emulator::instrumented()) GTEST_SKIP() << "accesses are not counted in this build";
  }
  // What `work` moved.
  template <class Work>
  tf_emulator::Bus moved(const Work& work) {
    backend_->synchronize();
    const tf_emulator::Bus before = tf_emulator::bus();
    work();
    backend_->synchronize();
    const tf_emulator::Bus after = tf_emulator::bus();
    return {after.copied_to_device - before.copied_to_device,
            after.copied_to_host - before.copied_to_host,
            after.read_by_kernels - before.read_by_kernels,
            after.written_by_kernels - before.written_by_kernels};
  }
  // Kernels of a pass of n rows after the prompt, over a cache with these homes.
  std::uint64_t kernels(const KvHomes& homes, std::int64_t n) {
    const ModelConfig& c = weights_.config;
    FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kPrompt, DType::kF16,
                   homes);
    const std::span<const Token> tokens(tokens_);
    model_.prefill(tokens.first(kTile), full, nullptr, {});
    std::uint64_t launches = 0;
    for (int i = 0; i < 3; ++i) {  // one that can be recorded is replayed
      backend_->synchronize();
      const std::uint64_t before = tf_emulator::counters().launches;
      model_.forward(tokens.subspan(kTile, static_cast<std::size_t>(n)), full, Logits::kAll);
      backend_->synchronize();
      launches = tf_emulator::counters().launches - before;
      full.truncate(kTile);
    }
    return launches;
  }
  std::uint64_t bytes(std::int64_t heads, std::int64_t rows) const {
    return static_cast<std::uint64_t>(heads * rows * kRowBytes);
  }
  // Those of `rows` rows that are in whole granules.
  std::int64_t whole(std::int64_t rows) const {
    return rows / backend_->kv_granule() * backend_->kv_granule();
  }
  // What a pass over n rows uploads beside KV rows: tokens, length and positions.
  static std::uint64_t inputs(std::int64_t n) {
    return static_cast<std::uint64_t>(4 * (2 * n + 1));
  }

  std::unique_ptr<Backend> backend_ = make_cuda_backend(
      {.dtype = DType::kF16, .host_attention = make_host_attention({1, std::nullopt})});
  ModelWeights weights_ = random_weights(*backend_, testing::tiny_config(6, 3, 64), DType::kF16, 7,
                                         MemTag::kTargetWeights, {});
  LlamaModel model_{*backend_, weights_, kCapacity, kTile, 16, nullptr, {kPrompt}};
  std::vector<Token> tokens_ = testing::random_tokens(kCapacity, weights_.config.vocab, 11);
};

// A prompt's far rows go home once and are not read again but for the first heads of the next pass;
// a verification takes its own rows home and brings each row of a far head once.
TEST_F(BusTest, EveryRowCrossesItOnceAPass) {
  const ModelConfig& c = weights_.config;
  constexpr int kSlots = 3;
  FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kPrompt, DType::kF16,
                 {{1, 0}, kSlots});
  const std::int64_t far = 5;  // of 2 layers of 3 heads
  const std::span<const Token> tokens(tokens_);
  const tf_emulator::Bus prompt =
      moved([&] { model_.prefill(tokens.first(kPrompt), full, nullptr, {}); });
  EXPECT_EQ(prompt.copied_to_host + prompt.written_by_kernels, bytes(far, kPrompt));
  EXPECT_EQ(prompt.copied_to_device, bytes(kSlots, whole(kPrompt)) + inputs(kPrompt) + 4 * 3);
  EXPECT_EQ(prompt.read_by_kernels, 0U);

  constexpr std::int64_t kRows = 5;
  std::int64_t length = kPrompt;
  for (int round = 0; round < 4; ++round) {
    full.commit(length);
    const tf_emulator::Bus pass = moved([&] {
      model_.forward(tokens.subspan(static_cast<std::size_t>(length), kRows), full, Logits::kAll);
    });
    EXPECT_EQ(pass.copied_to_host, 0U);
    EXPECT_EQ(pass.written_by_kernels, bytes(far, kRows));
    // Whole granules are copied, those of the first heads after the pass with its own rows; what
    // is left before and in the pass is read by kernels.
    EXPECT_EQ(pass.copied_to_device, bytes(far - kSlots, whole(length)) +
                                         bytes(kSlots, whole(length + kRows)) + inputs(kRows));
    EXPECT_EQ(pass.read_by_kernels, bytes(far, length + kRows - whole(length)));
    length += kRows;
  }
  full.truncate(length);
}

// Heads that the host computes with cross it with their new rows alone, and with queries and what
// comes of them.
TEST_F(BusTest, RowsOfTheHostStayThere) {
  const ModelConfig& c = weights_.config;
  FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kPrompt, DType::kF16,
                 {{1, 0}, 3, {1, 1}});
  const std::int64_t brought = 3, host = 2;  // of 2 layers of 3 heads, 2 queries to each
  const Lease staging(*backend_, {.rows = 8,
                                  .context = kCapacity,
                                  .heads = 6,
                                  .kv_heads = 3,
                                  .head_dim = 64,
                                  .host_heads = 2,
                                  .host_kv_heads = 1});
  const std::span<const Token> tokens(tokens_);
  const tf_emulator::Bus prompt =
      moved([&] { model_.prefill(tokens.first(kPrompt), full, nullptr, {}); });
  EXPECT_EQ(prompt.copied_to_host + prompt.written_by_kernels, bytes(brought + host, kPrompt));

  constexpr std::int64_t kRows = 5;
  constexpr std::uint64_t kQueries = 2 * kRows * 2 * 64 * 4;  // of both layers, f32
  for (std::int64_t length = kPrompt; length < kPrompt + 2 * kRows; length += kRows) {
    full.commit(length);
    const tf_emulator::Bus pass = moved([&] {
      model_.forward(tokens.subspan(static_cast<std::size_t>(length), kRows), full, Logits::kAll);
    });
    EXPECT_EQ(pass.copied_to_host, 2U * sizeof(std::int32_t));  // the length, in each layer
    EXPECT_EQ(pass.written_by_kernels, bytes(brought + host, kRows) + kQueries);
    // Slots that served the prompt's pass held heads of the host, too, and are filled again.
    const std::int64_t again = length == kPrompt ? whole(length) : 0;
    EXPECT_EQ(pass.copied_to_device, bytes(brought, whole(length + kRows) + again) + inputs(kRows));
    EXPECT_EQ(pass.read_by_kernels, bytes(brought, length + kRows - whole(length)) + kQueries);
  }
}

// The product for q, k and v appends the rows of all heads wherever they are; beside it a head that
// is brought takes the kernel that fetches its last rows and attention, those of the host together
// one for their queries and one for what comes of them.
TEST_F(BusTest, NewRowsOfALayerAreAppendedByOneKernel) {
  const Lease staging(*backend_, {.rows = 8,
                                  .context = kCapacity,
                                  .heads = 6,
                                  .kv_heads = 3,
                                  .head_dim = 64,
                                  .host_heads = 4,
                                  .host_kv_heads = 2});
  for (const std::int64_t rows : {1, 2, 3, 7}) {
    SCOPED_TRACE(rows);
    // Two layers of three heads; of all kernels but attention.
    const std::uint64_t near = kernels({}, rows) - 2;
    EXPECT_EQ(kernels({{1, 2}, 0}, rows), near + 4);          // two runs of each layer
    EXPECT_EQ(kernels({{0, 0}, 2}, rows), near + 2 * 6);      // all are brought
    EXPECT_EQ(kernels({{1, 2}, 3}, rows), near + 2 + 2 * 3);  // some
    EXPECT_EQ(kernels({{1, 0}, 3, {1, 2}}, rows), near + 1 + 2 * 2 + 2 * 2);  // all kinds
  }
}

// Without slots kernels read far rows where they lie.
TEST_F(BusTest, RowsInPlaceAreReadByKernels) {
  const ModelConfig& c = weights_.config;
  FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kPrompt, DType::kF16,
                 {{0, 0}, 0});
  const std::span<const Token> tokens(tokens_);
  model_.forward(tokens.first(kTile), full, Logits::kNone, nullptr, RowPath::kThroughput);
  const tf_emulator::Bus pass =
      moved([&] { model_.forward(tokens.subspan(kTile, 1), full, Logits::kAll); });
  EXPECT_EQ(pass.copied_to_device, inputs(1));
  EXPECT_GE(pass.read_by_kernels, bytes(6, kTile + 1));
  EXPECT_EQ(pass.written_by_kernels, bytes(6, 1));
}

}  // namespace
}  // namespace triforce
