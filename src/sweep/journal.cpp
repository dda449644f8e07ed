// Tests: tests/sweep/journal_test.cpp, tests/faults/killed_sweep_test.py
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
#include <utility>

#include "core/sha256.h"
#include "core/utf8.h"
#include "report/result_json.h"

namespace triforce {
namespace {

constexpr const char* kErrorKind = "InvalidJournal";
constexpr std::size_t kChecksumDigits = 16;
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
  std::optional<JournalHeader> header;  // nullopt: an empty file, or one torn in its first line
  std::vector<JournalEntry> entries;
  std::vector<std::string> sources;  // of them, for messages
  std::size_t end = 0;               // bytes of whole lines: what follows is torn
};

// The first line, of whatever format.
void check_format(std::string_view body, const std::string& source) {
  constexpr std::string_view kBegin = R"({"schema":"triforce-bench.journal/)";
  const std::string ours = fmt::format(R"({{"schema":"{}")", kJournalSchema);
  if (!body.starts_with(kBegin) || body.starts_with(ours)) return;
  const std::string_view format = body.substr(11, body.find('"', 11) - 11);
  throw_input("JournalMismatch",
              "{}: was written by a build with another format (expected {}, found {}); another "
              "file begins anew",
              source, kJournalSchema, quote_text(format));
}

// Returns whether a text is what a process leaves that is killed while it writes the first line.
bool is_torn_header(std::string_view text) {
  if (text.size() <= kChecksumDigits + 1) return text.empty();
  const std::string begin = fmt::format(R"({{"schema":"{}",)", kJournalSchema);
  const std::string_view body = text.substr(kChecksumDigits + 1);
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.find('\n') == std::string_view::npos && text[kChecksumDigits] == ' ' &&
         std::all_of(text.begin(), text.begin() + kChecksumDigits, is_hex) &&
         body.substr(0, begin.size()) == begin.substr(0, body.size());
}

void check_entry(const JournalEntry& entry, std::int64_t cases, const std::string& source) {
  if (entry.number < 1 || entry.number > cases) {
    throw_input(kErrorKind, "{}: expected a case of 1 to {}, found {}", source, cases,
                entry.number);
  }
  const int members = (entry.facts ? 1 : 0) + (entry.prompt ? 1 : 0) + (entry.row ? 1 : 0);
  if (members != 1 || (entry.row && entry.row->number != entry.number)) {
    throw_input(kErrorKind, "{}: expected facts, a prompt or a row of case {}, found {}", source,
                entry.number, entry.row ? "a row of another" : "none or several");
  }
}

Contents parse(std::string_view text, const std::string& name) {
  Contents contents;
  if (is_torn_header(text)) return contents;
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
      check_format(*body, source);
      contents.header = read_line<JournalHeader>(*body, source);
      continue;
    }
    contents.entries.push_back(read_line<JournalEntry>(*body, source));
    contents.sources.push_back(source);
    check_entry(contents.entries.back(), contents.header->cases, source);
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

Contents read_slice(const std::string& path, const std::string& name) {
  const Descriptor file = open_fd(path, O_RDONLY);
  if (!file) throw_usage("{}: expected a file, found: {}", name, std::strerror(errno));
  lock(file, LOCK_SH, name);
  Contents contents = parse(read_file(path, kMaxBytes), name);
  if (!contents.header) throw_input(kErrorKind, "{}: expected a journal, found nothing", name);
  return contents;
}

}  // namespace

std::string to_json_line(const JournalEntry& entry) {
  return to_json_text(entry, JsonStyle::kCompact);
}

JournalEntry read_json_entry(std::string_view text, const std::string& source) {
  return read_json_text<JournalEntry>(text, source, kLimits, "Internal");
}

bool is_settled(const RunResult& r) {
  const auto stands = [](const CaseResult& c) {
    return c.status == CaseStatus::kOk || c.status == CaseStatus::kSkippedOptions;
  };
  return !r.cases.empty() && std::ranges::all_of(r.cases, stands);
}

std::vector<SweepRow> merge_journals(const std::vector<std::string>& paths,
                                     const JournalHeader& header) {
  JournalHeader expected = header;
  std::vector<SweepRow> merged;
  KnownFacts known;
  std::map<std::int64_t, std::pair<std::size_t, std::string>> places;  // in merged, and the file
  for (const std::string& path : paths) {
    const std::string name = name_of("--merge", path);
    Contents contents = read_slice(path, name);
    if (path == paths.front()) expected.cpu_model = contents.header->cpu_model;
    expect_header(expected, *contents.header, name, "");
    std::map<std::int64_t, SweepRow> last;
    for (JournalEntry& entry : contents.entries) {
      if (entry.row) last[entry.number] = std::move(*entry.row);
    }
    for (auto& [number, row] : last) {
      if (auto facts = facts_of(row.result)) {
        known.check(*facts, name);
        known.add(number, std::move(*facts));
      }
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
  std::ranges::sort(merged,
                    [](const SweepRow& a, const SweepRow& b) { return a.number < b.number; });
  return merged;
}

Journal::Journal(std::string path, const JournalHeader& header)
    : path_(std::move(path)), name_(name_of("--resume", path_)) {
  if (path_ == "-") {
    throw_usage("--resume: expected a file name, found \"-\"; ./- names such a file");
  }
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
  for (std::size_t i = 0; i < contents.entries.size(); ++i) {
    take(std::move(contents.entries[i]), contents.sources[i]);
  }
  torn_ = contents.end < text.size();
  if (torn_ && ::ftruncate(file_.get(), static_cast<off_t>(contents.end)) != 0) {
    throw_write_error(name_, "cut off the torn last line", errno);
  }
  if (!contents.header) {
    write(to_json_text(header, JsonStyle::kCompact));
    flush();
  }
}

void Journal::take(JournalEntry entry, const std::string& source) {
  if (entry.facts) {
    known_.add(entry.number, std::move(*entry.facts));
  } else if (entry.row) {
    if (auto facts = facts_of(entry.row->result)) known_.add(entry.number, std::move(*facts));
    // A case that failed goes on with the prompts that it had, and with all of its time.
    std::vector<PromptRecord>& prompts = prompts_[entry.number];
    if (is_settled(entry.row->result)) prompts.clear();
    if (!prompts.empty()) prompts.back().spent_s = 0;
    rows_.push_back(std::move(*entry.row));
  } else {
    std::vector<PromptRecord>& prompts = prompts_[entry.number];
    if (entry.prompt->prompt == 0) prompts.clear();
    if (entry.prompt->prompt != static_cast<int>(prompts.size())) {
      throw_input(kErrorKind, "{}: expected prompt {} of case {}, found {}", source, prompts.size(),
                  entry.number, entry.prompt->prompt);
    }
    prompts.push_back(std::move(*entry.prompt));
  }
}

std::vector<PromptRecord> Journal::take_prompts_of(std::int64_t number) {
  return std::exchange(prompts_[number], {});
}

void Journal::expect(std::int64_t number, const CaseFacts& facts) {
  known_.check(facts, name_);
  if (!known_.add(number, facts)) return;
  write(to_json_line({number, facts, {}, {}}));
  flush();
}

void Journal::add(const SweepRow& row) {
  if (auto facts = facts_of(row.result)) {
    known_.check(*facts, name_);
    known_.add(row.number, std::move(*facts));
  }
  write(to_json_line({row.number, {}, {}, row}));
  flush();
}

void Journal::add(std::int64_t number, const PromptRecord& record) {
  write(to_json_line({number, {}, record, {}}));
  flush();
}

void Journal::write(const std::string& body) {
  unwritten_.push_back(fmt::format("{} {}\n", checksum(body), body));
}

// A line that a full disk cut short is taken away, so that those after it can be read.
void Journal::flush() {
  while (!unwritten_.empty()) {
    struct stat before {};
    if (::fstat(file_.get(), &before) != 0) throw_write_error(name_, "write", errno);
    try {
      write_all(file_.get(), unwritten_.front(), name_);
      if (::fdatasync(file_.get()) != 0) throw_write_error(name_, "write to the disk", errno);
    } catch (const Error&) {
      while (::ftruncate(file_.get(), before.st_size) != 0 && errno == EINTR) {
      }
      throw;
    }
    unwritten_.pop_front();
  }
}

}  // namespace triforce
