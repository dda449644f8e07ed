#include "sweep/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

}  // namespace

Journal::Journal(std::string path, const JournalHeader& header) : path_(std::move(path)) {
  const std::string quoted = quote_text(path_, 4096);
  name_ = fmt::format("--resume: {}", quoted.substr(1, quoted.rfind('"') - 1));
  file_ = open_fd(path_, O_RDWR | O_CREAT | O_APPEND);
  if (!file_) {
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC) {
      throw_resources("OpenFailed", "{}: {}", name_, std::strerror(error));
    }
    throw_usage("{}: expected a file that can be written, found: {}", name_, std::strerror(error));
  }
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw_usage("{}: expected a regular file", name_);
  }
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw_usage("{}: another process is writing it", name_);
  }
  read(header);
}

void Journal::read(const JournalHeader& header) {
  const std::string text = read_file(path_, kMaxBytes);
  std::size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    const std::string source = fmt::format("{}:{}", name_, number);
    const std::string_view line =
        std::string_view(text).substr(begin, std::min(end, text.size()) - begin);
    const std::optional<std::string_view> body = body_of(line);
    const bool last = end == std::string::npos || end + 1 == text.size();
    if (!body || end == std::string::npos) {
      if (!last || number == 1) {
        throw_input(kErrorKind, "{}: expected a line with its checksum, found {}", source,
                    quote_text(line));
      }
      break;  // torn: a process was killed while it wrote
    }
    if (number == 1) {
      const auto found = read_line<JournalHeader>(*body, source);
      const auto expect = [&](const char* what, const auto& want, const auto& have) {
        if (want == have) return;
        throw_input("JournalMismatch",
                    "{}: was written by another {} (expected {}, found {}); another file begins "
                    "anew",
                    name_, what, want, have);
      };
      expect("program", header.program_sha256, found.program_sha256);
      expect("processor", header.cpu_model, found.cpu_model);
      expect("sweep", header.cases, found.cases);
      expect("sweep", header.cases_sha256, found.cases_sha256);
    } else {
      SweepRow& row = rows_.emplace_back(read_line<SweepRow>(*body, source));
      if (row.number < 1 || row.number > header.cases) {
        throw_input(kErrorKind, "{}: expected a case of 1 to {}, found {}", source, header.cases,
                    row.number);
      }
    }
    begin = end + 1;
  }
  if (begin < text.size() && ::ftruncate(file_.get(), static_cast<off_t>(begin)) != 0) {
    throw_write_error(name_, "cut off the torn last line", errno);
  }
  if (text.empty()) write_line(to_json_text(header, JsonStyle::kCompact));
}

void Journal::check_alike(const RunResult& result) const {
  for (const SweepRow& row : rows_) {
    if (const auto found = find_difference(row.result, result)) {
      throw_input("JournalMismatch", "{}: {}: expected {} as in case {}, found {}", name_,
                  found->what, found->before, row.number, found->now);
    }
  }
}

void Journal::append(const SweepRow& row) {
  check_alike(row.result);
  write_line(to_json_text(row, JsonStyle::kCompact));
  rows_.push_back(row);
}

void Journal::write_line(const std::string& body) {
  write_all(file_.get(), fmt::format("{} {}\n", checksum(body), body), name_);
  if (::fdatasync(file_.get()) != 0) throw_write_error(name_, "write to the disk", errno);
}

}  // namespace triforce
