// Regular expressions by which a tokenizer.json cuts a text into words, matched by PCRE2.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace triforce {

// Immutable and safe to share between threads. Move-only.
class SplitPattern {
 public:
  // `pattern` is written for Oniguruma, which the package `tokenizers` uses. What both libraries
  // read alike is accepted: literals, classes, general categories, \s, \d, groups, lookaround,
  // alternatives and quantifiers. `source` names it in messages.
  // Throws Error(kBadInput, "UnsupportedTokenizer") for anything else, also for a pattern that
  // matches an empty text.
  SplitPattern(std::string_view pattern, const std::string& source);
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // Appends to `pieces` every match in `text` and every text between two matches, in order.
  // `text` is well-formed UTF-8. Throws Error(kBadInput, "LimitExceeded") where one match takes
  // more than 10 million steps or 64 MiB.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triforce
