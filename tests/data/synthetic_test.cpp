// The synthetic documents: golden bytes, determinism, and how far back they refer.
#include "data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace triforce {
namespace {

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// Results of earlier runs name their prompts by (seed, index), and the built-in pair was trained on
// this text: a change of any byte is a change of the dataset.
TEST(Synthetic, GoldenHashes) {
  struct Golden {
    std::uint64_t seed, index;
    std::size_t min_bytes, size;
    std::uint64_t hash;
  };
  const Golden cases[] = {
      {42, 0, 1, 591, 2694783786078401164u},
      {42, 0, 32768, 33420, 86809963099581157u},
      {42, 1, 32768, 32995, 9480694362969486392u},
      {0xFFFFFFFFFFFFFFFFu, 0x123456789ABCDEFu, 500000, 500316, 4809746260867608465u},
  };
  for (const Golden& golden : cases) {
    const std::string text = synthetic_document(golden.seed, golden.index, golden.min_bytes);
    EXPECT_EQ(text.size(), golden.size) << golden.seed << " " << golden.index;
    EXPECT_EQ(fnv1a(text), golden.hash) << golden.seed << " " << golden.index;
  }
}

TEST(Synthetic, LengthAndPrefix) {
  const std::string longest = synthetic_document(7, 3, 300000);
  for (const std::size_t min_bytes : {0u, 1u, 999u, 20000u, 131072u, 299999u}) {
    const std::string text = synthetic_document(7, 3, min_bytes);
    EXPECT_GE(text.size(), min_bytes);
    EXPECT_LT(text.size(), min_bytes + 4096);
    EXPECT_EQ(text, longest.substr(0, text.size())) << min_bytes;
  }
}

TEST(Synthetic, SeedAndIndexBothMatter) {
  const std::string base = synthetic_document(1, 1, 4000);
  EXPECT_EQ(base, synthetic_document(1, 1, 4000));
  for (const auto& [seed, index] : {std::pair<std::uint64_t, std::uint64_t>{2, 1},
                                    {1, 2},
                                    {1 + (1ull << 32), 1},
                                    {1, 1 + (1ull << 32)}}) {
    EXPECT_NE(base.substr(0, 1000), synthetic_document(seed, index, 4000).substr(0, 1000));
  }
}

TEST(Synthetic, IsPlainText) {
  for (const char c : synthetic_document(5, 5, 200000)) {
    ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
    ASSERT_NE(c, '{') << "a field was left unfilled";
  }
}

// Of the lines that repeat an earlier line word for word: how many bytes back that one lies.
std::map<int, int> repeats_by_octave(const std::string& text, std::size_t& repeated_bytes) {
  std::unordered_map<std::string, std::size_t> seen;
  std::map<int, int> octaves;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (line.size() >= 40) {
      const auto [entry, is_new] = seen.emplace(line, at);
      if (!is_new) {
        ++octaves[static_cast<int>(std::bit_width(at - entry->second)) - 1];
        repeated_bytes += line.size();
        entry->second = at;
      }
    }
    at = end + 1;
  }
  return octaves;
}

TEST(Synthetic, ReturnsAtEveryDistance) {
  std::map<int, int> octaves;
  std::size_t repeated_bytes = 0, bytes = 0;
  int repeats = 0;
  for (std::uint64_t index = 0; index < 8; ++index) {
    const std::string text = synthetic_document(11, index, 131072);
    bytes += text.size();
    for (const auto& [octave, n] : repeats_by_octave(text, repeated_bytes)) {
      octaves[octave] += n;
      repeats += n;
    }
  }
  // A quarter of the text at least can be had word for word, and only from afar.
  EXPECT_GT(repeated_bytes * 4, bytes);
  // Log-uniform over the seven octaves from 1 KiB to 128 KiB would be 14% each; the first and the
  // last are cut short by the page before and by the text's beginning.
  for (int octave = 11; octave <= 15; ++octave) {
    EXPECT_GT(octaves[octave] * 100, repeats * 7) << "octave " << octave << " of " << repeats;
  }
  for (const auto& [octave, n] : octaves) {
    EXPECT_GE(octave, 9) << n << " repeats in sight of a short window";
  }
}

// Names are what must be copied: most words with a capital in the midst of a line recur, far away.
TEST(Synthetic, NamesAreRareAndRecurFarAway) {
  std::unordered_map<std::string, std::size_t> last;
  std::size_t far = 0, uses = 0;
  const std::string text = synthetic_document(3, 0, 100000);
  for (std::size_t at = 1; at + 1 < text.size(); ++at) {
    if (text[at] < 'A' || text[at] > 'Z' || text[at - 1] != ' ') continue;
    std::size_t end = at;
    while (end < text.size() && (std::isalpha(static_cast<unsigned char>(text[end])) != 0)) ++end;
    const auto [entry, is_new] = last.emplace(text.substr(at, end - at), at);
    ++uses;
    if (!is_new && at - entry->second > 4096) ++far;
    entry->second = at;
    at = end;
  }
  EXPECT_GT(last.size(), 500u);     // distinct
  EXPECT_GT(far * 100, uses * 15);  // farther back than some 1,500 tokens
}

}  // namespace
}  // namespace triforce
