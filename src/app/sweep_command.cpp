// Cases by processes of their own: this one parses, keeps the journal, the time and the files, and
// never computes. Cases that one load of the models serves are one process's.
// Tests: tests/cli/sweep_test.py, tests/cli/sweep_files_test.py, tests/faults/killed_sweep_test.py
#include <algorithm>
#include <map>
#include <optional>

#include "app/commands.h"
#include "app/input_files.h"
#include "app/last_resort.h"
#include "app/progress.h"
#include "app/ranks.h"
#include "app/result_files.h"
#include "app/run_session.h"
#include "app/signals.h"
#include "app/sweep_cases.h"
#include "app/sweep_store.h"
#include "comm/launcher.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "report/printers.h"
#include "sweep/directions.h"
#include "sweep/ladders.h"
#include "sweep/workers.h"

namespace triforce {
namespace {

bool was_cut_short(const RunResult& r) {
  return std::ranges::any_of(
      r.cases, [](const CaseResult& c) { return c.status == CaseStatus::kInterrupted; });
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
        slice_(slice_of(cases_, config_.slice)),
        files_(config_, input_files(line)),
        progress_(config_.progress),
        store_(line) {}
  ExitCode run();

 private:
  std::string label(std::size_t i) const {
    return fmt::format("case {} of {}", i + 1, cases_.size());
  }
  void refuse_what_does_not_fit();
  // Cases that need a download, so that none of them starts a process. Throws the error where
  // nothing else is to be measured, and nothing was.
  void refuse_what_is_missing();
  Progress::Whole whole() const;
  // Each way in which a case ended early or wrong is one line, whoever else ends so.
  void report(std::size_t i, const RunResult& result);
  void report_rest(const SweepResult& sweep) const;
  void measure(std::vector<std::size_t> group);
  ExitCode work(const std::vector<std::size_t>& cases, WorkerReport& report);
  void take(std::size_t i, const std::string& told);
  SweepRow row_of(std::size_t i, RunResult result) const;
  // A row of this case: into the table, and unless it was cut short into the journal.
  void add(std::size_t i, RunResult result);
  RunResult unrun(std::size_t i, CaseStatus status, const std::string& reason, ExitCode code) const;
  bool enough() const { return received_signal().has_value() || (config_.fail_fast && failed_); }
  const RunConfig& config_of(std::size_t i) const { return *cases_[i].config; }
  SweepResult result_so_far() const;
  // Returns the rows of a result that --jsonl does not have yet: it grows by what is new.
  SweepResult appended(const SweepResult& sweep);
  ExitCode code_of(const SweepResult& sweep) const;

  const CommandLine& line_;
  const std::vector<SweepCase>& cases_;
  const RunConfig& config_;
  const std::vector<std::string>& argv_;
  ResultContext facts_;  // of this machine, for rows that were not measured
  std::vector<SweepRecipe> recipes_;
  SliceOfCases slice_;
  ResultFiles<SweepResult> files_;
  Progress progress_;
  SweepStore store_;
  std::int64_t done_before_ = 0;  // prompts of earlier processes
  Progress::Clock::time_point began_ = Progress::Clock::now();
  std::map<std::string, std::vector<std::int64_t>> failures_;  // cases by line
  bool failed_ = false;
};

RunResult Sweep::unrun(std::size_t i, CaseStatus status, const std::string& reason,
                       ExitCode code) const {
  const std::optional<RunConfig>& config = cases_[i].config;
  RunFacts facts;
  facts.config = config ? &*config : &config_;
  facts.context = facts_;
  if (config) facts.params = echo_params(*config);
  return unrun_result({.facts = std::move(facts)}, status, reason, code);
}

void Sweep::refuse_what_does_not_fit() {
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (cases_[i].config || store_.row(i) || !slice_.has[i]) continue;
    add(i, unrun(i, CaseStatus::kSkippedOptions, cases_[i].refusal, ExitCode::kUsage));
  }
}

void Sweep::refuse_what_is_missing() {
  std::map<std::string, std::optional<Error>> known;  // by what it depends on
  std::vector<std::pair<std::size_t, Error>> missing;
  bool others = false;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (!slice_.has[i] || !cases_[i].config) continue;
    const RunConfig& c = *cases_[i].config;
    const std::string key =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}", c.target, c.draft, c.random_weights, c.random_draft,
                    c.dataset, any_method(c.methods, &MethodSpec::has_drafter));
    auto it = known.find(key);
    if (it == known.end()) it = known.emplace(key, missing_download(c)).first;
    const bool lacks = !store_.row(i) && it->second;
    if (lacks) missing.emplace_back(i, *it->second);
    others = others || !lacks;
  }
  if (!others && !missing.empty()) throw Error(missing.front().second);
  for (const auto& [i, error] : missing) {
    add(i, unrun(i, CaseStatus::kError, error.what(), error.code()));
  }
}

Progress::Whole Sweep::whole() const {
  Progress::Whole whole{0, done_before_, 0, began_};
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (!slice_.has[i] || !cases_[i].config) continue;
    const std::int64_t prompts = cases_[i].config->prompts;
    whole.total += prompts;
    whole.done += store_.row(i) ? prompts : std::ssize(store_.records(i));
  }
  return whole;
}

void Sweep::report(std::size_t i, const RunResult& result) {
  if (was_cut_short(result)) return;  // once for all at the end
  for (const std::string& line : failures_of(result)) {
    std::vector<std::int64_t>& numbers = failures_[line];
    if (numbers.empty()) print_error({label(i), ": ", line});
    numbers.push_back(static_cast<std::int64_t>(i + 1));
  }
}

void Sweep::report_rest(const SweepResult& sweep) const {
  for (const auto& [line, numbers] : failures_) {
    if (numbers.size() < 2) continue;
    const std::vector<std::int64_t> rest(numbers.begin() + 1, numbers.end());
    print_error(fmt::format("case{} {} of {}: as case {}", rest.size() == 1 ? "" : "s",
                            number_list(rest), cases_.size(), numbers.front()));
  }
  if (!received_signal()) return;
  const auto left = std::ranges::count_if(
      sweep.rows, [](const SweepRow& row) { return was_cut_short(row.result); });
  if (left == 0) return;
  const std::string how = store_.has_journal() ? "the same command goes on at the next prompt"
                                               : "with --resume FILE the same command would go on";
  print_error(fmt::format("stopped by a signal: {} of {} cases have not ended; {}", left,
                          sweep.rows.size(), how));
}

SweepRow Sweep::row_of(std::size_t i, RunResult result) const {
  return {{static_cast<std::int64_t>(i + 1), recipe_of(line_, cases_[i])},
          options_of(cases_[i]),
          std::move(result)};
}

void Sweep::add(std::size_t i, RunResult result) {
  SweepRow row = row_of(i, std::move(result));
  report(i, row.result);
  const std::string figures = figures_of(row.result), axes = axes_text(cases_[i].axes);
  if (!figures.empty()) {
    progress_.say(
        fmt::format("{}{}: {}", label(i), axes.empty() ? "" : " (" + axes + ")", figures));
  }
  const bool cut_short = was_cut_short(row.result);
  failed_ = failed_ || !is_settled(row.result);
  store_.add(i, std::move(row), cut_short);
  if (!cut_short) files_.write_interim([this] { return result_so_far(); });
}

// A worker measures its cases in one session. It tells what each prompt gave, and the rows when all
// have ended.
ExitCode Sweep::work(const std::vector<std::size_t>& cases, WorkerReport& report) {
  forget_scratch_files();
  store_.forget_journal();
  const auto tell = [&](std::size_t run, JournalEntry entry) {
    entry.number = static_cast<std::int64_t>(cases[run] + 1);
    report.tell(cases[run], to_json_line(entry));
  };
  std::vector<RunConfig> configs;
  for (const std::size_t i : cases) configs.push_back(config_of(i));
  const auto lead = [&](RankLinks& links, const RankProcesses& ranks) {
    std::vector<RunRequest> requests;
    for (const std::size_t i : cases) {
      requests.push_back(
          {*cases_[i].config, label(i), slice_.shares_context[i], store_.records(i)});
    }
    RunEvents events;
    events.on_step = [&](std::size_t run) { report.step(cases[run]); };
    events.on_loaded = [&](std::size_t run, const CaseFacts& facts) {
      tell(run, {0, facts, {}, {}});
    };
    events.on_prompt = [&](std::size_t run, const PromptRecord& record) {
      tell(run, {0, {}, record, {}});
    };
    RunSession session(std::move(requests), argv_, links, ranks, std::move(events));
    session.set_whole(whole());
    const std::vector<RunResult> results = session.run();
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
  return with_ranks(configs, lead, [&] {
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

void Sweep::take(std::size_t i, const std::string& told) {
  JournalEntry entry = read_json_entry(told, label(i));
  if (entry.facts) store_.expect(i, *entry.facts);
  if (entry.prompt) store_.add(i, std::move(*entry.prompt));
}

void Sweep::measure(std::vector<std::size_t> group) {
  std::erase_if(group, [this](std::size_t i) { return store_.row(i).has_value(); });
  if (group.empty()) return;
  // A worker looks at the time itself, between passes; beyond that it hangs.
  constexpr double kGrace_s = 15;
  const double timeout_s = config_of(group.front()).timeout_s;
  const auto silence = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_s > 0 ? timeout_s + kGrace_s : 0));
  WorkerHooks hooks;
  hooks.measure = [this](const auto& cases, WorkerReport& report) { return work(cases, report); };
  hooks.on_told = [this](std::size_t i, const std::string& text) { take(i, text); };
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
    if (store_.row(i)) {
      sweep.rows.push_back(*store_.row(i));
    } else if (slice_.has[i]) {
      sweep.rows.push_back(
          row_of(i, unrun(i, CaseStatus::kInterrupted, why, ExitCode::kInterrupted)));
    }
  }
  for (SweepRecipe& recipe : sweep.recipes) {
    for (SweepDirection& d : recipe.directions) judge_direction(d, sweep.rows);
  }
  if (auto ladders = ladders_of(sweep.rows); !ladders.empty()) sweep.ladders = std::move(ladders);
  return sweep;
}

// If there is a journal, a case that is cut short goes on another time. A case of an earlier
// process may have been appended by it, or not, if it was killed.
SweepResult Sweep::appended(const SweepResult& sweep) {
  SweepResult part;
  if (!store_.has_journal()) return sweep;
  const KnownLines known(config_.jsonl_file);
  for (const SweepRow& row : sweep.rows) {
    const bool old = store_.is_old(static_cast<std::size_t>(row.number - 1));
    if (was_cut_short(row.result) || (old && known.has(to_jsonl(result_of(row))))) continue;
    part.rows.push_back(row);
  }
  return part;
}

// The first failure's; that of what was skipped only where nothing else was to be measured.
ExitCode Sweep::code_of(const SweepResult& sweep) const {
  const std::optional<ExitCode> signal = received_signal();
  ExitCode skipped = ExitCode::kOk;
  bool measured = false;
  for (const SweepRow& row : sweep.rows) {
    const auto& cases = row.result.cases;
    // A signal that came when all was measured cut nothing short.
    if (signal && was_cut_short(row.result)) return *signal;
    const auto all_are = [&](CaseStatus status) {
      return std::ranges::all_of(cases, [&](const CaseResult& c) { return c.status == status; });
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
    store_.merge();
  } else {
    store_.open_journal(slice_.has);
    done_before_ = whole().done;
    refuse_what_is_missing();
    refuse_what_does_not_fit();
    if (slice_.groups.empty()) print_note("--shard: there are fewer groups of cases than parts");
    for (const std::vector<std::size_t>& group : slice_.groups) {
      if (!enough()) measure(group);
    }
  }
  const SweepResult sweep = result_so_far();
  report_rest(sweep);
  const ExitCode kept = store_.finish();
  const ExitCode written = files_.write_final(sweep, appended(sweep));
  ExitCode code = code_of(sweep);
  std::size_t found = 0;
  for (std::size_t i = 0; i < cases_.size(); ++i) found += store_.row(i) ? 1U : 0U;
  if (merges && found < cases_.size()) {
    print_error({fmt::format("--merge: expected all {} cases in the journals, found {}",
                             cases_.size(), found)});
    if (code == ExitCode::kOk) code = ExitCode::kBadInput;
  }
  for (const ExitCode other : {kept, written}) {
    if (code == ExitCode::kOk) code = other;
  }
  return code;
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
