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
  int unknown = 0;
  for (const auto& piece : model.pieces) {
    unknown += piece.type == SentencePieceModel::PieceType::kUnknown ? 1 : 0;
    fuzz::require(!piece.text.empty() && is_valid_utf8(piece.text), "text of a piece");
  }
  fuzz::require(unknown == 1, "unknown piece");
  return 0;
}
