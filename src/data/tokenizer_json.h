// Reads a tokenizer.json, the file of the package `tokenizers`, of byte-pair encoding. Only
// components that are understood are accepted.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "data/byte_pair_encoder.h"
#include "data/split_pattern.h"
#include "triforce/tensor.h"

namespace triforce {

inline constexpr std::int64_t kMaxTokenizerJsonBytes = 64 << 20;

// A token that is found in the text before anything else is done with it.
struct AddedToken {
  Token id = 0;
  std::string content;
  bool strips_left = false, strips_right = false;  // white space beside it belongs to it
  bool normalized = false;                         // it is looked for in normalised text
  bool special = false;                            // decoding leaves it out
};

// Steps of normalising a text, in their order.
struct ComposeCharacters {};  // Unicode's form NFC
struct Prepend {
  std::string prefix;
};
struct Replace {
  std::string from, to;
};
using NormalizerStep = std::variant<ComposeCharacters, Prepend, Replace>;

// Spaces become another character, one of which is put before the text.
struct Metaspace {
  std::string replacement;
  enum class Prepend : std::uint8_t { kNever, kFirst, kAlways } prepend = Prepend::kAlways;
  bool splits = true;  // before each replacement
};

struct TokenizerJson {
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  // How a text is cut into words, one after the other.
  std::vector<SplitPattern> splits;
  bool byte_level = false;         // symbols are bytes; otherwise characters
  bool adds_prefix_space = false;  // byte_level: where a text begins with none
  std::optional<Metaspace> metaspace;

  // Text per id, of added tokens, too; where byte_level its bytes as they are. Nothing: no such id.
  std::vector<std::optional<std::string>> vocabulary;
  std::unordered_map<std::string, Token> symbols;  // what merging begins with and makes
  std::vector<BytePairEncoder::Merge> merges;      // by rank
  // The symbol of bytes or characters that have none. Nothing: they are left out of the ids.
  std::optional<Token> unknown;
  bool fuses_unknown = false, ignores_merges = false;
  std::optional<std::vector<Token>> byte_tokens;  // 256 of byte fallback

  std::optional<Token> first;         // what the file's template puts before a text
  std::string decoded_space;          // decoding makes a space of this; empty: nothing
  bool strips_leading_space = false;  // of a decoded text, one
};

// Parses and checks the file's text. Ids lie in [0, vocab). `source` names it in messages. Linear
// in its size but for sorting. Throws Error(kBadInput): InvalidTokenizer for what is not
// JSON, DuplicateKey, LimitExceeded, UnsupportedTokenizer with the component that is not
// understood.
TokenizerJson read_tokenizer_json(std::string_view text, std::int64_t vocab,
                                  const std::string& source);

}  // namespace triforce
