#include "data/tokenizer_config.h"

#include "core/file.h"
#include "core/strict_json.h"

namespace triforce {
namespace {

constexpr const char* kKind = "InvalidTokenizer";
constexpr std::int64_t kMaxBytes = 16 << 20;  // vocabularies of added tokens, templates of chats

// "<s>", or an object with that content.
std::string token_of(const JsonView& root, const char* key) {
  const auto at = root.find_value(key);
  if (!at) return {};
  return at->is_object() ? at->at("content").string() : at->string();
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  if (!is_there(folder / TokenizerConfig::kFile)) return {};
  const std::filesystem::path file = resolve_inside(folder, TokenizerConfig::kFile);
  const std::string text = read_file(file, kMaxBytes);
  const JsonValue value = parse_json(text, file.string(), {.max_bytes = kMaxBytes},
                                     {.syntax = kKind, .utf8 = kKind, .depth = kKind});
  const JsonView root(value, file.string(), kKind);
  TokenizerConfig out;
  if (const auto adds = root.find_value("add_bos_token")) out.adds_bos = adds->boolean();
  out.bos = token_of(root, "bos_token");
  out.eos = token_of(root, "eos_token");
  return out;
}

}  // namespace triforce
