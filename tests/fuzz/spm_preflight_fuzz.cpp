// SentencePiece models: the check in front of the library, not the library.
#include "core/utf8.h"
#include "data/sentencepiece_preflight.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triforce;
  SentencePieceModel model;
  const std::string kind = fuzz::outcome([&] {
    model = check_sentencepiece_model(fuzz::as_text(data, size), 1 << 16, "tokenizer.model");
  });
  if (!kind.empty()) return 0;
  const auto n = static_cast<std::int32_t>(model.pieces.size());
  fuzz::require(n >= 1 && n <= 1 << 16, "number of pieces");
  fuzz::require(model.unk >= 0 && model.unk < n, "unknown piece");
  fuzz::require(model.bos < n && model.eos < n, "special pieces");
  for (const auto& piece : model.pieces) {
    fuzz::require(!piece.text.empty() && is_valid_utf8(piece.text), "text of a piece");
  }
  return 0;
}
