// Tests: tests/data/tokenizer_test.cpp
#include <sentencepiece_processor.h>

#include <utility>

#include "core/utf8.h"
#include "data/sentencepiece_preflight.h"
#include "data/tokenizer_impl.h"

namespace triforce {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581 stands for a space

Decoded decode_piece(const SentencePieceModel::Piece& piece, const std::string& unk_surface) {
  using Type = SentencePieceModel::PieceType;
  if (piece.type == Type::kControl) return {Decoded::Kind::kControl, {}};
  if (piece.type == Type::kUnknown) return {Decoded::Kind::kUnknown, unk_surface};
  if (piece.type == Type::kByte) {
    const int byte = std::stoi(piece.text.substr(3, 2), nullptr, 16);
    return {Decoded::Kind::kBytes, std::string(1, static_cast<char>(byte))};
  }
  return {Decoded::Kind::kText, replace_all(piece.text, kSpaceSymbol, " "),
          piece.text.starts_with(kSpaceSymbol)};
}

struct SentencePieceTokenizer : Tokenizer::Impl {
  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> ids;
    const auto status = processor.Encode(text, &ids);
    TF_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
    for (const int id : ids) {
      TF_CHECK(id >= 0 && id < vocab, "SentencePiece gave id {} of {}", id, vocab);
    }
    return ids;
  }
  sentencepiece::SentencePieceProcessor processor;
};

}  // namespace

std::unique_ptr<Tokenizer::Impl> make_sentencepiece_tokenizer(const std::string& bytes,
                                                              std::int64_t vocab,
                                                              const std::string& source) {
  auto impl = std::make_unique<SentencePieceTokenizer>();
  const SentencePieceModel model = check_sentencepiece_model(bytes, vocab, source);
  if (const auto status = impl->processor.LoadFromSerializedProto(bytes); !status.ok()) {
    throw_input("InvalidTokenizer", "{}: SentencePiece refuses it: {}", source,
                quote_text(status.ToString(), 200));
  }
  if (std::cmp_not_equal(impl->processor.GetPieceSize(), model.pieces.size())) {
    throw_input("InvalidTokenizer", "{}: SentencePiece sees {} pieces, expected {}", source,
                impl->processor.GetPieceSize(), model.pieces.size());
  }
  impl->strips_space = model.add_dummy_prefix || model.remove_extra_whitespaces;
  impl->strips_all_spaces = model.remove_extra_whitespaces;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    impl->decoded.emplace_back(decode_piece(piece, model.unk_surface));
    impl->names.push_back(piece.text);
  }
  return impl;
}

}  // namespace triforce
