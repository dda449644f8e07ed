// Layers of a small cache that read the full one: who owns a row, and that no pass reads another's.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "backend/backends.h"
#include "model/prompt_replay.h"
#include "model/tiny_model.h"

namespace triforce {
namespace {

using Logit = std::vector<float>;

constexpr int kLayers = 3, kKvHeads = 2, kHeadDim = 64, kAppend = 24;
constexpr std::int64_t kCapacity = 256, kPrompt = 90, kPass = 16;
// The retrieval cache has room for everything, and chunks for which there is no need; the streaming
// one evicts.
constexpr std::int64_t kBudget = 256, kWindow = 48;

ModelConfig config() {
  ModelConfig c = testing::tiny_config(4, kKvHeads, kHeadDim);
  c.layers = kLayers;
  return c;
}

// The caches of one sequence, of which the small ones share their first layers with the full one.
struct Caches {
  Caches(Backend& b, LlamaModel& model, DType dtype, int dense)
      : b_(b),
        model_(model),
        full(b, kLayers, kKvHeads, kHeadDim, kCapacity, kPass, dtype),
        retrieval(b, full, kLayers, 4, kKvHeads, kHeadDim, kAppend, dtype,
                  {kBudget, 8, Selection::kMeanKey, {}, dense}),
        streaming(b, kLayers, kKvHeads, kHeadDim, kWindow, kAppend, dtype, {&full, dense}) {}

  // Logits of each token, in passes of up to `step`.
  Logit feed(std::span<const Token> tokens, KvCache& cache, std::int64_t step = kPass) {
    Logit all;
    for (std::size_t i = 0; i < tokens.size(); i += static_cast<std::size_t>(step)) {
      const auto n = std::min(tokens.size() - i, static_cast<std::size_t>(step));
      const Logit part = testing::host_copy(
          b_, model_.forward(tokens.subspan(i, n), cache, Logits::kAll, nullptr));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  // A prompt of all tokens and `more`, of which the full cache and the retrieval cache hold all but
  // the last token and the streaming cache nothing.
  void start(std::span<const Token> prompt) {
    for (KvCache* cache : std::array<KvCache*, 3>{&full, &retrieval, &streaming}) cache->reset();
    LastQueries queries(b_, kLayers, 4, kHeadDim);
    const std::size_t last = prompt.size() - 1;
    feed(prompt.first(last - 1), full);
    testing::end_prompt(model_, prompt.subspan(last - 1, 2), full, retrieval, queries);
  }

 private:
  Backend& b_;
  LlamaModel& model_;

 public:
  FullCache full;
  RetrievalCache retrieval;
  StreamingCache streaming;
};

class DenseLayersTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  Caches caches(int dense) { return {*backend_, model_, weights_.dtype, dense}; }
  std::vector<Token> tokens(std::int64_t n, std::uint32_t seed) const {
    return testing::random_tokens(n, weights_.config.vocab, seed);
  }

  std::unique_ptr<Backend> backend_{GetParam().make()};
  ModelWeights weights_ = random_weights(
      *backend_, config(), backend_->activation_dtype() == DType::kF16 ? DType::kF16 : DType::kBF16,
      7, MemTag::kTargetWeights, {});
  LlamaModel model_{*backend_, weights_, kCapacity, 64, 32};
};

// The last n rows.
Logit last_rows(const Logit& all, std::size_t n, std::int64_t vocab) {
  return {all.end() - static_cast<std::ptrdiff_t>(n * static_cast<std::size_t>(vocab)), all.end()};
}

// Rounds of decoding as they come: drafts that are undone and drawn again, verifications that
// reject, that accept more than was fed, and whose rejected rows stay behind in the full cache; now
// and then another small cache uses the same rows. Every pass gives the logits of caches that have
// only ever seen the sequence itself.
TEST_P(DenseLayersTest, NoPassReadsTheRowsOfOtherTokens) {
  for (const int dense : {1, 2}) {
    Caches used = caches(dense), once = caches(dense);
    std::mt19937 g(static_cast<std::uint32_t>(dense));
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(g() % static_cast<std::uint32_t>(high - low + 1));
    };
    std::vector<Token> sequence = tokens(kPrompt, 5);
    used.start(sequence);
    sequence.pop_back();
    const auto from = [&](std::int64_t first) {
      return std::span<const Token>(sequence).subspan(static_cast<std::size_t>(first));
    };
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(::testing::Message() << "dense layers " << dense << ", round " << round);
      const auto base = static_cast<std::int64_t>(sequence.size());
      const std::int64_t held = used.retrieval.length();  // below base where more was accepted
      const auto grow = [&](std::int64_t n) {
        for (const Token t : tokens(n, static_cast<std::uint32_t>(g()))) sequence.push_back(t);
      };
      grow(pick(1, 6));
      used.feed(from(held), used.retrieval, pick(1, 3));
      if (pick(0, 1) == 0) {
        const std::int64_t keep = pick(base, static_cast<std::int64_t>(sequence.size()) - 1);
        sequence.resize(static_cast<std::size_t>(keep));
        used.retrieval.truncate(keep);
        grow(pick(1, 6));
        used.feed(from(keep), used.retrieval, pick(1, 3));
      }
      used.retrieval.truncate(used.retrieval.length() - 1);
      const Logit drafted = used.feed(from(used.retrieval.length()), used.retrieval);
      const std::int64_t proposed = static_cast<std::int64_t>(sequence.size()) - base;
      const bool bonus = pick(0, 2) == 0;
      if (bonus) grow(1);
      const Logit verified = used.feed(from(base), used.full);

      once.start(from(0).first(kPrompt));
      once.feed(from(kPrompt - 1).first(static_cast<std::size_t>(base - kPrompt + 1)), once.full);
      once.retrieval.commit(base);
      const Logit expected =
          once.feed(from(base).first(static_cast<std::size_t>(proposed)), once.retrieval);
      EXPECT_EQ(drafted, last_rows(expected, 1, weights_.config.vocab));
      EXPECT_EQ(verified, once.feed(from(base), once.full));

      const std::int64_t accepted = bonus ? proposed + 1 : pick(0, proposed);
      sequence.resize(static_cast<std::size_t>(base + accepted));
      used.full.truncate(base + accepted);
      used.full.commit(base + accepted);
      used.retrieval.truncate(std::min(used.retrieval.length(), base + accepted));
      used.retrieval.commit(used.retrieval.length());
      if (pick(0, 2) == 0) {
        used.streaming.reset();
        used.feed(tokens(pick(1, 2 * kAppend), 9), used.streaming, 1);
      }
    }
  }
}

// A streaming cache that goes through the prompt, or through any other tokens, leaves what was
// verified as it was.
TEST_P(DenseLayersTest, VerifiedRowsStayWhateverIsFed) {
  const std::vector<Token> prompt = tokens(kPrompt, 5), other = tokens(kPrompt + 3, 6);
  const std::vector<Token> probe = tokens(4, 7);
  Caches c = caches(2);
  c.start(prompt);
  const Logit expected = c.feed(probe, c.full);
  c.full.truncate(c.full.committed());
  for (std::size_t i = 0; i < other.size(); i += kAppend) {
    const std::size_t n = std::min<std::size_t>(kAppend, other.size() - i);
    model_.forward(std::span(other).subspan(i, n), c.streaming, Logits::kNone);
    c.streaming.commit(c.streaming.length());
  }
  EXPECT_EQ(c.streaming.length(), c.full.length() + 4);  // the last pass goes beyond
  EXPECT_EQ(c.feed(probe, c.full), expected);
  // Nor does the prompt once more.
  c.full.truncate(c.full.committed());
  PromptReplay replay(*backend_, c.full, kLayers);
  c.feed(std::span(other).first(static_cast<std::size_t>(kPrompt) - 1), replay);
  EXPECT_EQ(replay.length(), c.full.length());
  EXPECT_EQ(c.feed(probe, c.full), expected);
}

// Rows beyond what is verified are the last writer's. Who held some before must feed them again.
TEST_P(DenseLayersTest, RowsThatWereTakenMustBeFedAgain) {
  const std::vector<Token> prompt = tokens(kPrompt, 5), draft = tokens(4, 6), other = tokens(3, 8);
  Caches c = caches(1);
  c.start(prompt);
  const std::int64_t base = c.full.length();
  const Logit expected = c.feed(draft, c.retrieval);
  c.retrieval.truncate(base + 2);
  EXPECT_NO_THROW(c.feed(std::span(draft).last(2), c.retrieval));
  c.retrieval.truncate(base + 2);
  c.feed(other, c.full);
  c.full.truncate(base);
  EXPECT_THROW(c.feed(std::span(draft).last(2), c.retrieval), Error);
}

// The first layers see all of the prompt: with everything else cut away they still tell prompts
// apart that differ only where nothing but them looks.
TEST_P(DenseLayersTest, DenseLayersSeeWhatTheSmallCacheDropped) {
  const std::vector<Token> prompt = tokens(kPrompt, 5);
  std::array<std::array<Logit, 2>, 2> logits;  // by dense layers, by prompt
  for (const int changed : {0, 1}) {
    for (const int dense : {0, 1}) {
      Caches c = caches(dense);
      std::vector<Token> fed = prompt;
      if (changed == 1) fed[30] = (fed[30] + 1) % static_cast<Token>(weights_.config.vocab);
      c.start(fed);
      // What the stored layers see is the same: they are given the tail alone, at its positions.
      for (std::size_t i = 0; i + 1 < fed.size(); i += 8) {
        const std::size_t n = std::min<std::size_t>(8, fed.size() - 1 - i);
        model_.forward(std::span<const Token>(prompt).subspan(i, n), c.streaming, Logits::kNone);
        c.streaming.commit(c.streaming.length());
      }
      logits[static_cast<std::size_t>(dense)][static_cast<std::size_t>(changed)] =
          c.feed(std::span<const Token>(prompt).last(1), c.streaming);
    }
  }
  EXPECT_EQ(logits[0][0], logits[0][1]);
  EXPECT_NE(logits[1][0], logits[1][1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, DenseLayersTest, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triforce
