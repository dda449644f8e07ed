// Reads tokenizer_config.json, in which transformers keeps what a tokenizer's own file does not
// say.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace triforce {

struct TokenizerConfig {
  static constexpr const char* kFile = "tokenizer_config.json";
  std::optional<bool> adds_bos;  // add_bos_token; nothing: not said
  std::string bos, eos;          // as the tokenizer writes them; empty: none
};

// Reads that file of a checkpoint's folder; without one nothing is said. Throws Error(kBadInput):
// InvalidTokenizer, or as reading files does.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

}  // namespace triforce
