#include "data/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace triforce {
namespace {

using Merge = BytePairEncoder::Merge;

std::vector<Token> encode(const BytePairEncoder& encoder, const std::vector<Token>& word) {
  BytePairEncoder::Scratch scratch;
  std::vector<Token> ids;
  encoder.encode(word, scratch, ids);
  return ids;
}

// The algorithm as its paper writes it: the pair of the lowest rank, the first of them, again and
// again.
std::vector<Token> merged_plainly(const std::vector<Merge>& merges, std::vector<Token> word) {
  while (true) {
    std::size_t best = merges.size(), where = 0;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      for (std::size_t rank = 0; rank < best; ++rank) {
        if (merges[rank].left != word[i] || merges[rank].right != word[i + 1]) continue;
        best = rank;
        where = i;
        break;
      }
    }
    if (best == merges.size()) return word;
    word[where] = merges[best].merged;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(BytePairEncoder, RanksDecide) {
  const std::vector<Merge> merges = {{1, 2, 10}, {0, 1, 11}, {11, 2, 12}, {10, 10, 13}};
  const BytePairEncoder encoder(merges);
  EXPECT_EQ(encode(encoder, {0, 1, 2}), (std::vector<Token>{0, 10}));
  EXPECT_EQ(encode(encoder, {0, 1, 1, 2}), (std::vector<Token>{11, 10}));
  EXPECT_EQ(encode(encoder, {1, 2, 1, 2, 1, 2}), (std::vector<Token>{13, 10}));
  EXPECT_EQ(encode(encoder, {}), std::vector<Token>{});
  EXPECT_EQ(encode(encoder, {7}), std::vector<Token>{7});
  EXPECT_EQ(encode(BytePairEncoder(), {1, 2}), (std::vector<Token>{1, 2}));
}

TEST(BytePairEncoder, TheLaterOfTwoMergesOfAPairCounts) {
  const std::vector<Merge> merges = {{1, 2, 10}, {0, 1, 11}, {1, 2, 12}};
  EXPECT_EQ(encode(BytePairEncoder(merges), {0, 1, 2}), (std::vector<Token>{11, 2}));
  EXPECT_EQ(encode(BytePairEncoder(merges), {1, 2}), std::vector<Token>{12});
}

// Merges as training finds them: each makes a token of its own from tokens that are there.
TEST(BytePairEncoder, EqualsThePlainAlgorithm) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<Merge> merges;
    Token next = 4;
    for (int i = 0; i < 60; ++i) {
      const auto left = static_cast<Token>(random() % static_cast<unsigned>(next));
      const auto right = static_cast<Token>(random() % static_cast<unsigned>(next));
      const bool known = std::ranges::any_of(
          merges, [&](const Merge& m) { return m.left == left && m.right == right; });
      if (!known) merges.push_back({left, right, next++});
    }
    const BytePairEncoder encoder(merges);
    for (int text = 0; text < 20; ++text) {
      std::vector<Token> word(random() % 40);
      for (Token& id : word) id = static_cast<Token>(random() % 4);
      ASSERT_EQ(encode(encoder, word), merged_plainly(merges, word)) << "round " << round;
    }
  }
}

// All merges apply: half a million of them on one word.
TEST(BytePairEncoder, AWordOfAMillionSymbols) {
  std::vector<Merge> merges;
  for (Token i = 0; i < 20; ++i) merges.push_back({i, i, i + 1});
  const std::vector<Token> ids =
      encode(BytePairEncoder(merges), std::vector<Token>(std::size_t{1} << 20));
  EXPECT_EQ(ids, std::vector<Token>{20});
}

}  // namespace
}  // namespace triforce
