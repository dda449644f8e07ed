#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "decode/lookup_proposer.h"
#include "reference/reference_backend.h"

namespace triforce {
namespace {

// By comparing every earlier place with the end.
SuffixAutomaton::Repeat slow_repeat(const std::vector<Token>& text, std::int64_t longest) {
  SuffixAutomaton::Repeat best;
  const auto n = std::ssize(text);
  for (std::int64_t end = 1; end < n; ++end) {
    std::int64_t length = 0;
    while (length < std::min(end, longest) && text[static_cast<std::size_t>(end - 1 - length)] ==
                                                  text[static_cast<std::size_t>(n - 1 - length)]) {
      ++length;
    }
    if (length > best.length) best = {length, end};
  }
  return best;
}

void expect_same(const SuffixAutomaton& text, const std::vector<Token>& expected) {
  ASSERT_EQ(text.length(), std::ssize(expected));
  for (const std::int64_t longest : {std::int64_t{1}, std::int64_t{3}, std::int64_t{1} << 40}) {
    const SuffixAutomaton::Repeat found = text.repeat(longest),
                                  slow = slow_repeat(expected, longest);
    ASSERT_EQ(found.length, slow.length) << "of " << expected.size() << ", at most " << longest;
    if (slow.length > 0) {
      ASSERT_EQ(found.end, slow.end) << "of " << expected.size() << ", at most " << longest;
    }
  }
}

TEST(SuffixAutomaton, FindsWhatASearchOfTheWholeTextFinds) {
  std::mt19937 random(7);
  for (const int letters : {1, 2, 3, 20}) {
    SuffixAutomaton text(300);
    std::vector<Token> expected;
    for (int i = 0; i < 300; ++i) {
      expected.push_back(static_cast<Token>(random() % static_cast<unsigned>(letters)));
      text.append(expected.back());
      expect_same(text, expected);
    }
    EXPECT_THROW(text.append(0), Error);  // it is full
  }
}

TEST(SuffixAutomaton, IsWhatItWasWhenTokensAreDropped) {
  std::mt19937 random(11);
  const auto below = [&](std::size_t n) { return static_cast<std::int64_t>(random() % n); };
  for (int turn = 0; turn < 40; ++turn) {
    SuffixAutomaton text(400);
    std::vector<Token> expected;
    for (int step = 0; step < 60; ++step) {
      for (std::int64_t n = below(8); n > 0 && expected.size() < 400; --n) {
        expected.push_back(static_cast<Token>(below(3)));
        text.append(expected.back());
      }
      if (step == 20) text.mark();
      const std::int64_t length = std::max(text.marked(), text.length() - below(6));
      text.truncate(length);
      expected.resize(static_cast<std::size_t>(length));
      expect_same(text, expected);
    }
    EXPECT_GT(text.marked(), 0);
    EXPECT_THROW(text.truncate(text.marked() - 1), Error);
    text.clear();
    expect_same(text, {});
  }
}

std::vector<Token> found_in(const std::vector<Token>& tokens, const Lookup& options, int count) {
  SuffixAutomaton text(std::ssize(tokens));
  for (const Token t : tokens) text.append(t);
  std::vector<Token> found;
  look_up(text, options, count, found);
  return found;
}

TEST(Lookup, ProposesWhatFollowedFirst) {
  using Tokens = std::vector<Token>;
  EXPECT_EQ(found_in({5, 1, 2, 3, 4, 1, 2}, {}, 3), (Tokens{3, 4, 1}));
  EXPECT_EQ(found_in({1, 2, 3}, {}, 3), Tokens());
  EXPECT_EQ(found_in({}, {}, 3), Tokens());
  // The longest repeat is "1 2"; the one of a single token stood earlier.
  EXPECT_EQ(found_in({2, 9, 1, 2, 7, 8, 1, 2}, {}, 2), (Tokens{7, 8}));
  EXPECT_EQ(found_in({2, 9, 1, 2, 7, 8, 1, 2}, {2}, 2), (Tokens{7, 8}));
  EXPECT_EQ(found_in({2, 9, 1, 2, 7, 8, 1, 2}, {1}, 2), (Tokens{9, 1}));
}

TEST(Lookup, GoesOnWithATextThatRepeatsItself) {
  EXPECT_EQ(found_in({1, 2, 3, 1, 2, 3, 1}, {}, 8), (std::vector<Token>{2, 3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(found_in({7, 7}, {}, 4), (std::vector<Token>{7, 7, 7, 7}));
}

// Of several lanes, as many tokens as are asked for or none, each with all the probability.
TEST(LookupProposer, IsCertainOfEachToken) {
  constexpr std::int64_t kVocab = 5;
  constexpr int kMost = 4;
  ReferenceBackend backend;
  PhaseTimer timer(backend);
  LookupProposer::Texts texts;
  for (int l = 0; l < 2; ++l) texts.push_back(std::make_unique<SuffixAutomaton>(64));
  LookupProposer proposer(backend, texts, {}, kMost, kVocab, timer);
  for (int l = 0; l < 2; ++l) proposer.extend(l, std::vector<Token>{0, 1, 2});
  const std::vector<GenerationStart> starts(2, {0, 0, 2, 2});
  proposer.start(starts);
  EXPECT_THROW(proposer.start(std::vector<GenerationStart>(2, {0, 0, 3, 2})), Error);

  const std::vector<int> both = {0, 1};
  std::mt19937 random(3);
  int proposed = 0, empty = 0;
  for (int turn = 0; turn < 60; ++turn) {
    const int asked = 1 + turn % kMost;
    for (const Draft& d : proposer.propose(both, DraftTree::chain(asked))) {
      ++(d.tokens.empty() ? empty : proposed);
      EXPECT_FALSE(d.failed_at);
      if (d.tokens.empty()) continue;
      ASSERT_EQ(std::ssize(d.tokens), asked);
      ASSERT_EQ(d.probs.shape[0], asked);
      for (std::int64_t i = 0; i < asked; ++i) {
        for (std::int64_t id = 0; id < kVocab; ++id) {
          EXPECT_EQ(d.probs.as<float>()[i * d.probs.stride[0] + id],
                    id == d.tokens[static_cast<std::size_t>(i)] ? 1.0F : 0.0F);
        }
      }
    }
    for (int l = 0; l < 2; ++l) {
      const std::int64_t length = proposer.length(l);
      proposer.extend(l, std::vector<Token>{static_cast<Token>(random() % kVocab), 1, 3});
      proposer.truncate(l, std::min<std::int64_t>(length + 1, 50));
    }
  }
  EXPECT_GT(proposed, 60);
  EXPECT_GT(empty, 0);
  EXPECT_TRUE(proposer.may_have_none());
  EXPECT_EQ(proposer.max_tokens(DraftTree::chain(3)), 3);
  EXPECT_THROW(proposer.propose(both, DraftTree::comb(1, 2)), Error);
  EXPECT_THROW(proposer.propose(both, DraftTree::chain(kMost + 1)), Error);
}

}  // namespace
}  // namespace triforce
