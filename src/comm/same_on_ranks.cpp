#include "comm/same_on_ranks.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace triforce {
namespace {

// Each fact ends with a byte that is in none of them.
constexpr char kEnd = '\0';

std::string text_of(const RankFacts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + '\n' + value + kEnd;
  return text;
}

// Every rank's text.
std::vector<std::string> gather(RankLinks& links, const std::string& own) {
  const auto size = static_cast<std::size_t>(links.shard().size);
  const auto rank = static_cast<std::size_t>(links.shard().rank);
  const std::vector<std::size_t> lengths = links.gather_values(own.size());
  const std::size_t longest = *std::ranges::max_element(lengths);
  std::string all(size * longest, kEnd);
  own.copy(all.data() + rank * longest, longest);
  links.all_gather(std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < size; ++r) texts.push_back(all.substr(r * longest, lengths[r]));
  return texts;
}

// The name and the value of a fact that begins `text`, which it is taken from.
std::pair<std::string_view, std::string_view> take_fact(std::string_view& text) {
  const std::string_view fact = text.substr(0, text.find(kEnd));
  text.remove_prefix(std::min(text.size(), fact.size() + 1));
  const std::size_t name = std::min(fact.find('\n'), fact.size());
  return {fact.substr(0, name), fact.substr(std::min(fact.size(), name + 1))};
}

// Throws the first fact in which texts[other] is not rank 0's.
[[noreturn]] void throw_different(const std::vector<std::string>& texts, std::size_t other) {
  std::string_view here = texts[0], there = texts[other];
  for (;;) {
    const auto [name, expected] = take_fact(here);
    const auto [other_name, found] = take_fact(there);
    if (name == other_name && expected == found) continue;
    throw Error(ExitCode::kUsage, "RanksDiffer",
                fmt::format("{}: expected the same on all ranks, found {} on rank 0 and {} on rank "
                            "{}",
                            name.empty() ? other_name : name, expected.empty() ? "none" : expected,
                            name != other_name ? "another program"
                            : found.empty()    ? "none"
                                               : found,
                            other));
  }
}

}  // namespace

void expect_same(RankLinks& links, const RankFacts& facts) {
  const std::vector<std::string> texts = gather(links, text_of(facts));
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] != texts[0]) throw_different(texts, r);
  }
}

}  // namespace triforce
