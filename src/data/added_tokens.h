// Finds the added tokens of a tokenizer.json in a text.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer_json.h"

namespace triforce {

// Immutable and safe to share between threads.
class AddedTokens {
 public:
  AddedTokens() = default;
  // No two of them have the same content, and none an empty one.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Called with a part of the text in which none of them is; begin: its offset.
  using OnText = std::function<void(std::string_view part, std::size_t begin)>;
  using OnToken = std::function<void(Token id)>;
  // Cuts well-formed UTF-8 in order. Of the tokens that begin at the same place the longest counts,
  // and of overlapping ones the first.
  void cut(std::string_view text, const OnText& on_text, const OnToken& on_token) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;
  std::vector<AddedToken> tokens_;  // by content
  std::array<bool, 256> begins_{};  // bytes that one begins with
};

}  // namespace triforce
