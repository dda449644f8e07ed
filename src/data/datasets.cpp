#include "data/datasets.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/file.h"
#include "core/sha256.h"
#include "core/strict_json.h"
#include "core/utf8.h"
#include "data/synthetic.h"
#include "triforce/error.h"

namespace triforce {
namespace {

constexpr std::int64_t kMaxLineBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;
constexpr std::array<std::string_view, 5> kPublished = {"gs", "128k", "one-shot", "lwm", "demo"};

enum class DataKind : std::uint8_t { kSynthetic, kText, kLines, kIds };

DataKind kind_of(std::string_view name) {
  if (name == "synthetic") return DataKind::kSynthetic;
  const std::string suffix = std::filesystem::path(name).extension().string();
  if (is_published_dataset(name) || suffix == ".jsonl") return DataKind::kLines;
  if (suffix == ".ids") return DataKind::kIds;
  if (suffix == ".txt") return DataKind::kText;
  throw_input("UnknownDataset",
              "--dataset: expected synthetic, gs, 128k, one-shot, lwm, demo, or a .txt, .jsonl "
              "or .ids file, found {}",
              quote_text(name));
}

[[noreturn]] void throw_no_tokenizer(std::string_view name) {
  throw_input("NoTokenizer",
              "--dataset {}: expected a target with a tokenizer.model, found none; an .ids file "
              "needs no tokenizer",
              name);
}

// A text with what stands before and after it in the prompt. The text alone is cut.
struct Document {
  std::string_view text, prefix = {}, suffix = {};
};

// Collects prompts until there are enough of them.
class Collector {
 public:
  Collector(const DatasetRequest& request, const Encode& encode, Dataset& out)
      : request_(request), encode_(encode), out_(out) {}

  // True if there is room for another document. Throws what the request's check_stop throws.
  bool wants_more() const {
    if (request_.check_stop) request_.check_stop();
    return static_cast<std::int64_t>(out_.prompts.size()) < request_.prompts;
  }

  // Throws if so many prompts are too much for the memory given.
  void check_room(std::int64_t prompts) const {
    const std::int64_t max_prompts =
        request_.max_bytes / static_cast<std::int64_t>(sizeof(Token)) / request_.prefill;
    if (prompts <= max_prompts) return;
    throw_resources("MemoryLimit",
                    "--prompts: expected at most {} prompts of {} tokens in {} bytes of memory, "
                    "found {} or more",
                    max_prompts, request_.prefill, request_.max_bytes, prompts);
  }

  void add_text(const Document& document, const std::string& source) {
    const std::vector<Token> suffix = suffix_ids(document.suffix);
    std::vector<Token> ids = encode(document.prefix);
    const std::size_t frame = 1 + ids.size() + suffix.size();
    if (frame > 1 && frame >= static_cast<std::size_t>(request_.prefill)) {
      throw_input(
          "InvalidDataset",
          "{}: expected a --prefill above the {} tokens of BOS, prefix and suffix, found {}",
          source, frame, request_.prefill);
    }
    // A beginning of this many bytes holds enough tokens unless they are unusually long.
    std::size_t bytes = static_cast<std::size_t>(request_.prefill) * 8;
    while (true) {
      ids = encode(std::string(document.prefix).append(clip(document.text, bytes)));
      if (bytes >= document.text.size() ||
          static_cast<std::int64_t>(ids.size()) > request_.prefill) {
        break;
      }
      bytes *= 4;
    }
    add_ids(std::move(ids), suffix, source);
  }

  // Ids without BOS, cut to what the prompt has room for before those of the suffix.
  void add_ids(std::vector<Token> ids, std::span<const Token> suffix, const std::string& source) {
    const auto prefill = static_cast<std::size_t>(request_.prefill);
    if (1 + ids.size() + suffix.size() < prefill) {
      ++out_.info.n_skipped;
      return;
    }
    check_room(static_cast<std::int64_t>(out_.prompts.size()) + 1);
    ids.resize(prefill - 1 - suffix.size());
    ids.insert(ids.begin(), request_.bos);
    ids.insert(ids.end(), suffix.begin(), suffix.end());
    ids.shrink_to_fit();
    out_.prompts.push_back({std::move(ids), source});
  }

 private:
  std::vector<Token> encode(std::string_view text) const {
    if (!encode_) throw_no_tokenizer(request_.name);
    if (text.empty()) return {};
    std::vector<Token> ids = encode_(text);
    if (request_.check_stop) request_.check_stop();
    return ids;
  }

  // Its ids as after a line end: a tokenizer treats the beginning of a text unlike its middle.
  std::vector<Token> suffix_ids(std::string_view suffix) const {
    if (suffix.empty()) return {};
    const std::vector<Token> before = encode("\n");
    const std::vector<Token> both = encode(std::string("\n").append(suffix));
    const auto [mid, end] = std::mismatch(before.begin(), before.end(), both.begin(), both.end());
    if (mid != before.end()) return encode(suffix);  // the line end became part of another token
    return {end, both.end()};
  }

  // The longest prefix of at most `bytes` bytes that does not cut a character.
  static std::string_view clip(std::string_view text, std::size_t bytes) {
    if (bytes >= text.size()) return text;
    const std::string_view head = text.substr(0, bytes);
    return head.substr(0, complete_utf8_prefix(head));
  }

  const DatasetRequest& request_;
  const Encode& encode_;
  Dataset& out_;
};

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

void read_jsonl(const std::filesystem::path& path, const std::string& text_field,
                Collector& collect, DataInfo& info) {
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

void read_ids(const std::filesystem::path& path, const DatasetRequest& request, Collector& collect,
              DataInfo& info) {
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
    collect.add_ids(std::move(ids), {}, lines.where());
  }
  info.sha256 = lines.sha256();
}

void read_txt(const std::filesystem::path& path, Collector& collect, DataInfo& info) {
  const std::string text = read_file(path, kMaxTextBytes);
  check_utf8(text, path.string());
  if (text.empty()) throw_input("InvalidDataset", "{}: expected text, found none", path.string());
  info.sha256 = sha256_hex(text);
  if (collect.wants_more()) collect.add_text({text}, path.filename().string());
}

// A model without a tokenizer reads the bytes of the text as ids.
std::vector<Token> bytes_as_ids(std::string_view text, std::int64_t vocab) {
  constexpr std::int64_t kControl = 3;  // unknown, BOS, EOS
  const std::int64_t first = vocab > 2 * kControl ? kControl : 0;
  std::vector<Token> ids;
  ids.reserve(text.size());
  for (const char c : text) {
    ids.push_back(static_cast<Token>(first + static_cast<unsigned char>(c) % (vocab - first)));
  }
  return ids;
}

void make_synthetic(const DatasetRequest& request, const Encode& encode, Collector& collect,
                    DataInfo& info) {
  info.bytes_as_ids = !encode;
  collect.check_room(request.prompts);  // here it is known how many there will be
  Sha256 hash;
  for (std::uint64_t i = 0; collect.wants_more(); ++i) {
    // Grows until the document has enough tokens; a longer request begins with the shorter text.
    for (std::int64_t bytes = request.prefill * 6;; bytes *= 2) {
      const std::string text = synthetic_document(request.seed, i, static_cast<std::size_t>(bytes));
      const std::int64_t skipped = info.n_skipped;
      if (encode) {
        collect.add_text({text}, fmt::format("synthetic #{}", i));
      } else {
        collect.add_ids(bytes_as_ids(text, request.vocab), {},
                        fmt::format("synthetic #{}, bytes", i));
      }
      if (info.n_skipped == skipped) {
        hash.update(text);
        break;
      }
      info.n_skipped = skipped;
    }
  }
  info.sha256 = hash.hex();
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
  return std::find(kPublished.begin(), kPublished.end(), name) != kPublished.end();
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
  const bool has_text = kind == DataKind::kText || kind == DataKind::kLines;
  if (has_text && !has_tokenizer) throw_no_tokenizer(name);
}

std::filesystem::path find_dataset(const std::string& name,
                                   const std::filesystem::path& downloads) {
  if (kind_of(name) == DataKind::kSynthetic) return {};
  std::filesystem::path path = file_of(name, downloads);
  InputFile::open(path);
  return path;
}

Dataset load_dataset(const DatasetRequest& request, const Encode& encode) {
  TF_CHECK(request.prefill >= 2 && request.prompts >= 1 && request.vocab > 0);
  Dataset out;
  Collector collect(request, encode, out);
  const DataKind kind = kind_of(request.name);
  std::filesystem::path path;
  out.info.kind = request.name;
  if (kind != DataKind::kSynthetic) {
    path = file_of(request.name, request.downloads);
    if (!is_published_dataset(request.name)) out.info.kind = path.extension().string().substr(1);
  }
  switch (kind) {
    case DataKind::kSynthetic:
      make_synthetic(request, encode, collect, out.info);
      break;
    case DataKind::kText:
      read_txt(path, collect, out.info);
      break;
    case DataKind::kLines:
      read_jsonl(path, request.text_field, collect, out.info);
      break;
    case DataKind::kIds:
      read_ids(path, request, collect, out.info);
      break;
  }
  out.info.n_prompts = static_cast<std::int64_t>(out.prompts.size());
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
