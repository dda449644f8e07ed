// When the retrieval cache selects again, and what rewind() restores.
#include <gtest/gtest.h>

#include "model/tiny_model.h"

namespace triforce {
namespace {

using testing::random_tokens;
using testing::Tiny;
using testing::tiny_config;

// A prompt of 80 tokens, then verified rounds of `step` tokens that are all accepted.
struct Rounds {
  explicit Rounds(RebuildPolicy policy, std::int64_t budget = 32,
                  Selection selection = Selection::kMeanKey)
      : t(tiny_config()),
        full(t.full()),
        retrieval(*t.backend, full, 2, 4, 2, 8, 16, DType::kF32, {budget, 4, selection, policy}),
        tokens(random_tokens(250, 61, 11)) {
    t.run(std::span(tokens).first(40), full, 40);
    testing::end_and_feed_again(t, std::span(tokens).subspan(40, 40), full, retrieval);
    full.commit(80);
    full.mark();
    retrieval.mark();
  }
  // Returns the selections made so far.
  std::int64_t round(std::int64_t step) {
    const auto at = static_cast<std::size_t>(full.length());
    t.run(std::span(tokens).subspan(at, static_cast<std::size_t>(step)), full, step, &retrieval);
    full.commit(full.length());
    retrieval.commit(full.length());
    return retrieval.selections();
  }
  // Every row and id that decides an answer.
  std::vector<float> probe() {
    const Token next = 5;
    std::vector<float> logits = t.run({&next, 1}, retrieval, 1);
    retrieval.truncate(retrieval.length() - 1);
    return logits;
  }

  Tiny t;
  FullCache full;
  RetrievalCache retrieval;
  std::vector<Token> tokens;
};

TEST(RebuildPolicy, NeverSelectsOnlyWhenTheRoomEnds) {
  Rounds r({});
  // 28 rows of room, 4 of them taken by the prompt's end: after six rounds of 4 nothing is left for
  // a seventh, whose pass selects and leaves room for its own 4 and six more rounds.
  for (int i = 0; i < 6; ++i) EXPECT_EQ(r.round(4), 0) << i;
  EXPECT_EQ(r.round(4), 1);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(r.round(4), 1) << i;
  EXPECT_EQ(r.round(4), 2);
}

TEST(RebuildPolicy, EverySelectsAtTheIntervalOfCommittedTokens) {
  Rounds r({RebuildPolicy::Kind::kEvery, 10, 0});
  std::vector<std::int64_t> selections;
  for (int i = 0; i < 9; ++i) selections.push_back(r.round(4));
  // 4, 8, 12 tokens: the fourth round's pass selects; its own 4 count towards the next interval.
  EXPECT_EQ(selections, (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
}

TEST(RebuildPolicy, AdaptiveSelectsWhenAcceptanceFalls) {
  Rounds r({RebuildPolicy::Kind::kAdaptive, 0, 0.5}, 200);
  const auto report = [&](std::int64_t accepted, int times) {
    for (int i = 0; i < times; ++i) r.retrieval.report_round(accepted, 4);
  };
  report(4, 8);
  report(2, 7);  // 18 of 32 in the window
  EXPECT_EQ(r.round(1), 0);
  report(1, 2);  // 14 of 32
  EXPECT_EQ(r.round(1), 1);
  report(0, 7);  // the window starts anew: not full yet
  EXPECT_EQ(r.round(1), 1);
  report(0, 1);
  EXPECT_EQ(r.round(1), 2);
}

TEST(RebuildPolicy, RewindRestoresThePromptBitForBit) {
  for (const Selection selection : {Selection::kMeanKey, Selection::kAttention}) {
    for (const std::int64_t budget : {8, 32, 76, 80, 84, 200}) {
      Rounds r({RebuildPolicy::Kind::kEvery, 5, 0}, budget, selection);
      const std::vector<std::int32_t> ids = r.retrieval.selected_chunks();
      const std::vector<float> logits = r.probe();
      for (int generation = 0; generation < 2; ++generation) {
        for (int i = 0; i < 6; ++i) r.round(3 + i % 3);
        EXPECT_GT(r.retrieval.selections(), 0);
        r.full.rewind();
        r.retrieval.rewind();
        EXPECT_EQ(r.retrieval.selections(), 0);
        EXPECT_EQ(r.retrieval.length(), 80);
        EXPECT_EQ(r.retrieval.selected_chunks(), ids) << budget;
        EXPECT_EQ(r.probe(), logits) << budget;
      }
    }
  }
}

TEST(RebuildPolicy, ResetForgetsThePrompt) {
  Rounds r({});
  r.round(4);
  r.retrieval.reset();
  r.full.reset();
  EXPECT_EQ(r.retrieval.length(), 0);
  EXPECT_FALSE(r.retrieval.begin_pass(4, RowPath::kInvariant));
  EXPECT_TRUE(r.retrieval.selected_chunks().empty());
}

}  // namespace
}  // namespace triforce
