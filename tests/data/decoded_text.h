// The text of a whole sequence.
#pragma once
#include <span>
#include <string>

#include "triforce/tokenizer.h"

namespace triforce {

inline std::string decoded_text(const Tokenizer& tokenizer, std::span<const Token> ids) {
  Tokenizer::Stream stream(tokenizer, /*at_start=*/true);
  std::string text;
  for (const Token id : ids) text += stream.push(id);
  return text + stream.finish();
}

}  // namespace triforce
