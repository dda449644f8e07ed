// What stands behind Tokenizer: one class a kind of file.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/tokenizer.h"

namespace triforce {

// Decoded is what one id adds to a text. It is worked out once, when the file is read.
struct Decoded {
  // kText is whole characters. kBytes joins bytes beside it to characters; there may be none.
  enum class Kind : std::uint8_t { kText, kControl, kUnknown, kBytes } kind = Kind::kText;
  std::string text;                // spaces in place; empty for kControl
  bool begins_with_space = false;  // which may be taken off at the beginning of a text
};

struct Tokenizer::Impl {
  virtual ~Impl() = default;
  // `text` is well-formed UTF-8.
  virtual std::vector<Token> encode(std::string_view text) const = 0;

  std::vector<std::optional<Decoded>> decoded;  // per id; nothing: no token has it
  std::vector<std::string> names;               // per id, as the file writes it; empty: none
  std::int64_t vocab = 0;
  bool strips_space = false, strips_all_spaces = false;
  std::optional<std::optional<Token>> first;  // nothing: the file does not say
  std::string sha256;
};

// These read a file's bytes. Ids lie in [0, vocab). `source` names it in messages. They throw
// Error(kBadInput, "InvalidTokenizer").
std::unique_ptr<Tokenizer::Impl> make_sentencepiece_tokenizer(const std::string& bytes,
                                                              std::int64_t vocab,
                                                              const std::string& source);
std::unique_ptr<Tokenizer::Impl> make_json_tokenizer(std::string_view bytes, std::int64_t vocab,
                                                     const std::string& source);

}  // namespace triforce
