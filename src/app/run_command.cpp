#include <chrono>

#include "app/commands.h"
#include "app/last_resort.h"
#include "app/output.h"
#include "app/output_file.h"
#include "app/prepare.h"
#include "app/progress.h"
#include "app/ranks.h"
#include "app/run_session.h"
#include "app/signals.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;

// Writes results to the files that were asked for, as often as there is something new.
class ResultFiles {
 public:
  explicit ResultFiles(const RunConfig& config)
      : config_(config), files_(output_requests(config)) {}
  const OutputFiles& claimed() const { return files_; }

  // While the run goes on. A file that cannot be written is a note, once: it is tried again at the
  // end.
  void write_interim(const std::function<RunResult()>& interim) {
    OutputFile* json = files_.find("--json");
    if (warned_ || json == nullptr || !json->replaceable() || Clock::now() < next_interim_) return;
    try {
      json->write(to_json(interim()));
      next_interim_ = Clock::now() + kInterimInterval;
    } catch (const Error& e) {
      print_note(fmt::format("{}; it is tried again at the end", e.what()));
      warned_ = true;
    }
  }

  // All files, then stdout. kOk if all could be written.
  ExitCode write_final(const RunResult& result) {
    OutputWriter out;
    if (OutputFile* f = files_.find("--json")) out.write(f, to_json(result));
    if (OutputFile* f = files_.find("--jsonl")) out.write(f, to_jsonl(result));
    if (OutputFile* f = files_.find("--csv")) out.write(f, to_csv(result));
    out.print(printed(result));
    return out.code();
  }

 private:
  std::string printed(const RunResult& result) const {
    switch (config_.output_format) {
      case OutputFormat::kTable:
        return to_table(result,
                        {terminal_columns(1).value_or(100), config_.details, wants_colour(1)});
      case OutputFormat::kJson:
        return to_json(result);
      case OutputFormat::kJsonl:
        return to_jsonl(result);
      case OutputFormat::kCsv:
        return to_csv(result);
      case OutputFormat::kMarkdown:
        return to_markdown(result, config_.details);
    }
    TF_CHECK(false, "output format");
  }
  const RunConfig& config_;
  OutputFiles files_;
  // Building and writing a result takes its time too.
  static constexpr std::chrono::seconds kInterimInterval{2};
  bool warned_ = false;
  Clock::time_point next_interim_;
};

ExitCode lead_run(const RunConfig& config, const std::vector<std::string>& argv, RankLinks& links,
                  const RankProcesses& ranks) {
  ResultFiles files(config);
  RunSession session({{config, {}}}, argv, links, ranks,
                     {{}, [&](const auto& interim) { files.write_interim(interim); }});
  const RunResult result = std::move(session.run(files.claimed()).front());
  report_cases(result);
  if (result.exit_code == ExitCode::kNumeric) session.blame_weights();
  const ExitCode written = files.write_final(result);
  const std::optional<ExitCode> signal = received_signal();
  if (signal && result.exit_code == ExitCode::kInterrupted) return *signal;
  return result.exit_code != ExitCode::kOk ? result.exit_code : written;
}

// Lets the other ranks go, or ends them.
void dismiss_others(RankLinks& links, RankProcesses& ranks, ExitCode code) {
  constexpr std::chrono::seconds kLimit{2};
  try {
    dismiss(links);
    ranks.join(kLimit);
  } catch (const Error&) {  // the result says so
    ranks.abandon(code);
  }
}

ExitCode follow_command(const RunConfig& config, RankLinks& links, RankProcesses& ranks) {
  constexpr std::chrono::seconds kLimit{10};
  const ExitCode code = run_follower(config, links, ranks.local());
  if (code == ExitCode::kOk) {
    ranks.join(kLimit);
  } else {
    links.outlast_rank_0(kLimit);
  }
  return code;
}

}  // namespace

ExitCode run_command(const RunConfig& config, const std::vector<std::string>& argv) {
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(config.comm_timeout_s));
  RankProcesses ranks = RankProcesses::start(config.tp, timeout);
  RankLinks links(ranks.shard(), ranks.take_sockets(), timeout);
  if (links.shard().rank != 0) return follow_command(config, links, ranks);
  ExitCode code = ExitCode::kOk;
  try {
    code = lead_run(config, argv, links, ranks);
  } catch (...) {
    code = report_current_exception();
    ranks.abandon(code);
    return code;
  }
  dismiss_others(links, ranks, code);
  return code;
}

}  // namespace triforce
