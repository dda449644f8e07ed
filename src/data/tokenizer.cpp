#include "triforce/tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/file.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "data/sentencepiece_preflight.h"
#include "data/tokenizer_impl.h"
#include "data/tokenizer_json.h"

namespace triforce {
namespace {

constexpr const char* kSentencePieceFile = "tokenizer.model";
constexpr const char* kJsonFile = "tokenizer.json";

}  // namespace

std::filesystem::path Tokenizer::find(const std::filesystem::path& folder) {
  for (const char* name : {kSentencePieceFile, kJsonFile}) {
    if (!is_there(folder / name)) continue;
    std::filesystem::path file = resolve_inside(folder, name);
    InputFile::open(file);  // throws unless it is a file that can be read
    return file;
  }
  return {};
}

Tokenizer Tokenizer::open(const std::filesystem::path& file, std::int64_t vocab) {
  TF_CHECK(vocab > 0, "vocabulary of {}", vocab);
  const std::string source = file.string();
  const bool json = file.extension() == ".json";
  const std::string bytes = read_file(file, json ? kMaxTokenizerJsonBytes : kMaxTokenizerBytes);
  auto impl = json ? make_json_tokenizer(bytes, vocab, source)
                   : make_sentencepiece_tokenizer(bytes, vocab, source);
  impl->vocab = vocab;
  impl->sha256 = sha256_hex(bytes);
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

const std::string& Tokenizer::sha256() const { return impl_->sha256; }

const std::optional<std::optional<Token>>& Tokenizer::first() const { return impl_->first; }

std::optional<Token> Tokenizer::id_of(std::string_view token) const {
  const auto found = std::ranges::find(impl_->names, token);
  if (token.empty() || found == impl_->names.end()) return std::nullopt;
  return static_cast<Token>(found - impl_->names.begin());
}

bool Tokenizer::has_same_ids(const Tokenizer& other) const {
  return impl_->names == other.impl_->names;
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  if (is_valid_utf8(text)) return impl_->encode(text);
  return impl_->encode(replace_invalid_utf8(text));
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
  static const Decoded kNone{Decoded::Kind::kUnknown, std::string(kReplacementCharacter)};
  const bool known = index < impl.decoded.size() && impl.decoded[index];
  const Decoded& decoded = known ? *impl.decoded[index] : kNone;
  if (decoded.kind == Decoded::Kind::kBytes) {
    pending_ += decoded.text;
    const std::size_t certain = complete_utf8_prefix(pending_);
    std::string out = replace_invalid_utf8(std::string_view(pending_).substr(0, certain));
    pending_.erase(0, certain);
    empty_ = empty_ && out.empty();
    return out;
  }
  std::string out = finish();
  if (space_stripped_ || !empty_) strip_space_ = false;
  std::string text = decoded.text;
  space_stripped_ = false;
  if (strip_space_ && decoded.begins_with_space && decoded.kind == Decoded::Kind::kText) {
    text.erase(0, 1);
    space_stripped_ = !impl.strips_all_spaces;
  }
  empty_ = empty_ && text.empty();
  return out + text;
}

}  // namespace triforce
