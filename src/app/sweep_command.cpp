// Cases by processes of their own: this one parses, keeps the journal, the time and the files, and
// never computes. Cases that one load of the models serves are one process's.
#include <algorithm>
#include <map>
#include <optional>

#include "app/commands.h"
#include "app/last_resort.h"
#include "app/ranks.h"
#include "app/result_files.h"
#include "app/run_session.h"
#include "app/signals.h"
#include "comm/launcher.h"
#include "core/fields.h"
#include "core/sha256.h"
#include "forecast/published.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "report/printers.h"
#include "sweep/journal.h"
#include "sweep/workers.h"

namespace triforce {
namespace {

std::string file_sha256(const char* path) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
  return sha256_hex(read_file(path, kMaxBytes));
}

std::vector<Param> options_of(const SweepCase& c) {
  std::vector<Param> options;
  for (const auto& [name, value] : c.axes) {
    std::string key(name);
    std::replace(key.begin(), key.end(), '-', '_');
    ParamValue shown = value;
    if (c.config) shown = find_option(kSweep, name)->value.get(*c.config);  // 4096 for 4k
    options.emplace_back(std::move(key), std::move(shown));
  }
  return options;
}

// Over the options of all cases that decide what is measured.
std::string cases_sha256(const std::vector<SweepCase>& cases) {
  std::string text;
  for (const SweepCase& c : cases) {
    for (const auto& [name, value] : c.axes) text += fmt::format("{}={}\n", name, value);
    if (!c.config) continue;
    RunConfig config = *c.config;
    config.output_format = {};
    config.json_file.clear();
    config.jsonl_file.clear();
    config.csv_file.clear();
    config.journal_file.clear();
    config.progress = {};
    config.verbose = config.details = config.fail_fast = config.yes = false;
    for (const auto& [name, value] : echo_params(config)) {
      text += fmt::format("{}={}\n", name, to_text(value));
    }
    text += '\n';
  }
  return sha256_hex(text);
}

// Cases by their number from 0, those together that one session serves.
std::vector<std::vector<std::size_t>> groups_of(const std::vector<SweepCase>& cases) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<std::string, std::size_t> by_key;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].config) continue;
    const std::optional<std::string> key = session_key(*cases[i].config);
    const auto [it, is_new] =
        key ? by_key.emplace(*key, groups.size()) : std::pair(by_key.end(), true);
    if (is_new) groups.emplace_back();
    groups[it == by_key.end() ? groups.size() - 1 : it->second].push_back(i);
  }
  return groups;
}

bool was_cut_short(const RunResult& r) {
  return std::any_of(r.cases.begin(), r.cases.end(),
                     [](const CaseResult& c) { return c.status == CaseStatus::kInterrupted; });
}

// Whether a journalled row stands: what failed may succeed another time.
bool is_settled(const RunResult& r) {
  return std::all_of(r.cases.begin(), r.cases.end(), [](const CaseResult& c) {
    return c.status == CaseStatus::kOk || c.status == CaseStatus::kSkippedOptions;
  });
}

std::string name_of(const ChosenRecipe& r) {
  return r.size.empty() || r.name.ends_with(".toml") ? r.name
                                                     : fmt::format("{}-{}", r.size, r.name);
}

std::string axes_text(const std::vector<std::pair<std::string, std::string>>& axes) {
  std::string text;
  for (const auto& [name, value] : axes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

// What was published for the recipe's cases at the paper's size.
std::vector<PublishedPoint> published_of(const ChosenRecipe& recipe) {
  std::vector<PublishedPoint> points;
  for (const AxisPoint& point : recipe.paper_points) {
    const RunConfig config = make_config(kSweep, point.given);
    for (const Method method : config.methods) {
      for (const PublishedResult* r : find_published(config, method)) {
        if (recipe.published.empty() || !r->source.starts_with(recipe.published)) continue;
        points.push_back({to_string(method), axes_text(point.axes),
                          fmt::format("{}; {}", r->source, r->machine), r->ms_per_token, r->speedup,
                          r->alpha, r->recovery, r->copied});
      }
    }
  }
  return points;
}

class Sweep {
 public:
  Sweep(const CommandLine& line, const std::vector<std::string>& argv)
      : cases_(line.cases), config_(line.config), argv_(argv), files_(config_) {
    rows_.resize(cases_.size());
    for (const ChosenRecipe& r : line.recipes) {
      recipes_.push_back({name_of(r), r.title, r.source, r.about, r.cannot, published_of(r)});
    }
  }
  ExitCode run();

 private:
  std::string label(std::size_t i) const {
    return fmt::format("case {} of {}", i + 1, cases_.size());
  }
  void open_journal();
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

  const std::vector<SweepCase>& cases_;
  const RunConfig& config_;
  const std::vector<std::string>& argv_;
  std::vector<SweepRecipe> recipes_;
  ResultFiles<SweepResult> files_;
  std::optional<Journal> journal_;
  std::vector<std::optional<SweepRow>> rows_;
  bool failed_ = false;
};

void Sweep::open_journal() {
  if (config_.journal_file.empty()) return;
  JournalHeader header;
  header.program_sha256 = file_sha256("/proc/self/exe");
  header.cases_sha256 = cases_sha256(cases_);
  header.cases = static_cast<std::int64_t>(cases_.size());
  header.cpu_model = cpu_model_name();
  journal_.emplace(config_.journal_file, header);
  for (const SweepRow& row : journal_->rows()) {
    auto& known = rows_[static_cast<std::size_t>(row.number - 1)];
    known.reset();
    if (is_settled(row.result)) known = row;
  }
  const auto done = std::count_if(rows_.begin(), rows_.end(), [](const auto& r) { return r; });
  if (done > 0) {
    print_note(fmt::format("--resume: {} of {} cases were measured before", done, cases_.size()));
  }
}

RunResult Sweep::unrun(std::size_t i, CaseStatus status, const std::string& reason,
                       ExitCode code) const {
  MeasureInput input;
  input.config = cases_[i].config.value_or(config_);
  input.context = make_context(argv_);
  input.data.kind = "not read";
  if (cases_[i].config) input.params = echo_params(input.config);
  return unrun_result(input, status, reason, code);
}

void Sweep::refuse_what_does_not_fit() {
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (cases_[i].config || rows_[i]) continue;
    add(i, unrun(i, CaseStatus::kSkippedOptions, cases_[i].refusal, ExitCode::kUsage));
  }
}

SweepRow Sweep::row_of(std::size_t i, RunResult result) const {
  std::optional<std::string> recipe;
  if (!recipes_.empty()) recipe = recipes_[cases_[i].recipe].name;
  return {static_cast<std::int64_t>(i + 1), std::move(recipe), options_of(cases_[i]),
          std::move(result)};
}

void Sweep::add(std::size_t i, RunResult result) {
  SweepRow row = row_of(i, std::move(result));
  report_cases(row.result, label(i) + ": ");
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
  SweepResult sweep;
  sweep.recipes = recipes_;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (rows_[i]) {
      sweep.rows.push_back(*rows_[i]);
      continue;
    }
    sweep.rows.push_back(row_of(
        i, unrun(i, CaseStatus::kInterrupted, "it was not its turn yet", ExitCode::kInterrupted)));
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
  open_journal();
  refuse_what_does_not_fit();
  for (const std::vector<std::size_t>& group : groups_of(cases_)) {
    if (!enough()) measure(group);
  }
  const SweepResult sweep = result_so_far();
  const ExitCode written = files_.write_final(sweep);
  const ExitCode code = code_of(sweep);
  return code != ExitCode::kOk ? code : written;
}

std::string list_of(const CommandLine& line) {
  const std::vector<SweepCase>& cases = line.cases;
  const auto groups = groups_of(cases);
  std::vector<std::size_t> process_of(cases.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t i : groups[g]) process_of[i] = g + 1;
  }
  TextTable t;
  t.head = {"case", "process"};
  if (!line.recipes.empty()) t.head.emplace_back("recipe");
  t.head.emplace_back("methods");
  t.head.emplace_back("options");
  t.left_columns = t.head.size();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const SweepCase& c = cases[i];
    std::vector<std::string> row = {fmt::format("{}", i + 1)};
    row.push_back(c.config ? fmt::format("{}", process_of[i]) : "-");
    if (!line.recipes.empty()) row.push_back(name_of(line.recipes[c.recipe]));
    std::vector<std::string_view> methods;
    for (const Method m : c.config.value_or(RunConfig{}).methods)
      methods.emplace_back(to_string(m));
    row.push_back(c.config ? fmt::format("{}", fmt::join(methods, ",")) : "-");
    row.push_back(axes_text(c.axes) + (c.config ? "" : "  refused: " + c.refusal));
    t.rows.push_back(std::move(row));
  }
  return render_text(t, terminal_columns(1).value_or(100)) +
         fmt::format(
             "{} case{} by {} process{}, one after the other; each loads the models and "
             "processes every prompt once.\n",
             cases.size(), cases.size() == 1 ? "" : "s", groups.size(),
             groups.size() == 1 ? "" : "es");
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
