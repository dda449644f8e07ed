// Where the rows of a full cache lie changes no bit of what is computed from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/backends.h"
#include "core/forwarding_backend.h"
#include "core/rounding.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

constexpr int kKvHeads = 3, kHeadDim = 64, kGamma = 5;
constexpr std::int64_t kPrompt = 107, kRounds = 8, kCapacity = 200, kMaxAppend = 64;

// Spoils all rows of a slot before some are brought into it: rows of another head that are taken
// for this one's then show. The spoilt rows are finite, since rows that are masked are multiplied.
class SpoiltSlots final : public ForwardingBackend {
 public:
  SpoiltSlots(Backend& to, std::int64_t elements) : ForwardingBackend(to), to_(to) {
    std::vector<std::int32_t> words(static_cast<std::size_t>(elements / 2), 0x7B007B00);
    const TensorView host = make_view(words.data(), DType::kI32, {elements / 2});
    spoilt_ = Tensor(to.allocator(), DType::kI32, {elements / 2}, to.place(), MemTag::kWorkspace);
    to.upload(spoilt_.view(), host);
  }
  // The memory of these is no slot.
  void know_homes(const FullCache& cache, int layers) {
    homes_.clear();
    for (int l = 0; l < layers; ++l) {
      for (const KvView& kv : cache.homes(l)) homes_.push_back(kv);
    }
  }

 protected:
  void do_copy(TensorView dst, TensorView src, Queue queue) override {
    if (queue == Queue::kCopy) spoil(dst.data);
    to_.copy(dst, src, queue);
  }
  void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                    std::int64_t dst_row, std::int64_t count, Queue queue) override {
    if (queue == Queue::kCopy) {
      spoil(dst.k);
      spoil(dst.v);
    }
    to_.copy_rows(src, src_row, dst, dst_row, count, queue);
  }

 private:
  void spoil(void* slot) {
    if (is_home(slot)) return;
    const std::int64_t words = spoilt_.view().numel();
    to_.copy(make_view(slot, DType::kI32, {words}), spoilt_.view(), Queue::kCopy);
  }
  bool is_home(const void* p) const {
    const auto within = [&](const void* rows, const KvView& kv) {
      const auto offset = static_cast<const std::byte*>(p) - static_cast<const std::byte*>(rows);
      return offset >= 0 && offset < kv.format.bytes(kv.kv_heads * kv.head_stride);
    };
    return std::any_of(homes_.begin(), homes_.end(),
                       [&](const KvView& kv) { return within(kv.k, kv) || within(kv.v, kv); });
  }

  Backend& to_;
  Tensor spoilt_;
  std::vector<KvView> homes_;
};

class KvHomesTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  KvHomesTest() : device_(GetParam().make()) {}

  // Logits of a prompt and of two generations over the full cache and over a retrieval cache that
  // selects every 9 tokens.
  std::vector<float> transcript(Selection selection, const KvHomes& homes) {
    const ModelConfig& c = weights_.config;
    // Where a layer's far heads have a slot each the prompt is one pass in tiles of kMaxAppend.
    const bool in_tiles = homes.slots >= kKvHeads;
    FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity,
                   in_tiles ? kPrompt : kMaxAppend, weights_.dtype, homes);
    backend_->know_homes(full, c.layers);
    RetrievalCache retrieval(*backend_, full, c.layers, c.heads, c.kv_heads, c.head_dim, kMaxAppend,
                             weights_.dtype,
                             {32, 8, selection, {RebuildPolicy::Kind::kEvery, 9, 0}});
    LastQueries queries(*backend_, c.layers, c.heads, c.head_dim);
    std::vector<float> all;
    const auto forward = [&](std::span<const Token> tokens, KvCache& cache) {
      LayerObserver* observer = &cache == &full ? &retrieval : nullptr;
      const std::vector<float> logits =
          testing::host_copy(*backend_, model_.forward(tokens, cache, Logits::kAll, observer));
      all.insert(all.end(), logits.begin(), logits.end());
    };
    const std::span<const Token> tokens(tokens_);
    const auto prefill = [&](std::int64_t begin, std::int64_t n) {
      const auto part =
          tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n));
      EXPECT_TRUE(model_.prefill(part, full, begin + n == kPrompt ? &queries : nullptr, {}));
    };
    if (in_tiles) {
      stop_in_the_middle(full);
      prefill(0, kPrompt);
    } else {
      prefill(0, kMaxAppend);
      prefill(kMaxAppend, kPrompt - kMaxAppend);
    }
    full.truncate(kPrompt - 1);
    full.commit(kPrompt - 1);
    retrieval.select_prompt(queries.view(), model_.rope());
    forward(tokens.subspan(kPrompt - 1, 1), full);
    full.commit(kPrompt);
    retrieval.commit(kPrompt);
    full.mark();
    retrieval.mark();
    for (int generation = 0; generation < 2; ++generation) {
      for (std::int64_t at = kPrompt; at < kPrompt + kRounds * kGamma; at += kGamma) {
        const std::span<const Token> round = tokens.subspan(static_cast<std::size_t>(at), kGamma);
        forward(round.first(3), retrieval);
        forward(round, full);
        full.truncate(at + kGamma - 1);  // one is rejected and comes again
        forward(round.last(1), full);
        full.commit(at + kGamma);
        retrieval.truncate(at + 1);
        retrieval.commit(at + kGamma);
        retrieval.report_round(kGamma - 1, kGamma);
      }
      EXPECT_GE(retrieval.selections(), 3);
      full.rewind();
      retrieval.rewind();
    }
    return all;
  }

  // A pass that was asked to end in its second layer leaves nothing behind.
  void stop_in_the_middle(FullCache& full) {
    std::vector<std::int64_t> asked;
    const auto on_tile = [&](std::int64_t done, std::int64_t total) {
      EXPECT_EQ(total, kPrompt);
      asked.push_back(done);
      return asked.size() < 3;
    };
    EXPECT_FALSE(model_.prefill(std::span(tokens_).last(kPrompt), full, nullptr, on_tile));
    EXPECT_EQ(asked,
              (std::vector<std::int64_t>{kMaxAppend / 2, kPrompt / 2, (kPrompt + kMaxAppend) / 2}));
    EXPECT_EQ(full.length(), 0);
  }

  std::unique_ptr<Backend> device_;
  std::unique_ptr<SpoiltSlots> backend_ = std::make_unique<SpoiltSlots>(
      *device_, round_up(kCapacity, device_->kv_granule()) * kHeadDim);
  ModelWeights weights_ =
      random_weights(*backend_, testing::tiny_config(6, kKvHeads, kHeadDim),
                     backend_->activation_dtype() == DType::kF16 ? DType::kF16 : DType::kBF16, 7,
                     MemTag::kTargetWeights, {});
  LlamaModel model_{*backend_, weights_, kCapacity, kMaxAppend, 16, nullptr, {kPrompt}};
  std::vector<Token> tokens_ = testing::random_tokens(kCapacity, weights_.config.vocab, 11);
};

TEST_P(KvHomesTest, FarHeadsGiveTheSameBits) {
  const auto expect_resident_bits = [&](Selection selection, const std::vector<KvHomes>& all) {
    const std::vector<float> resident = transcript(selection, {});
    for (const KvHomes& homes : all) {
      const std::vector<float> found = transcript(selection, homes);
      ASSERT_EQ(found.size(), resident.size());
      EXPECT_EQ(std::memcmp(found.data(), resident.data(), found.size() * sizeof(float)), 0)
          << (selection == Selection::kMeanKey ? "mean key" : "attention") << ", near heads "
          << fmt::format("{}", fmt::join(homes.near_heads, ", ")) << ", " << homes.slots
          << " slots";
    }
  };
  const std::vector<int> none = {0, 0}, some = {1, 2}, all_but_one = {kKvHeads, kKvHeads - 1};
  expect_resident_bits(Selection::kMeanKey, {{none, 0},
                                             {none, 1},
                                             {none, 2},
                                             {none, 3},
                                             {some, 0},
                                             {some, 2},
                                             {all_but_one, 4},
                                             {none, 100}});
  expect_resident_bits(Selection::kAttention, {{some, 0}, {some, 2}});
  // Of a backend in host memory the host's heads have the same bits, too.
  if (backend_->place() == Place::kHost) {
    const std::vector<int> two = {2, 2}, one = {0, 1}, every = {3, 3};
    expect_resident_bits(
        Selection::kMeanKey,
        {{none, 1, every}, {none, 3, every}, {none, 3, two}, {some, 2, one}, {some, 1, one}});
    expect_resident_bits(Selection::kAttention, {{none, 3, two}, {none, 3, every}});
  }
}

// Passes too long for the host bring its heads, too.
TEST_P(KvHomesTest, TheHostsHeadsNeedASlot) {
  const ModelConfig& c = weights_.config;
  EXPECT_THROW(FullCache(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kMaxAppend,
                         weights_.dtype, {{0, 0}, 0, {1, 0}}),
               Error);
}

TEST_P(KvHomesTest, FarHeadsAreInPageLockedMemory) {
  const ModelConfig& c = weights_.config;
  const auto live = [&](MemTag tag) { return backend_->allocator().ledger(tag).live_bytes; };
  const std::int64_t pinned = backend_->allocator().total(Place::kPinned).live_bytes;
  const FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kMaxAppend,
                       weights_.dtype, {{1, 0}, 2});
  const std::int64_t head =
      KvStorage::bytes(1, 1, c.head_dim, kCapacity, weights_.dtype, backend_->kv_granule());
  EXPECT_EQ(live(MemTag::kKvFar), 5 * head);
  EXPECT_EQ(backend_->allocator().total(Place::kPinned).live_bytes - pinned, 5 * head);
  EXPECT_EQ(live(MemTag::kKvFull), 3 * head);  // a near one and two slots
}

INSTANTIATE_TEST_SUITE_P(Backends, KvHomesTest, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triforce
