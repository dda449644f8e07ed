// The files of --json, --jsonl and --csv, and what is printed.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "app/output.h"
#include "app/output_file.h"
#include "app/prepare.h"
#include "app/progress.h"
#include "options/identity.h"
#include "triforce/sweep.h"

namespace triforce {

// The lines of a file, so that none is appended twice.
class KnownLines {
 public:
  explicit KnownLines(const std::string& path);
  // Whether it has all lines of the text, which is not empty.
  bool has(std::string_view text) const;

 private:
  std::unordered_set<std::string> digests_;
};

// A result, RunResult or SweepResult, as --output-format and --details say.
template <class T>
std::string printed_result(const RunConfig& config, const T& result) {
  switch (config.output_format) {
    case OutputFormat::kTable:
      return to_table(result, {terminal_columns(1).value_or(100), config.details, wants_colour(1)});
    case OutputFormat::kJson:
      return to_json(result);
    case OutputFormat::kJsonl:
      return to_jsonl(result);
    case OutputFormat::kCsv:
      return to_csv(result, is_column);
    case OutputFormat::kMarkdown:
      return to_markdown(result, config.details);
  }
  TF_CHECK(false, "output format");
}

// Writes results to the files that were asked for, as often as there is something new. T: RunResult
// or SweepResult.
template <class T>
class ResultFiles {
 public:
  // `inputs` as of OutputFiles.
  ResultFiles(const RunConfig& config, const std::vector<std::filesystem::path>& inputs)
      : config_(config), files_(output_requests(config), inputs) {}

  // While the run goes on. A file that cannot be written is a note, once: it is tried again at the
  // end.
  void write_interim(const std::function<T()>& interim) {
    OutputFile* json = files_.find("--json");
    if (warned_ || json == nullptr || !json->replaceable() ||
        std::chrono::steady_clock::now() < next_interim_)
      return;
    try {
      json->write(to_json(interim()));
      next_interim_ = std::chrono::steady_clock::now() + kInterimInterval;
    } catch (const Error& e) {
      print_note(fmt::format("{}; it is tried again at the end", e.what()));
      warned_ = true;
    }
  }

  // All files, then stdout. `appended`: what of it --jsonl gets. kOk if all could be written.
  ExitCode write_final(const T& result) { return write_final(result, result); }
  ExitCode write_final(const T& result, const T& appended) {
    OutputWriter out;
    if (OutputFile* f = files_.find("--json")) out.write(f, to_json(result));
    if (OutputFile* f = files_.find("--jsonl")) {
      if (const std::string lines = to_jsonl(appended); !lines.empty()) out.write(f, lines);
    }
    if (OutputFile* f = files_.find("--csv")) out.write(f, to_csv(result, is_column));
    out.print(printed_result(config_, result));
    return out.code();
  }

 private:
  const RunConfig& config_;
  OutputFiles files_;
  // Building and writing a result takes its time too.
  static constexpr std::chrono::seconds kInterimInterval{2};
  bool warned_ = false;
  std::chrono::steady_clock::time_point next_interim_;
};

}  // namespace triforce
