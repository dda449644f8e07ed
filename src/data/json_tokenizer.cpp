// Tests: tests/data/json_tokenizer_test.cpp
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <deque>
#include <new>
#include <utility>

#include "core/utf8.h"
#include "data/added_tokens.h"
#include "data/tokenizer_impl.h"
#include "data/tokenizer_json.h"

namespace triforce {
namespace {

constexpr Token kNoToken = -1;

// Unicode's normal form C.
std::string compose_characters(std::string text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return text;
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  TF_CHECK(n >= 0, "utf8proc: {}", utf8proc_errmsg(n));
  std::string composed(reinterpret_cast<const char*>(out), static_cast<std::size_t>(n));
  std::free(out);  // NOLINT: the library's
  return composed;
}

std::string normalize(std::string_view text, const std::vector<NormalizerStep>& steps) {
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    if (std::holds_alternative<ComposeCharacters>(step)) out = compose_characters(std::move(out));
    if (const auto* prepend = std::get_if<Prepend>(&step); prepend != nullptr && !out.empty()) {
      out.insert(0, prepend->prefix);
    }
    if (const auto* replace = std::get_if<Replace>(&step)) {
      out = replace_all(out, replace->from, replace->to);
    }
  }
  return out;
}

class JsonTokenizer final : public Tokenizer::Impl {
 public:
  explicit JsonTokenizer(TokenizerJson file);
  std::vector<Token> encode(std::string_view text) const override;

 private:
  class Encoding;
  void decode_all();
  Token symbol(std::string_view text) const {
    const auto found = file_.symbols.find(std::string(text));
    return found == file_.symbols.end() ? kNoToken : found->second;
  }

  TokenizerJson file_;
  AddedTokens of_text_, of_normalized_text_;
  BytePairEncoder merges_;
  std::array<Token, 256> bytes_{};  // where byte_level
};

JsonTokenizer::JsonTokenizer(TokenizerJson file) : file_(std::move(file)) {
  first.emplace(file_.first);
  merges_ = BytePairEncoder(std::exchange(file_.merges, {}));
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    bytes_[byte] = symbol(std::string(1, static_cast<char>(byte)));
  }
  std::vector<AddedToken> as_they_are, normalized;
  for (AddedToken token : file_.added) {
    if (token.normalized) token.content = normalize(token.content, file_.normalizer);
    if (!token.content.empty())
      (token.normalized ? normalized : as_they_are).push_back(std::move(token));
  }
  of_text_ = AddedTokens(std::move(as_they_are));
  of_normalized_text_ = AddedTokens(std::move(normalized));
  strips_space = file_.strips_leading_space;
  decode_all();
}

void JsonTokenizer::decode_all() {
  using Kind = Decoded::Kind;
  for (const std::optional<std::string>& token : file_.vocabulary) {
    names.push_back(token.value_or(""));
    if (!token) {
      decoded.emplace_back();
    } else if (file_.byte_level) {
      decoded.emplace_back(Decoded{Kind::kBytes, *token});
    } else {
      std::string text =
          file_.decoded_space.empty() ? *token : replace_all(*token, file_.decoded_space, " ");
      const bool space = text.starts_with(' ');
      decoded.emplace_back(Decoded{Kind::kText, std::move(text), space});
    }
  }
  if (file_.byte_tokens) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      decoded[static_cast<std::size_t>((*file_.byte_tokens)[byte])] =
          Decoded{Kind::kBytes, std::string(1, static_cast<char>(byte))};
    }
  }
  // Bytes around a special token join to a character where the library joins them.
  for (const AddedToken& token : file_.added) {
    if (!token.special) continue;
    decoded[static_cast<std::size_t>(token.id)] =
        Decoded{file_.byte_level ? Kind::kBytes : Kind::kControl, {}};
  }
  file_.vocabulary.clear();
}

// Encodes one text. Words that come again are looked up.
class JsonTokenizer::Encoding {
 public:
  explicit Encoding(const JsonTokenizer& tokenizer) : t_(tokenizer), file_(tokenizer.file_) {}

  std::vector<Token> encode(std::string_view text) {
    t_.of_text_.cut(
        text, [&](std::string_view part, std::size_t begin) { encode_part(part, begin == 0); },
        [&](Token id) { ids_.push_back(id); });
    return std::move(ids_);
  }

 private:
  static constexpr std::size_t kLongestKept = 256;  // bytes of a word

  void encode_part(std::string_view part, bool at_start) {
    if (!file_.normalizer.empty()) part = keep(normalize(part, file_.normalizer));
    t_.of_normalized_text_.cut(
        part,
        [&](std::string_view rest, std::size_t begin) {
          encode_words(rest, at_start && begin == 0);
        },
        [&](Token id) { ids_.push_back(id); });
  }

  void encode_words(std::string_view text, bool at_start) {
    if (file_.adds_prefix_space && !text.starts_with(' ')) text = keep(" " + std::string(text));
    if (file_.metaspace) text = with_metaspaces(text, *file_.metaspace, at_start);
    std::vector<std::string_view> words = {text}, finer;
    for (const SplitPattern& pattern : file_.splits) {
      finer.clear();
      for (const std::string_view word : words) pattern.split(word, finer);
      words.swap(finer);
    }
    for (const std::string_view word : words) {
      if (file_.metaspace && file_.metaspace->splits) {
        encode_between(word, file_.metaspace->replacement);
      } else {
        encode_word(word);
      }
    }
  }

  std::string_view with_metaspaces(std::string_view text, const Metaspace& metaspace,
                                   bool at_start) {
    std::string out = replace_all(text, " ", metaspace.replacement);
    const bool prepends = metaspace.prepend == Metaspace::Prepend::kAlways ||
                          (metaspace.prepend == Metaspace::Prepend::kFirst && at_start);
    if (prepends && !out.starts_with(metaspace.replacement)) out.insert(0, metaspace.replacement);
    return keep(std::move(out));
  }

  // Cuts before every `mark`.
  void encode_between(std::string_view text, std::string_view mark) {
    while (!text.empty()) {
      const std::size_t next = std::min(text.find(mark, 1), text.size());
      encode_word(text.substr(0, next));
      text.remove_prefix(next);
    }
  }

  void encode_word(std::string_view word) {
    const bool kept = word.size() <= kLongestKept;
    if (kept) {
      const auto [found, is_new] = words_.try_emplace(word);
      if (!is_new) {
        const auto [begin, count] = found->second;
        ids_.reserve(ids_.size() + count);
        for (std::size_t i = begin; i < begin + count; ++i) ids_.push_back(ids_[i]);
        return;
      }
    }
    const std::size_t begin = ids_.size();
    if (const Token whole = file_.ignores_merges ? t_.symbol(word) : kNoToken; whole != kNoToken) {
      ids_.push_back(whole);
    } else {
      symbols_.clear();
      unknown_before_ = false;
      file_.byte_level ? add_bytes(word) : add_characters(word);
      t_.merges_.encode(symbols_, scratch_, ids_);
    }
    if (kept) words_[word] = {begin, ids_.size() - begin};
  }

  void add_bytes(std::string_view word) {
    for (const char byte : word) add(t_.bytes_[static_cast<unsigned char>(byte)]);
  }

  void add_characters(std::string_view word) {
    while (!word.empty()) {
      const std::string_view character =
          word.substr(0, std::max<std::size_t>(utf8_character_length(word), 1));
      word.remove_prefix(character.size());
      const Token id = t_.symbol(character);
      if (id == kNoToken && file_.byte_tokens) {
        for (const char byte : character) {
          add((*file_.byte_tokens)[static_cast<unsigned char>(byte)]);
        }
      } else {
        add(id);
      }
    }
  }

  void add(Token id) {
    const bool unknown = id == kNoToken;
    if (unknown && (!file_.unknown || (unknown_before_ && file_.fuses_unknown))) return;
    unknown_before_ = unknown;
    symbols_.push_back(unknown ? *file_.unknown : id);
  }

  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }

  const JsonTokenizer& t_;
  const TokenizerJson& file_;
  std::vector<Token> ids_, symbols_;
  bool unknown_before_ = false;
  BytePairEncoder::Scratch scratch_;
  std::deque<std::string> texts_;
  struct Place {
    std::size_t begin = 0, count = 0;
  };
  std::unordered_map<std::string_view, Place> words_;  // where in ids_ theirs are
};

std::vector<Token> JsonTokenizer::encode(std::string_view text) const {
  return Encoding(*this).encode(text);
}

}  // namespace

std::unique_ptr<Tokenizer::Impl> make_json_tokenizer(std::string_view bytes, std::int64_t vocab,
                                                     const std::string& source) {
  return std::make_unique<JsonTokenizer>(read_tokenizer_json(bytes, vocab, source));
}

}  // namespace triforce
