// Cases by processes of their own: this one parses, keeps the journal, the time and the files, and
// never computes. Cases that one load of the models serves are one process's.
#include <algorithm>
#include <optional>

#include "app/commands.h"
#include "app/last_resort.h"
#include "app/progress.h"
#include "app/ranks.h"
#include "app/result_files.h"
#include "app/run_session.h"
#include "app/signals.h"
#include "app/sweep_cases.h"
#include "comm/launcher.h"
#include "core/fields.h"
#include "core/sha256.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "report/printers.h"
#include "sweep/directions.h"
#include "sweep/journal.h"
#include "sweep/workers.h"

namespace triforce {
namespace {

std::string file_sha256(const char* path) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
  return sha256_hex(read_file(path, kMaxBytes));
}

bool was_cut_short(const RunResult& r) {
  return std::any_of(r.cases.begin(), r.cases.end(),
                     [](const CaseResult& c) { return c.status == CaseStatus::kInterrupted; });
}

// Time of a token, or how much faster than the baseline, of each case; empty if nothing was
// measured.
std::string figures_of(const RunResult& r) {
  std::string text;
  for (const CaseResult& c : r.cases) {
    const auto ms = metric_of(c, CaseMetric::kMsPerToken);
    if (!ms) continue;
    const auto speedup = metric_of(c, CaseMetric::kSpeedup);
    append_figure(text, c.name, *ms, is_baseline(c) ? std::nullopt : speedup);
  }
  return text;
}

class Sweep {
 public:
  Sweep(const CommandLine& line, const std::vector<std::string>& argv)
      : line_(line),
        cases_(line.cases),
        config_(line.config),
        argv_(argv),
        facts_(make_context(argv)),
        recipes_(recipes_of(line)),
        shard_(shard_of(cases_, config_.shard)),
        files_(config_),
        progress_(config_.progress),
        rows_(cases_.size()) {}
  ExitCode run();

 private:
  std::string label(std::size_t i) const {
    return fmt::format("case {} of {}", i + 1, cases_.size());
  }
  JournalHeader header() const;
  void open_journal();
  void merge();
  void refuse_what_does_not_fit();
  void measure(std::vector<std::size_t> group);
  ExitCode work(const std::vector<std::size_t>& cases, WorkerReport& report);
  SweepRow row_of(std::size_t i, RunResult result) const;
  // A row of this case: into the table, and unless it was cut short into the journal.
  void add(std::size_t i, RunResult result);
  RunResult unrun(std::size_t i, CaseStatus status, const std::string& reason, ExitCode code) const;
  bool enough() const { return received_signal().has_value() || (config_.fail_fast && failed_); }
  const RunConfig& config_of(std::size_t i) const { return *cases_[i].config; }
  SweepResult result_so_far() const;
  ExitCode code_of(const SweepResult& sweep) const;

  const CommandLine& line_;
  const std::vector<SweepCase>& cases_;
  const RunConfig& config_;
  const std::vector<std::string>& argv_;
  ResultContext facts_;  // of this machine, for rows that were not measured
  std::vector<SweepRecipe> recipes_;
  ShardOfCases shard_;
  ResultFiles<SweepResult> files_;
  Progress progress_;
  std::optional<Journal> journal_;
  std::vector<std::optional<SweepRow>> rows_;
  bool failed_ = false;
};

JournalHeader Sweep::header() const {
  JournalHeader header;
  header.program_sha256 = file_sha256("/proc/self/exe");
  header.cases_sha256 = cases_sha256(cases_);
  header.cases = static_cast<std::int64_t>(cases_.size());
  header.cpu_model = cpu_model_name();
  return header;
}

void Sweep::merge() {
  for (SweepRow& row : merge_journals(config_.merge_files, header())) {
    const auto i = static_cast<std::size_t>(row.number - 1);
    rows_[i] = std::move(row);
  }
}

void Sweep::open_journal() {
  if (config_.journal_file.empty()) return;
  journal_.emplace(config_.journal_file, header());
  for (const SweepRow& row : journal_->rows()) {
    auto& known = rows_[static_cast<std::size_t>(row.number - 1)];
    known.reset();
    if (is_settled(row.result)) known = row;
  }
  const auto done = std::count_if(rows_.begin(), rows_.end(), [](const auto& r) { return r; });
  if (done > 0) {
    print_note(fmt::format("--resume: {} of {} cases were measured before", done,
                           std::count(shard_.has.begin(), shard_.has.end(), true)));
  }
}

RunResult Sweep::unrun(std::size_t i, CaseStatus status, const std::string& reason,
                       ExitCode code) const {
  MeasureInput input;
  input.config = cases_[i].config.value_or(config_);
  input.context = facts_;
  input.data.kind = "not read";
  if (cases_[i].config) input.params = echo_params(input.config);
  return unrun_result(input, status, reason, code);
}

void Sweep::refuse_what_does_not_fit() {
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (cases_[i].config || rows_[i] || !shard_.has[i]) continue;
    add(i, unrun(i, CaseStatus::kSkippedOptions, cases_[i].refusal, ExitCode::kUsage));
  }
}

SweepRow Sweep::row_of(std::size_t i, RunResult result) const {
  return {{static_cast<std::int64_t>(i + 1), recipe_of(line_, cases_[i])},
          options_of(cases_[i]),
          std::move(result)};
}

void Sweep::add(std::size_t i, RunResult result) {
  SweepRow row = row_of(i, std::move(result));
  report_cases(row.result, label(i) + ": ");
  const std::string figures = figures_of(row.result), axes = axes_text(cases_[i].axes);
  if (!figures.empty()) {
    progress_.say(
        fmt::format("{}{}: {}", label(i), axes.empty() ? "" : " (" + axes + ")", figures));
  }
  const bool cut_short = was_cut_short(row.result);
  if (journal_ && !cut_short) journal_->append(row);
  failed_ = failed_ || !is_settled(row.result);
  rows_[i] = std::move(row);
  if (!cut_short) files_.write_interim([this] { return result_so_far(); });
}

// What a worker does: the cases in one session, their rows when all have ended.
ExitCode Sweep::work(const std::vector<std::size_t>& cases, WorkerReport& report) {
  forget_scratch_files();
  if (journal_) journal_->forget();
  const auto lead = [&](RankLinks& links, const RankProcesses& ranks) {
    std::vector<RunRequest> requests;
    for (const std::size_t i : cases) requests.push_back({*cases_[i].config, label(i)});
    RunSession session(std::move(requests), argv_, links, ranks,
                       {[&](std::size_t run) { report.step(cases[run]); }, {}});
    const std::vector<RunResult> results = session.run(files_.claimed());
    ExitCode code = ExitCode::kOk;
    for (std::size_t k = 0; k < cases.size(); ++k) {
      const bool lost = results[k].exit_code == ExitCode::kOk && was_cut_short(results[k]);
      if (lost) continue;  // the device failed under another case
      report.row(cases[k], to_json(results[k]));
      if (results[k].exit_code == ExitCode::kNumeric) session.blame_weights();
      if (code == ExitCode::kOk) code = results[k].exit_code;
    }
    return code;
  };
  return with_ranks(config_of(cases.front()), lead, [&] {
    try {
      throw;
    } catch (const Error& e) {
      report.refuse(e.code(), error_text(e));
      return e.code();
    } catch (...) {
      return report_current_exception();
    }
  });
}

void Sweep::measure(std::vector<std::size_t> group) {
  std::erase_if(group, [this](std::size_t i) { return rows_[i].has_value(); });
  if (group.empty()) return;
  // A worker looks at the time itself, between passes; beyond that it hangs.
  constexpr double kGrace_s = 15;
  const double timeout_s = config_of(group.front()).timeout_s;
  const auto silence = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_s > 0 ? timeout_s + kGrace_s : 0));
  WorkerHooks hooks;
  hooks.measure = [this](const auto& cases, WorkerReport& report) { return work(cases, report); };
  hooks.on_row = [this](std::size_t i, const std::string& text) {
    add(i, read_json_result(text, label(i)));
  };
  hooks.on_failure = [this](std::size_t i, ExitCode code, const std::string& reason) {
    CaseStatus status = CaseStatus::kError;
    if (code == ExitCode::kUsage) status = CaseStatus::kSkippedOptions;
    if (code == ExitCode::kInconclusive) status = CaseStatus::kTimeout;
    if (received_signal()) status = CaseStatus::kInterrupted;
    add(i, unrun(i, status, reason, code));
  };
  hooks.stop_signal = []() -> std::optional<int> {
    const std::optional<ExitCode> signal = received_signal();
    if (!signal) return std::nullopt;
    return static_cast<int>(*signal) - 128;
  };
  hooks.enough = [this] { return enough(); };
  run_workers(std::move(group), hooks, silence);
}

SweepResult Sweep::result_so_far() const {
  const char* const why =
      config_.merge_files.empty() ? "it was not its turn yet" : "none of the journals has it";
  SweepResult sweep;
  sweep.recipes = recipes_;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (rows_[i]) {
      sweep.rows.push_back(*rows_[i]);
    } else if (shard_.has[i]) {
      sweep.rows.push_back(
          row_of(i, unrun(i, CaseStatus::kInterrupted, why, ExitCode::kInterrupted)));
    }
  }
  for (SweepRecipe& recipe : sweep.recipes) {
    for (SweepDirection& d : recipe.directions) judge_direction(d, sweep.rows);
  }
  return sweep;
}

// The first failure's; that of what was skipped only where nothing else was to be measured.
ExitCode Sweep::code_of(const SweepResult& sweep) const {
  if (const std::optional<ExitCode> signal = received_signal()) return *signal;
  ExitCode skipped = ExitCode::kOk;
  bool measured = false;
  for (const SweepRow& row : sweep.rows) {
    const auto& cases = row.result.cases;
    const auto all_are = [&](CaseStatus status) {
      return std::all_of(cases.begin(), cases.end(),
                         [&](const CaseResult& c) { return c.status == status; });
    };
    if (all_are(CaseStatus::kSkippedOptions)) {
      if (skipped == ExitCode::kOk) skipped = row.result.exit_code;
    } else if (!all_are(CaseStatus::kInterrupted)) {
      if (row.result.exit_code != ExitCode::kOk) return row.result.exit_code;
      measured = true;
    }
  }
  return measured ? ExitCode::kOk : skipped;
}

ExitCode Sweep::run() {
  const bool merges = !config_.merge_files.empty();
  if (merges) {
    merge();
  } else {
    open_journal();
    refuse_what_does_not_fit();
    if (shard_.groups.empty()) print_note("--shard: there are fewer groups of cases than parts");
    for (const std::vector<std::size_t>& group : shard_.groups) {
      if (!enough()) measure(group);
    }
  }
  const SweepResult sweep = result_so_far();
  const ExitCode written = files_.write_final(sweep);
  ExitCode code = code_of(sweep);
  const auto missing = std::count(rows_.begin(), rows_.end(), std::nullopt);
  if (merges && missing > 0) {
    print_error({fmt::format("--merge: expected all {} cases in the journals, found {}",
                             cases_.size(), std::ssize(rows_) - missing)});
    if (code == ExitCode::kOk) code = ExitCode::kBadInput;
  }
  return code != ExitCode::kOk ? code : written;
}

}  // namespace

ExitCode sweep_command(const CommandLine& line, const std::vector<std::string>& argv) {
  Launcher::refuse("a sweep");
  if (line.config.list_cases) {
    print_out(list_of(line));
    return ExitCode::kOk;
  }
  return Sweep(line, argv).run();
}

}  // namespace triforce
