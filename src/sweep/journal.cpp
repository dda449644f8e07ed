#include "sweep/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "core/sha256.h"
#include "core/utf8.h"
#include "report/read_json.h"

namespace triforce {
namespace {

constexpr const char* kErrorKind = "InvalidJournal";
constexpr std::size_t kChecksumDigits = 16;
constexpr const char* kTextOptions[] = {"dataset", "prefill", "prompts", "seed", "target"};
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;
constexpr JsonLimits kLimits{kMaxBytes, 20, std::int64_t{1} << 27};

std::string checksum(std::string_view body) { return sha256_hex(body).substr(0, kChecksumDigits); }

// The body of a line without its end; nullopt: torn or changed.
std::optional<std::string_view> body_of(std::string_view line) {
  if (line.size() <= kChecksumDigits + 1 || line[kChecksumDigits] != ' ') return std::nullopt;
  const std::string_view body = line.substr(kChecksumDigits + 1);
  if (line.substr(0, kChecksumDigits) != checksum(body)) return std::nullopt;
  return body;
}

template <class T>
T read_line(std::string_view body, const std::string& source) {
  return read_json_text<T>(body, source, kLimits, kErrorKind);
}

// Where an earlier row and a new one say different things of the same, what that is; else empty.
struct Difference {
  std::string what, before, now;
};

template <class T>
std::string shown(const T& value) {
  if constexpr (Optional<T>) {
    return value ? fmt::format("{}", *value) : "none";
  } else {
    return fmt::format("{}", value);
  }
}

std::optional<Difference> model_difference(const char* role, const ModelInfo& a,
                                           const ModelInfo& b) {
  if (a.name != b.name) return std::nullopt;  // an axis
  const std::string of = fmt::format("{} {}: ", role, a.name);
  if (a.config_sha256 != b.config_sha256) {
    return Difference{of + "config.json", shown(a.config_sha256), shown(b.config_sha256)};
  }
  if (a.tokenizer_sha256 != b.tokenizer_sha256) {
    return Difference{of + "tokenizer", shown(a.tokenizer_sha256), shown(b.tokenizer_sha256)};
  }
  // Not loaded: no digest yet.
  if (a.dtype == b.dtype && a.weights_digest && b.weights_digest &&
      a.weights_digest != b.weights_digest) {
    return Difference{of + "weights", shown(a.weights_digest), shown(b.weights_digest)};
  }
  return std::nullopt;
}

// Whether the options that choose the prompts are the same.
bool same_text(const CaseResult& a, const CaseResult& b) {
  const auto value = [](const CaseResult& c, std::string_view name) {
    const ParamValue* const found = find_param(c.params, name);
    return found == nullptr ? std::string() : to_text(*found);
  };
  return std::all_of(std::begin(kTextOptions), std::end(kTextOptions),
                     [&](const char* name) { return value(a, name) == value(b, name); });
}

std::optional<Difference> find_difference(const RunResult& before, const RunResult& now) {
  const ResultContext &a = before.context, &b = now.context;
  if (a.gpu_name && b.gpu_name) {
    if (a.gpu_name != b.gpu_name) return Difference{"GPU", *a.gpu_name, *b.gpu_name};
    if (a.driver != b.driver) return Difference{"driver", shown(a.driver), shown(b.driver)};
    if (a.cuda != b.cuda) return Difference{"CUDA runtime", shown(a.cuda), shown(b.cuda)};
  }
  if (before.cases.empty() || now.cases.empty()) return std::nullopt;
  const CaseResult &c = before.cases.front(), &d = now.cases.front();
  if (c.target && d.target) {
    if (auto found = model_difference("target", *c.target, *d.target)) return found;
  }
  if (same_text(c, d) && c.data.sha256 && d.data.sha256 && c.data.sha256 != d.data.sha256) {
    return Difference{fmt::format("data {}: SHA-256", c.data.kind), *c.data.sha256, *d.data.sha256};
  }
  const auto drafter = [](const RunResult& r) -> const ModelInfo* {
    for (const CaseResult& x : r.cases) {
      if (x.draft) return &*x.draft;
    }
    return nullptr;
  };
  const ModelInfo *e = drafter(before), *f = drafter(now);
  if (e != nullptr && f != nullptr) {
    if (auto found = model_difference("drafter", *e, *f)) return found;
  }
  return std::nullopt;
}

// "--resume: FILE", what messages begin with.
std::string name_of(std::string_view option, const std::string& path) {
  const std::string quoted = quote_text(path, 4096);
  return fmt::format("{}: {}", option, quoted.substr(1, quoted.rfind('"') - 1));
}

void lock(const Descriptor& file, int how, const std::string& name) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw_usage("{}: expected a regular file", name);
  }
  if (::flock(file.get(), how | LOCK_NB) != 0) {
    throw_usage("{}: another process is writing it", name);
  }
}

struct Contents {
  std::optional<JournalHeader> header;  // nullopt: an empty file
  std::vector<SweepRow> rows;
  std::size_t end = 0;  // bytes of whole lines: what follows is torn
};

Contents parse(std::string_view text, const std::string& name) {
  Contents contents;
  for (int number = 1; contents.end < text.size(); ++number) {
    const std::size_t end = text.find('\n', contents.end);
    const std::string source = fmt::format("{}:{}", name, number);
    const std::string_view line =
        text.substr(contents.end, std::min(end, text.size()) - contents.end);
    const std::optional<std::string_view> body = body_of(line);
    const bool last = end == std::string_view::npos || end + 1 == text.size();
    if (!body || end == std::string_view::npos) {
      if (!last || number == 1) {
        throw_input(kErrorKind, "{}: expected a line with its checksum, found {}", source,
                    quote_text(line));
      }
      break;  // torn: a process was killed while it wrote
    }
    contents.end = end + 1;
    if (number == 1) {
      contents.header = read_line<JournalHeader>(*body, source);
      continue;
    }
    const std::int64_t cases = contents.header->cases;
    const SweepRow& row = contents.rows.emplace_back(read_line<SweepRow>(*body, source));
    if (row.number < 1 || row.number > cases) {
      throw_input(kErrorKind, "{}: expected a case of 1 to {}, found {}", source, cases,
                  row.number);
    }
  }
  return contents;
}

// `hint` ends the message.
void expect_header(const JournalHeader& header, const JournalHeader& found, const std::string& name,
                   std::string_view hint) {
  const auto expect = [&](const char* what, const auto& want, const auto& have) {
    if (want == have) return;
    throw_input("JournalMismatch", "{}: was written by another {} (expected {}, found {}){}", name,
                what, want, have, hint);
  };
  expect("program", header.program_sha256, found.program_sha256);
  expect("processor", header.cpu_model, found.cpu_model);
  expect("sweep", header.cases, found.cases);
  expect("sweep", header.cases_sha256, found.cases_sha256);
}

void check_alike(const std::vector<SweepRow>& rows, const RunResult& result,
                 const std::string& name) {
  for (const SweepRow& row : rows) {
    if (const auto found = find_difference(row.result, result)) {
      throw_input("JournalMismatch", "{}: {}: expected {} as in case {}, found {}", name,
                  found->what, found->before, row.number, found->now);
    }
  }
}

Contents read_shard(const std::string& path, const std::string& name) {
  const Descriptor file = open_fd(path, O_RDONLY);
  if (!file) throw_usage("{}: expected a file, found: {}", name, std::strerror(errno));
  lock(file, LOCK_SH, name);
  Contents contents = parse(read_file(path, kMaxBytes), name);
  if (!contents.header) throw_input(kErrorKind, "{}: expected a journal, found nothing", name);
  return contents;
}

}  // namespace

bool is_settled(const RunResult& r) {
  return std::all_of(r.cases.begin(), r.cases.end(), [](const CaseResult& c) {
    return c.status == CaseStatus::kOk || c.status == CaseStatus::kSkippedOptions;
  });
}

std::vector<SweepRow> merge_journals(const std::vector<std::string>& paths,
                                     const JournalHeader& header) {
  JournalHeader expected = header;
  std::vector<SweepRow> merged;
  std::map<std::int64_t, std::pair<std::size_t, std::string>> places;  // in merged, and the file
  for (const std::string& path : paths) {
    const std::string name = name_of("--merge", path);
    Contents contents = read_shard(path, name);
    if (path == paths.front()) expected.cpu_model = contents.header->cpu_model;
    expect_header(expected, *contents.header, name, "");
    std::map<std::int64_t, SweepRow> last;
    for (SweepRow& row : contents.rows) last[row.number] = std::move(row);
    for (auto& [number, row] : last) {
      check_alike(merged, row.result, name);
      const auto [it, is_new] = places.emplace(number, std::pair(merged.size(), path));
      if (is_new) {
        merged.push_back(std::move(row));
        continue;
      }
      SweepRow& before = merged[it->second.first];
      if (!is_settled(row.result)) continue;
      if (is_settled(before.result)) {
        throw_input("JournalMismatch",
                    "{}: expected every case in one journal, found case {} in {} too", name, number,
                    quote_text(it->second.second));
      }
      before = std::move(row);
      it->second.second = path;
    }
  }
  std::sort(merged.begin(), merged.end(),
            [](const SweepRow& a, const SweepRow& b) { return a.number < b.number; });
  return merged;
}

Journal::Journal(std::string path, const JournalHeader& header)
    : path_(std::move(path)), name_(name_of("--resume", path_)) {
  file_ = open_fd(path_, O_RDWR | O_CREAT | O_APPEND);
  if (!file_) {
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC) {
      throw_resources("OpenFailed", "{}: {}", name_, std::strerror(error));
    }
    throw_usage("{}: expected a file that can be written, found: {}", name_, std::strerror(error));
  }
  lock(file_, LOCK_EX, name_);
  read(header);
}

void Journal::read(const JournalHeader& header) {
  const std::string text = read_file(path_, kMaxBytes);
  Contents contents = parse(text, name_);
  if (contents.header) {
    expect_header(header, *contents.header, name_ + ":1", "; another file begins anew");
  }
  rows_ = std::move(contents.rows);
  if (contents.end < text.size() &&
      ::ftruncate(file_.get(), static_cast<off_t>(contents.end)) != 0) {
    throw_write_error(name_, "cut off the torn last line", errno);
  }
  if (text.empty()) write_line(to_json_text(header, JsonStyle::kCompact));
}

void Journal::append(const SweepRow& row) {
  check_alike(rows_, row.result, name_);
  write_line(to_json_text(row, JsonStyle::kCompact));
  rows_.push_back(row);
}

void Journal::write_line(const std::string& body) {
  write_all(file_.get(), fmt::format("{} {}\n", checksum(body), body), name_);
  if (::fdatasync(file_.get()) != 0) throw_write_error(name_, "write to the disk", errno);
}

}  // namespace triforce
