// Tests: tests/data/datasets_test.cpp, tests/cli/data_test.py
#include "data/datasets.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/file.h"
#include "core/sha256.h"
#include "core/strict_json.h"
#include "core/utf8.h"
#include "data/generated_prompts.h"
#include "data/ruler.h"
#include "triforce/error.h"

namespace triforce {
namespace {

constexpr std::int64_t kMaxLineBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;
constexpr std::array<std::string_view, 5> kPublished = {"gs", "128k", "one-shot", "lwm", "demo"};

enum class DataKind : std::uint8_t { kSynthetic, kNeedle, kRuler, kText, kLines, kIds };

DataKind kind_of(std::string_view name) {
  if (name == "synthetic") return DataKind::kSynthetic;
  if (name == "needle") return DataKind::kNeedle;
  if (find_ruler_task(name)) return DataKind::kRuler;
  const std::string suffix = std::filesystem::path(name).extension().string();
  if (is_published_dataset(name) || suffix == ".jsonl") return DataKind::kLines;
  if (suffix == ".ids") return DataKind::kIds;
  if (suffix == ".txt") return DataKind::kText;
  throw_input(
      "UnknownDataset",
      "--dataset: expected synthetic, needle, {}, gs, 128k, one-shot, lwm, demo, or a .txt, "
      ".jsonl or .ids file, found {}",
      fmt::join(names_of(RulerTask{}), ", "), quote_text(name));
}

// Lines of a file, without "\n" or "\r\n", read in blocks and hashed whole.
class Lines {
 public:
  explicit Lines(const std::filesystem::path& path) : file_(InputFile::open(path)) {}

  bool next(std::string& line) {
    line.clear();
    while (true) {
      const std::size_t end = block_.find('\n', at_);
      const bool found = end != std::string::npos;
      line.append(block_, at_, found ? end - at_ : std::string::npos);
      if (static_cast<std::int64_t>(line.size()) > kMaxLineBytes) {
        throw_input("LimitExceeded", "{}:{}: expected a line of at most {} bytes, found more",
                    file_.path().string(), number_ + 1, kMaxLineBytes);
      }
      if (found) {
        at_ = end + 1;
        break;
      }
      if (!refill()) {
        if (line.empty()) return false;
        break;
      }
    }
    ++number_;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return true;
  }
  // "file:line" of the line read last.
  std::string where() const { return fmt::format("{}:{}", file_.path().string(), number_); }
  std::string sha256() {
    while (refill()) {
    }
    return hash_.hex();
  }

 private:
  bool refill() {
    constexpr std::int64_t kBlock = 1 << 20;
    const std::int64_t bytes = std::min(kBlock, file_.bytes() - offset_);
    block_.resize(static_cast<std::size_t>(bytes));
    at_ = 0;
    if (bytes == 0) return false;
    file_.read_exact(offset_, std::as_writable_bytes(std::span(block_)));
    hash_.update(block_);
    offset_ += bytes;
    return true;
  }

  InputFile file_;
  Sha256 hash_;
  std::string block_;
  std::size_t at_ = 0;
  std::int64_t offset_ = 0, number_ = 0;
};

[[noreturn]] void fail_line(const Lines& lines, std::string_view expected, std::string_view found) {
  throw_input("InvalidDataset", "{}: expected {}, found {}", lines.where(), expected, found);
}

// "keys "a", "b"" of an object, or what else it is.
std::string describe_keys(const JsonValue& value) {
  constexpr std::size_t kMaxKeys = 8;
  if (value.kind() != JsonValue::Kind::kObject) return describe(value);
  std::string keys;
  std::size_t n = 0;
  for (const JsonMember& member : value.members()) {
    if (++n > kMaxKeys)
      return fmt::format("keys {} and {} more", keys, value.members().size() - kMaxKeys);
    keys += (keys.empty() ? "" : ", ") + quote_text(member.key);
  }
  return keys.empty() ? "an object without keys" : "keys " + keys;
}

void check_utf8(std::string_view text, const std::string& where) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    throw_input("InvalidDataset", "{}: expected UTF-8 text, found a byte order mark", where);
  }
  const std::size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos) {
    throw_input("InvalidDataset", "{}: expected UTF-8, found a malformed byte at offset {}", where,
                bad);
  }
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    throw_input("InvalidDataset", "{}: expected text, found a NUL byte at offset {}", where, nul);
  }
}

// The texts of its first `turn` turns; nullopt: it has fewer.
std::optional<std::string> conversation_of(const JsonValue& value, const DatasetRequest& request,
                                           const Lines& lines) {
  const bool is_named = request.text_field != DatasetRequest().text_field;
  const JsonValue* turns = value.find(is_named ? request.text_field : "turns");
  if (turns == nullptr && !is_named) turns = value.find("messages");
  if (turns == nullptr || turns->kind() != JsonValue::Kind::kArray) {
    const std::string name = is_named ? quote_text(request.text_field) : "turns or messages";
    fail_line(lines, fmt::format("an object with a list as {} (--turn)", name),
              turns == nullptr ? describe_keys(value) : describe(*turns));
  }
  if (std::ssize(turns->items()) < request.turn) return std::nullopt;
  std::string text;
  for (std::int64_t i = 0; i < request.turn; ++i) {
    const JsonValue& turn = turns->items()[static_cast<std::size_t>(i)];
    const bool is_object = turn.kind() == JsonValue::Kind::kObject;
    const JsonValue* const content = is_object ? turn.find("content") : &turn;
    const bool is_nothing =
        is_object && content != nullptr && content->kind() == JsonValue::Kind::kNull;
    if (!is_nothing && (content == nullptr || content->kind() != JsonValue::Kind::kString)) {
      fail_line(lines,
                fmt::format("a text, or an object with a text as content, as turn {}", i + 1),
                content == nullptr ? describe_keys(turn) : describe(*content));
    }
    if (!is_nothing) text += content->as_string();
    text += '\n';
  }
  return text;
}

void read_jsonl(const std::filesystem::path& path, const DatasetRequest& request,
                PromptCollector& collect, DataInfo& info) {
  const std::string& text_field = request.text_field;
  Lines lines(path);
  JsonLimits limits;
  limits.max_bytes = kMaxLineBytes;
  for (std::string line; collect.wants_more() && lines.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) {
      ++info.n_skipped;
      continue;
    }
    check_utf8(line, lines.where());
    const JsonValue value =
        parse_json(line, lines.where(), limits, {"InvalidDataset", "InvalidDataset"});
    const auto field = [&](std::string_view name) -> std::string_view {
      const JsonValue* found = value.find(name);
      if (found == nullptr) return {};
      if (found->kind() != JsonValue::Kind::kString) {
        fail_line(lines, fmt::format("a string as the field {}", quote_text(name)),
                  describe(*found));
      }
      return found->as_string();
    };
    if (request.turn > 0) {
      const auto text = conversation_of(value, request, lines);
      text ? collect.add_whole(*text, lines.where()) : collect.skip();
      continue;
    }
    if (value.find(text_field) == nullptr) {
      fail_line(lines,
                fmt::format("an object with the field {} (--text-field)", quote_text(text_field)),
                describe_keys(value));
    }
    const Document document{field(text_field), field("prefix"), field("suffix")};
    if (document.text.empty()) fail_line(lines, "a text that is not empty", "an empty one");
    collect.add_text(document, lines.where());
  }
  info.sha256 = lines.sha256();
}

void read_ids(const std::filesystem::path& path, const DatasetRequest& request,
              PromptCollector& collect, DataInfo& info) {
  Lines lines(path);
  for (std::string line; collect.wants_more() && lines.next(line);) {
    std::vector<Token> ids;
    std::string_view rest = line;
    while (true) {
      const std::size_t begin = rest.find_first_not_of(" \t");
      if (begin == std::string_view::npos) break;
      rest.remove_prefix(begin);
      const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
      std::int64_t id = -1;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size() || id < 0 ||
          id >= request.vocab) {
        fail_line(lines, fmt::format("token ids in 0..{}", request.vocab - 1), quote_text(word));
      }
      ids.push_back(static_cast<Token>(id));
      rest.remove_prefix(word.size());
    }
    if (ids.empty()) {
      ++info.n_skipped;
      continue;
    }
    // Documents may or may not begin with BOS already.
    if (ids.front() == request.bos) ids.erase(ids.begin());
    collect.add_ids(ids, {}, lines.where());
  }
  info.sha256 = lines.sha256();
}

void read_txt(const std::filesystem::path& path, PromptCollector& collect, DataInfo& info) {
  const std::string text = read_file(path, kMaxTextBytes);
  check_utf8(text, path.string());
  if (text.empty()) throw_input("InvalidDataset", "{}: expected text, found none", path.string());
  info.sha256 = sha256_hex(text);
  if (collect.wants_more()) collect.add_text({text}, path.filename().string());
}

std::filesystem::path file_of(const std::string& name, const std::filesystem::path& downloads) {
  if (!is_published_dataset(name)) return name;
  std::filesystem::path path = downloads / (name + ".jsonl");
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw_input("FileNotFound",
                "--dataset {}: expected {}, found no such file; fetch it with "
                "scripts/download_data.sh {}",
                name, path.string(), name);
  }
  return path;
}

}  // namespace

bool is_published_dataset(std::string_view name) {
  return std::ranges::find(kPublished, name) != kPublished.end();
}

bool is_of_text(std::string_view name) { return kind_of(name) != DataKind::kIds; }

bool is_generated_dataset(std::string_view name) {
  return name == "synthetic" || name == "needle" || find_ruler_task(name);
}

void check_dataset(std::string_view name, bool has_tokenizer, std::string_view text_field) {
  const DataKind kind = kind_of(name);
  if (text_field != "text" && kind != DataKind::kLines) {
    throw_usage("--text-field: expected a .jsonl --dataset beside it, found {}", quote_text(name));
  }
  if (text_field == "prefix" || text_field == "suffix") {
    throw_usage(
        "--text-field: expected another field than prefix and suffix, which stand around the "
        "text, found {}",
        text_field);
  }
  const bool has_text =
      kind == DataKind::kText || kind == DataKind::kLines || kind == DataKind::kRuler;
  if (has_text && !has_tokenizer) throw_no_tokenizer(name);
}

std::filesystem::path find_dataset(const std::string& name,
                                   const std::filesystem::path& downloads) {
  kind_of(name);  // throws for an unknown one
  if (is_generated_dataset(name)) return {};
  std::filesystem::path path = file_of(name, downloads);
  InputFile::open(path);
  return path;
}

std::optional<double> mean_tokens(std::span<const Prompt> prompts) {
  if (prompts.empty()) return std::nullopt;
  double tokens = 0;
  for (const Prompt& p : prompts) tokens += static_cast<double>(p.tokens.size());
  return tokens / static_cast<double>(prompts.size());
}

Dataset load_dataset(const DatasetRequest& request, const Encode& encode) {
  TF_CHECK(request.prefill >= 2 && request.prompts >= 1 && request.vocab > 0);
  Dataset out;
  PromptCollector collect(request, encode, out);
  const DataKind kind = kind_of(request.name);
  std::filesystem::path path;
  out.info.kind = request.name;
  if (!is_generated_dataset(request.name)) {
    path = file_of(request.name, request.downloads);
    if (!is_published_dataset(request.name)) out.info.kind = path.extension().string().substr(1);
  }
  switch (kind) {
    case DataKind::kSynthetic:
      make_synthetic(request, encode, collect, out.info);
      break;
    case DataKind::kNeedle:
      make_needles(request, encode, collect, out.info);
      break;
    case DataKind::kRuler:
      make_ruler(*find_ruler_task(request.name), request, collect, out.info);
      break;
    case DataKind::kText:
      read_txt(path, collect, out.info);
      break;
    case DataKind::kLines:
      read_jsonl(path, request, collect, out.info);
      break;
    case DataKind::kIds:
      read_ids(path, request, collect, out.info);
      break;
  }
  out.info.n_prompts = static_cast<std::int64_t>(out.prompts.size());
  if (request.turn > 0) out.info.mean_tokens = mean_tokens(out.prompts);
  if (out.prompts.empty() && request.turn > 0) {
    throw_input("NoPrompts",
                "--dataset {}: expected a conversation of at least {} turns (--turn) in at most {} "
                "tokens (--prefill), found none; {} others were skipped",
                request.name, request.turn, request.prefill, out.info.n_skipped);
  }
  if (out.prompts.empty()) {
    throw_input(
        "NoPrompts",
        "--dataset {}: expected a document of at least {} tokens (--prefill), found none; {} "
        "shorter ones were skipped",
        request.name, request.prefill, out.info.n_skipped);
  }
  return out;
}

}  // namespace triforce
