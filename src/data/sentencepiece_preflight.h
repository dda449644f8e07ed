// Checks a SentencePiece model before the library sees it: published versions of it read out of
// bounds on crafted files.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triforce {

inline constexpr std::int64_t kMaxTokenizerBytes = 16 << 20;

// This is what decoding needs of a SentencePiece model. Field numbers and defaults:
// google/sentencepiece, src/sentencepiece_model.proto.
struct SentencePieceModel {
  enum class PieceType : std::uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  struct Piece {
    std::string text;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;
  bool byte_fallback = false;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true;
  std::string unk_surface = " \xE2\x81\x87 ";
};

// Parses and checks the bytes of a tokenizer.model; `vocab` is the largest number of pieces.
// Throws Error(kBadInput, "InvalidTokenizer").
SentencePieceModel check_sentencepiece_model(std::string_view bytes, std::int64_t vocab,
                                             const std::string& source);

}  // namespace triforce
