// Where the rows of a full cache lie changes no bit of what is computed from them.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/backends.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

using Near = std::vector<int>;  // near KV heads of each layer; empty: all
constexpr int kKvHeads = 3, kGamma = 5;
constexpr std::int64_t kPrompt = 83, kRounds = 8, kCapacity = 200, kMaxAppend = 64;

class KvHomes : public ::testing::TestWithParam<BackendCase> {
 protected:
  KvHomes() : backend_(GetParam().make()) {}

  // Logits of a prompt and of two generations over the full cache and over a retrieval cache that
  // selects every 9 tokens.
  std::vector<float> transcript(Selection selection, const Near& near_heads) {
    const ModelConfig& c = weights_.config;
    FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kMaxAppend,
                   weights_.dtype, near_heads);
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
    model_.forward(tokens.first(kMaxAppend), full, Logits::kNone);
    testing::end_prompt(model_, tokens.subspan(kMaxAppend, kPrompt - kMaxAppend), full, retrieval,
                        queries);
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

  std::unique_ptr<Backend> backend_;
  ModelWeights weights_ =
      random_weights(*backend_, testing::tiny_config(6, kKvHeads, 64),
                     backend_->activation_dtype() == DType::kF16 ? DType::kF16 : DType::kBF16, 7,
                     MemTag::kTargetWeights, {});
  LlamaModel model_{*backend_, weights_, kCapacity, kMaxAppend, 16};
  std::vector<Token> tokens_ = testing::random_tokens(kCapacity, weights_.config.vocab, 11);
};

TEST_P(KvHomes, FarHeadsGiveTheSameBits) {
  for (const Selection selection : {Selection::kMeanKey, Selection::kAttention}) {
    const std::vector<float> resident = transcript(selection, {});
    for (const Near& near_heads : {Near{0, 0}, Near{kKvHeads, 0}, Near{1, 2}}) {
      const std::vector<float> found = transcript(selection, near_heads);
      ASSERT_EQ(found.size(), resident.size());
      EXPECT_EQ(std::memcmp(found.data(), resident.data(), found.size() * sizeof(float)), 0)
          << (selection == Selection::kMeanKey ? "mean key" : "attention") << ", near heads "
          << fmt::format("{}", fmt::join(near_heads, ", "));
    }
  }
}

TEST_P(KvHomes, FarHeadsAreInPageLockedMemory) {
  const ModelConfig& c = weights_.config;
  const auto live = [&](Place place) { return backend_->allocator().total(place).live_bytes; };
  const std::int64_t near_before = live(backend_->place()), far_before = live(Place::kPinned);
  const FullCache full(*backend_, c.layers, c.kv_heads, c.head_dim, kCapacity, kMaxAppend,
                       weights_.dtype, {1, 0});
  const std::int64_t head =
      KvStorage::bytes(1, 1, c.head_dim, kCapacity, weights_.dtype, backend_->kv_granule());
  EXPECT_EQ(live(Place::kPinned) - far_before, 5 * head);
  EXPECT_LT(live(backend_->place()) - near_before, 2 * head);  // one, and the inputs of passes
}

INSTANTIATE_TEST_SUITE_P(Backends, KvHomes, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triforce
