// Tests: tests/data/tokenizer_json_test.cpp
#include "data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/strict_json.h"
#include "core/utf8.h"
#include "triforce/format.h"

namespace triforce {
namespace {

constexpr const char* kInvalid = "InvalidTokenizer";          // what is no such file
constexpr const char* kUnsupported = "UnsupportedTokenizer";  // what is not understood in one
// How GPT-2 cuts text into words, which ByteLevel does with use_regex (openai/gpt-2, encoder.py).
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool flag(const JsonView& at, std::string_view key, bool absent = false) {
  const auto found = at.find(key);
  return found ? found->boolean() : absent;
}

[[noreturn]] void refuse_component(const JsonView& at) {
  at.at("type").fail_with(
      fmt::format("component {} is not supported", describe(at.at("type").value())));
}

// Calls read(component) for each component of `at`: none of null, those of a Sequence, or itself.
void for_each_component(const JsonView& at, std::string_view members, auto read) {
  if (at.is_null()) return;
  if (at.at("type").string() != "Sequence") return read(at);
  at.only({"type", members});
  for (const JsonView& part : at.at(members).items()) for_each_component(part, members, read);
}

std::string nonempty(const JsonView& at) {
  if (at.string().empty()) at.fail("a text");
  return at.string();
}

// {"String": "..."}.
std::string literal_pattern(const JsonView& at) {
  at.only({"String"}, "a regular expression is not supported here");
  return nonempty(at.at("String"));
}

void read_normalizer(const JsonView& root, TokenizerJson& out) {
  for_each_component(root, "normalizers", [&](const JsonView& at) {
    const std::string& type = at.at("type").string();
    if (type == "NFC") {
      at.only({"type"});
      out.normalizer.emplace_back(ComposeCharacters{});
    } else if (type == "Prepend") {
      at.only({"type", "prepend"});
      out.normalizer.emplace_back(Prepend{at.at("prepend").string()});
    } else if (type == "Replace") {
      at.only({"type", "pattern", "content"});
      out.normalizer.emplace_back(
          Replace{literal_pattern(at.at("pattern")), at.at("content").string()});
    } else {
      refuse_component(at);
    }
  });
}

std::string path_of(const JsonView& at) { return fmt::format("{}: {}", at.source(), at.path()); }

void read_split(const JsonView& at, TokenizerJson& out) {
  at.only({"type", "pattern", "behavior", "invert"});
  if (const JsonView how = at.at("behavior"); how.string() != "Isolated") how.fail("\"Isolated\"");
  if (const JsonView invert = at.at("invert"); invert.boolean()) invert.fail("false");
  const JsonView pattern = at.at("pattern");
  pattern.only({"Regex"}, "a literal pattern is not supported here");
  out.splits.emplace_back(pattern.at("Regex").string(), path_of(pattern.at("Regex")));
}

void read_metaspace(const JsonView& at, TokenizerJson& out) {
  at.only({"type", "replacement", "prepend_scheme", "split"});
  Metaspace metaspace;
  metaspace.replacement = nonempty(at.at("replacement"));
  const std::string& scheme = at.at("prepend_scheme").string();
  constexpr std::array<std::string_view, 3> kSchemes = {"never", "first", "always"};
  const auto found = std::ranges::find(kSchemes, scheme);
  if (found == kSchemes.end()) at.at("prepend_scheme").fail("never, first or always");
  metaspace.prepend = static_cast<Metaspace::Prepend>(found - kSchemes.begin());
  metaspace.splits = flag(at, "split", true);
  out.metaspace = std::move(metaspace);
}

void read_pre_tokenizer(const JsonView& root, TokenizerJson& out) {
  bool first = true;
  for_each_component(root, "pretokenizers", [&](const JsonView& at) {
    const std::string& type = at.at("type").string();
    if (out.byte_level || out.metaspace) {
      at.fail_with(fmt::format("component {} after {} is not supported",
                               describe(at.at("type").value()),
                               out.byte_level ? "ByteLevel" : "Metaspace"));
    }
    if (type == "Split") {
      read_split(at, out);
    } else if (type == "Digits") {
      at.only({"type", "individual_digits"});
      out.splits.emplace_back(flag(at, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)",
                              path_of(at));
    } else if (type == "ByteLevel") {
      at.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      out.byte_level = true;
      out.adds_prefix_space = flag(at, "add_prefix_space", true);
      if (out.adds_prefix_space && !first)
        at.at("add_prefix_space").fail("false after other components");
      if (flag(at, "use_regex", true)) out.splits.emplace_back(kGpt2Words, path_of(at));
    } else if (type == "Metaspace" && first) {
      read_metaspace(at, out);
    } else {
      refuse_component(at);
    }
    first = false;
  });
}

// What a template puts before a text; what it puts behind one would end it.
void read_post_processor(const JsonView& root, TokenizerJson& out) {
  for_each_component(root, "processors", [&](const JsonView& at) {
    const std::string& type = at.at("type").string();
    if (type == "ByteLevel") return;  // it changes offsets alone
    if (type != "TemplateProcessing") refuse_component(at);
    at.only({"type", "single", "pair", "special_tokens"});
    for (const JsonView& item : at.at("single").items()) {
      if (item.find("Sequence")) break;
      if (out.first) item.fail("at most one token before the text");
      const std::string& name = item.at("SpecialToken").at("id").string();
      const JsonView ids = at.at("special_tokens").at(name).at("ids");
      if (!ids.is_array() || ids.value().items().size() != 1) ids.fail("one id");
      out.first =
          static_cast<Token>(ids.items().front().integer(0, std::ssize(out.vocabulary) - 1));
    }
  });
}

// What decoding does, and whether it undoes what encoding does.
void read_decoder(const JsonView& root, TokenizerJson& out) {
  bool bytes = false, fallback = false;
  for_each_component(root, "decoders", [&](const JsonView& at) {
    const std::string& type = at.at("type").string();
    const auto is_space = [&](const JsonView& text) {
      if (text.string() != " ") text.fail("\" \"");
    };
    if (type == "ByteLevel") {
      bytes = true;
    } else if (type == "ByteFallback") {
      fallback = true;
    } else if (type == "Replace") {
      at.only({"type", "pattern", "content"});
      if (!out.decoded_space.empty()) at.fail_with("a second Replace is not supported");
      out.decoded_space = literal_pattern(at.at("pattern"));
      is_space(at.at("content"));
    } else if (type == "Strip") {
      at.only({"type", "content", "start", "stop"});
      is_space(at.at("content"));
      out.strips_leading_space = at.at("start").integer(0, 1) == 1;
      at.at("stop").integer(0, 0);
    } else if (type != "Fuse") {
      refuse_component(at);
    }
  });
  if (bytes != out.byte_level) {
    root.fail_with(
        fmt::format("expected {}ByteLevel, as pre_tokenizer has it", bytes ? "no " : ""));
  }
  if (fallback != out.byte_tokens.has_value()) {
    root.fail_with(fmt::format("expected {}ByteFallback, as model has it", fallback ? "no " : ""));
  }
  if (bytes && (!out.decoded_space.empty() || out.strips_leading_space)) {
    root.fail_with("components besides ByteLevel are not supported");
  }
}

// ---- The model
using Ids = std::unordered_map<std::string_view, Token>;

// ByteLevel writes each byte as a character: itself where that can be printed and is no space,
// otherwise one from U+0100 on (openai/gpt-2, encoder.py).
std::array<std::int16_t, 512> make_bytes_of_characters() {
  std::array<std::int16_t, 512> bytes{};
  bytes.fill(-1);
  std::size_t others = 256;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    bytes[itself ? static_cast<std::size_t>(byte) : others++] = byte;
  }
  return bytes;
}

// The bytes that the characters of a token stand for; nothing if one of them stands for none.
std::optional<std::string> bytes_of(std::string_view token) {
  static const std::array<std::int16_t, 512> kBytes = make_bytes_of_characters();
  std::string out;
  for (std::size_t i = 0; i < token.size();) {
    const auto at = [&](std::size_t k) { return static_cast<unsigned char>(token[k]); };
    const std::size_t length = utf8_character_length(token.substr(i));
    if (length < 1 || length > 2) return std::nullopt;
    const std::size_t character = length == 1 ? at(i) : (at(i) & 0x1FU) << 6U | (at(i + 1) & 0x3FU);
    if (character >= kBytes.size() || kBytes[character] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kBytes[character]));
    i += length;
  }
  return out;
}

Ids read_vocabulary(const JsonView& at, std::int64_t vocab, TokenizerJson& out) {
  if (!at.is_object()) at.fail("an object");
  Ids ids;
  ids.reserve(at.value().members().size());
  for (const JsonMember& member : at.value().members()) {
    const bool valid = member.value.kind() == JsonValue::Kind::kUnsigned &&
                       std::cmp_less(member.value.as_unsigned(), vocab);
    if (!valid) at.at(member.key).fail(fmt::format("an id below the model's vocab_size {}", vocab));
    if (member.key.empty()) at.fail_with("expected tokens, found an empty one");
    const auto id = static_cast<std::size_t>(member.value.as_unsigned());
    if (id >= out.vocabulary.size()) out.vocabulary.resize(id + 1);
    if (out.vocabulary[id]) {
      at.at(member.key).fail_with(fmt::format("id {} has another token as well", id));
    }
    out.vocabulary[id] = member.key;
    ids.emplace(member.key, static_cast<Token>(id));
  }
  return ids;
}

Token id_of(const Ids& ids, std::string_view token, const JsonView& at) {
  const auto found = ids.find(token);
  if (found == ids.end()) {
    at.fail_with(fmt::format("expected a token of the vocabulary, found {}", quote_text(token)));
  }
  return found->second;
}

// ["a", "b"], or of older writers "a b".
void read_merges(const JsonView& at, const Ids& ids, TokenizerJson& out) {
  if (!at.is_array()) at.fail("an array");
  std::string whole;
  out.merges.reserve(at.value().items().size());
  for (const JsonValue& item : at.value().items()) {
    const JsonView merge(item, fmt::format("{}: {}[{}]", at.source(), at.path(), out.merges.size()),
                         kUnsupported);
    std::string_view left, right;
    if (item.is_array() && item.items().size() == 2) {
      const JsonView first(item.items()[0], merge.source(), kUnsupported);
      const JsonView second(item.items()[1], merge.source(), kUnsupported);
      left = first.string();
      right = second.string();
    } else {
      const std::string_view both = item.is_array() ? std::string_view() : merge.string();
      const std::size_t space = both.find(' ');
      if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
        merge.fail("two tokens");
      }
      left = both.substr(0, space);
      right = both.substr(space + 1);
    }
    whole.assign(left).append(right);
    out.merges.push_back(
        {id_of(ids, left, merge), id_of(ids, right, merge), id_of(ids, whole, merge)});
  }
}

void read_model(const JsonView& at, std::int64_t vocab, TokenizerJson& out, Ids& ids) {
  // GPT-2's own file, the oldest, has no type.
  if (const auto type = at.find("type"); type && type->string() != "BPE") refuse_component(at);
  at.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
           "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const auto dropout = at.find_value("dropout"); dropout && dropout->number() != 0) {
    dropout->fail("null or 0");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto text = at.find_value(key); text && !text->string().empty()) text->fail("null");
  }
  out.fuses_unknown = flag(at, "fuse_unk");
  out.ignores_merges = flag(at, "ignore_merges");
  ids = read_vocabulary(at.at("vocab"), vocab, out);
  read_merges(at.at("merges"), ids, out);
  if (flag(at, "byte_fallback")) {
    out.byte_tokens.emplace();
    for (int byte = 0; byte < 256; ++byte) {
      out.byte_tokens->push_back(
          id_of(ids, fmt::format("<0x{:02X}>", byte), at.at("byte_fallback")));
    }
  }
}

void read_unknown(const JsonView& at, const Ids& ids, TokenizerJson& out) {
  if (const auto unknown = at.find_value("unk_token")) {
    const auto added = std::ranges::find(out.added, unknown->string(), &AddedToken::content);
    out.unknown = added != out.added.end() ? added->id : id_of(ids, unknown->string(), *unknown);
  }
}

void read_added_tokens(const JsonView& root, std::int64_t vocab, const Ids& ids,
                       TokenizerJson& out) {
  const auto list = root.find_value("added_tokens");
  if (!list) return;
  std::unordered_set<std::string_view> seen;
  for (const JsonView& at : list->items()) {
    at.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    if (flag(at, "single_word")) at.at("single_word").fail("false");
    AddedToken token{static_cast<Token>(at.at("id").integer(0, vocab - 1)),
                     nonempty(at.at("content")),
                     flag(at, "lstrip"),
                     flag(at, "rstrip"),
                     flag(at, "normalized"),
                     flag(at, "special")};
    const std::string& content = at.at("content").string();
    if (!seen.insert(content).second) at.at("content").fail_with("occurs twice");
    const auto id = static_cast<std::size_t>(token.id);
    const auto known = ids.find(content);
    if (known != ids.end() && known->second != token.id) {
      at.at("id").fail(fmt::format("{}, which the vocabulary has", known->second));
    }
    if (id >= out.vocabulary.size()) out.vocabulary.resize(id + 1);
    if (known == ids.end() && out.vocabulary[id]) {
      at.at("id").fail_with(fmt::format("{} is another token's", token.id));
    }
    out.vocabulary[id] = content;
    out.added.push_back(std::move(token));
  }
}

// Bytes instead of the characters that stand for them. What has others is never merged to.
void read_byte_level(const Ids& ids, TokenizerJson& out) {
  for (std::optional<std::string>& token : out.vocabulary) {
    if (std::optional<std::string> bytes = token ? bytes_of(*token) : token)
      token = std::move(bytes);
  }
  for (const auto& [token, id] : ids) {
    if (std::optional<std::string> bytes = bytes_of(token))
      out.symbols.emplace(*std::move(bytes), id);
  }
}

}  // namespace

TokenizerJson read_tokenizer_json(std::string_view text, std::int64_t vocab,
                                  const std::string& source) {
  const JsonValue value = parse_json(text, source, {.max_bytes = kMaxTokenizerJsonBytes},
                                     {.syntax = kInvalid, .utf8 = kInvalid, .depth = kInvalid});
  const JsonView root(value, source, kUnsupported);
  // How many tokens a batch is cut or filled to is decided by who encodes, not by the file.
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  const auto component = [&](std::string_view key, auto read, TokenizerJson& out) {
    if (const auto at = root.find_value(key)) read(*at, out);
  };
  TokenizerJson out;
  Ids ids;
  const JsonView model = root.at("model");
  read_model(model, vocab, out, ids);
  read_added_tokens(root, vocab, ids, out);
  component("normalizer", read_normalizer, out);
  component("pre_tokenizer", read_pre_tokenizer, out);
  component("post_processor", read_post_processor, out);
  read_unknown(model, ids, out);
  read_decoder(root.at("decoder"), out);
  if (out.byte_level) {
    read_byte_level(ids, out);
  } else {
    for (const auto& [token, id] : ids) out.symbols.emplace(token, id);
  }
  return out;
}

}  // namespace triforce
