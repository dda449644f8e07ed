#include "triforce/tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "core/file.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "data/sentencepiece_preflight.h"

namespace triforce {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581 stands for a space

// Decoded is what one id adds to a text. It is worked out once, when the model is loaded.
struct Decoded {
  enum class Kind : std::uint8_t { kText, kControl, kUnknown, kByte } kind = Kind::kText;
  std::string text;  // spaces in place; one byte for kByte; empty for kControl
};

Decoded decode_piece(const SentencePieceModel::Piece& piece, const std::string& unk_surface) {
  using Type = SentencePieceModel::PieceType;
  if (piece.type == Type::kControl) return {Decoded::Kind::kControl, {}};
  if (piece.type == Type::kUnknown) return {Decoded::Kind::kUnknown, unk_surface};
  if (piece.type == Type::kByte) {
    const int byte = std::stoi(piece.text.substr(3, 2), nullptr, 16);
    return {Decoded::Kind::kByte, std::string(1, static_cast<char>(byte))};
  }
  std::string text;
  std::string_view rest = piece.text;
  for (std::size_t at = 0; (at = rest.find(kSpaceSymbol)) != std::string_view::npos;) {
    text.append(rest.substr(0, at)).push_back(' ');
    rest.remove_prefix(at + kSpaceSymbol.size());
  }
  text.append(rest);
  return {Decoded::Kind::kText, text};
}

}  // namespace

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<Decoded> decoded;  // per piece
  std::vector<bool> begins_with_space;
  std::int64_t vocab = 0;
  bool strips_space = true, strips_all_spaces = true;
  std::string sha256;
};

Tokenizer Tokenizer::open(const std::filesystem::path& path, std::int64_t vocab) {
  TF_CHECK(vocab > 0, "vocabulary of {}", vocab);
  std::error_code ignored;
  const std::filesystem::path file =
      std::filesystem::is_directory(path, ignored) ? resolve_inside(path, "tokenizer.model") : path;
  const std::string bytes = read_file(file, kMaxTokenizerBytes);
  const std::string source = file.string();
  auto impl = std::make_unique<Impl>();
  const SentencePieceModel model = check_sentencepiece_model(bytes, vocab, source);
  if (const auto status = impl->processor.LoadFromSerializedProto(bytes); !status.ok()) {
    throw_input("InvalidTokenizer", "{}: SentencePiece refuses it: {}", source,
                quote_text(status.ToString(), 200));
  }
  if (std::cmp_not_equal(impl->processor.GetPieceSize(), model.pieces.size())) {
    throw_input("InvalidTokenizer", "{}: SentencePiece sees {} pieces, expected {}", source,
                impl->processor.GetPieceSize(), model.pieces.size());
  }
  impl->vocab = vocab;
  impl->strips_space = model.add_dummy_prefix || model.remove_extra_whitespaces;
  impl->strips_all_spaces = model.remove_extra_whitespaces;
  impl->sha256 = sha256_hex(bytes);
  impl->decoded.reserve(model.pieces.size());
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    impl->decoded.push_back(decode_piece(piece, model.unk_surface));
    impl->begins_with_space.push_back(piece.text.starts_with(kSpaceSymbol));
  }
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

const std::string& Tokenizer::sha256() const { return impl_->sha256; }

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> ids;
  const std::string repaired = is_valid_utf8(text) ? std::string() : replace_invalid_utf8(text);
  const auto status = impl_->processor.Encode(repaired.empty() ? text : repaired, &ids);
  TF_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  for (const int id : ids) {
    TF_CHECK(id >= 0 && id < impl_->vocab, "SentencePiece gave id {} of {}", id, impl_->vocab);
  }
  return ids;
}

Tokenizer::Stream::Stream(const Tokenizer& tokenizer, bool at_start)
    : tokenizer_(&tokenizer), strip_space_(at_start && tokenizer.impl_->strips_space) {}

std::string Tokenizer::Stream::finish() {
  if (!pending_.empty()) empty_ = false;
  return replace_invalid_utf8(std::exchange(pending_, {}));
}

// The rules of SentencePiece's own Decode: leading spaces are taken off until text has come (or,
// where encoding keeps extra spaces, one only), bytes join into characters.
std::string Tokenizer::Stream::push(Token id) {
  const Impl& impl = *tokenizer_->impl_;
  TF_CHECK(id >= 0 && id < impl.vocab, "token {} of {}", id, impl.vocab);
  const auto index = static_cast<std::size_t>(id);
  if (index < impl.decoded.size() && impl.decoded[index].kind == Decoded::Kind::kByte) {
    pending_ += impl.decoded[index].text;
    const std::size_t certain = complete_utf8_prefix(pending_);
    std::string out = replace_invalid_utf8(std::string_view(pending_).substr(0, certain));
    pending_.erase(0, certain);
    empty_ = empty_ && out.empty();
    return out;
  }
  std::string out = finish();
  if (space_stripped_ || !empty_) strip_space_ = false;
  std::string text(index < impl.decoded.size() ? std::string_view(impl.decoded[index].text)
                                               : kReplacementCharacter);
  space_stripped_ = false;
  if (strip_space_ && index < impl.decoded.size() && impl.begins_with_space[index] &&
      impl.decoded[index].kind == Decoded::Kind::kText) {
    text.erase(0, 1);
    space_stripped_ = !impl.strips_all_spaces;
  }
  empty_ = empty_ && text.empty();
  return out + text;
}

}  // namespace triforce
