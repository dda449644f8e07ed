#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "app/commands.h"
#include "app/diagnose.h"
#include "app/last_resort.h"
#include "app/output.h"
#include "app/output_file.h"
#include "app/plan_report.h"
#include "app/prepare.h"
#include "app/progress.h"
#include "app/ranks.h"
#include "app/signals.h"
#include "comm/rank_processes.h"
#include "host/gpu_monitor.h"
#include "host/load_monitor.h"
#include "host/machine.h"
#include "host/session.h"
#include "measure/measure.h"
#include "options/identity.h"
#include "options/models.h"

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

class Observer final : public MeasureObserver {
 public:
  Observer(const RunConfig& config, const Tokenizer* tokenizer, Progress& progress,
           ResultFiles& files)
      : verbose_(config.verbose),
        progress_(progress),
        stream_(tokenizer, wants_colour(2)),
        files_(files) {}

  void on_prefill(int prompt, int prompts, Pass pass, std::int64_t done,
                  std::int64_t total) override {
    stream_.end();
    std::string what = fmt::format("prefill {}", to_string(pass));
    if (prompts > 1) what += fmt::format(" {}/{}", prompt + 1, prompts);
    progress_.update(what, done, total, "tokens");
  }
  void on_generation(Method method, int prompt, int /*repetition*/, bool /*warmup*/,
                     std::int64_t index, std::int64_t total) override {
    stream_.end();
    progress_.update("decode", index, total, "generations", to_string(method));
    method_ = method;
    prompt_ = prompt;
    titled_ = false;
  }
  void on_tokens(Method method, std::span<const Token> tokens,
                 std::span<const std::uint8_t> origins) override {
    if (!verbose_) return;
    if (!titled_) {
      progress_.finish();
      stream_.begin(fmt::format("{}, prompt {}", to_string(method), prompt_),
                    spec_of(method).levels());
      titled_ = true;
    }
    stream_.add(tokens, origins);
  }
  void on_repetition(const std::function<RunResult()>& interim) override {
    stream_.end();
    files_.write_interim(interim);
  }

 private:
  bool verbose_;
  Progress& progress_;
  TokenStream stream_;
  ResultFiles& files_;
  Method method_ = kBaselineMethod;
  int prompt_ = 0;
  bool titled_ = false;
};

// Thrown when --timeout has passed before the measurement began.
struct TimedOut {};

class Run {
 public:
  Run(const RunConfig& config, const std::vector<std::string>& argv, RankLinks& links,
      const RankProcesses& ranks)
      : config_(config),
        links_(links),
        local_(ranks.local()),
        progress_(config.progress),
        files_(config_) {
    input_.config = config;
    input_.context = make_context(argv);
    input_.context.machines = ranks.machines();
    input_.data.kind = "not read";
  }
  ExitCode operator()();

 private:
  void open();
  std::int64_t memory_for_prompts() const;
  void read_data();
  void load();
  ModelInfo target_info(ModelInfo info) const {
    if (tokenizer_) info.tokenizer_sha256 = tokenizer_->sha256();
    return info;
  }
  void blame_weights() const;
  double seconds_spent() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }
  void check_time() const;
  LoadProgress load_progress(const char* what);
  void measure_bandwidths();
  void settle_homes();
  RunResult measure();
  RunResult not_run(CaseStatus status, const std::string& reason, ExitCode code) {
    progress_.finish();
    print_error(reason);
    reported_ = true;
    return unrun_result(input_, status, reason, code);
  }

  const RunConfig& config_;
  RankLinks& links_;
  LocalRank local_;
  Clock::time_point begin_ = Clock::now();
  Progress progress_;
  ResultFiles files_;
  Session session_;
  std::optional<RankMembers> rank_;
  ModelPair models_;
  std::optional<Tokenizer> tokenizer_;
  ModelWeights target_, draft_;
  PlanInput plan_;
  MeasureInput input_;
  bool reported_ = false;  // why nothing was measured has been said
};

void Run::open() {
  expect_same_options(links_, config_);
  Prepared prepared = prepare(config_, files_.claimed(), local_);
  expect_same_models(links_, prepared.session, prepared.models);
  rank_.emplace(prepared.session, links_);
  plan_ = agree_on_plan(links_, config_, prepared.session, prepared.models, *rank_);
  input_.plan = plan_memory(plan_);
  open_weights(config_, prepared.models);
  tokenizer_ = open_tokenizer(prepared);
  session_ = std::move(prepared.session);
  models_ = std::move(prepared.models);
  input_.params = echo_params(resolved(config_, session_));

  input_.backend = session_.backend.get();
  input_.target_info = target_info(model_info(models_.target.config, session_.dtype));
  if (models_.draft) input_.draft_info = model_info(models_.draft->config, session_.dtype);
  input_.context.backend = session_.backend->description();
  input_.context.isa = to_string(session_.isa);
  input_.context.threads = session_.threads;
  input_.context.ranks = config_.tp;
  if (config_.tp > 1) input_.context.communication = rank_->communicator->description();
  if (const std::optional<CudaFacts>& gpu = session_.gpu) {
    input_.context.gpu_name = gpu->name;
    input_.context.sm = gpu->architecture;
    input_.context.driver = gpu->driver;
    input_.context.cuda = gpu->runtime;
  }
}

// What the plan leaves of the host's memory, or of --memory-limit where that is the host's; small
// runs need not fit twice.
std::int64_t Run::memory_for_prompts() const {
  constexpr std::int64_t kAlways = std::int64_t{64} << 20;
  const bool on_host = !session_.gpu;
  std::int64_t limit = on_host ? config_.memory_limit_bytes : 0;
  if (limit == 0) {
    const std::optional<MemoryState> state = memory_state();
    limit = state ? state->available_bytes : std::numeric_limits<std::int64_t>::max();
  }
  return std::max(kAlways, limit - (on_host ? input_.plan.total_bytes() : input_.plan.far_bytes()));
}

void Run::read_data() {
  if (tokenizer_) {
    input_.decode_text = [this](std::span<const Token> ids) { return tokenizer_->decode(ids); };
  }
  Dataset data = load_prompts(config_, models_.target, tokenizer_, memory_for_prompts(),
                              [this] { check_time(); });
  for (Prompt& prompt : data.prompts) input_.prompts.push_back(std::move(prompt.tokens));
  input_.data = std::move(data.info);
}

// Between steps of what comes before the measurement.
void Run::check_time() const {
  throw_if_signalled();
  if (config_.timeout_s <= 0) return;
  if (seconds_spent() > config_.timeout_s) throw TimedOut();
}

LoadProgress Run::load_progress(const char* what) {
  return [this, what](std::int64_t done, std::int64_t total) {
    check_time();
    progress_.update(what, done, total, "MB");
  };
}

void Run::load() {
  links_.meet();  // all have what they compute with
  Backend& backend = *session_.backend;
  target_ = load_target(backend, config_, models_, session_.dtype, links_.shard(),
                        load_progress("load target"));
  input_.target = &target_;
  input_.target_info = target_info(model_info(target_));
  if (models_.draft) {
    draft_ = load_drafter(backend, config_, models_, session_.dtype, load_progress("load drafter"));
    input_.draft = &draft_;
    input_.draft_info = model_info(draft_);
  }
  links_.meet();  // all have loaded
  if (config_.tp == 1) return;
  input_.make_engine = [this](const RunShape& run) {
    const BuildEngine build = [this](std::int64_t max_prompt, std::int64_t max_generated) {
      return make_engine(rank_->backend, target_, input_.draft, config_.speculation,
                         {max_prompt, max_generated, config_.methods, input_.homes},
                         rank_->communicator.get());
    };
    return lead(links_, build, run.max_prompt, run.max_generated);
  };
}

// Before the memory is taken: a run that fills it leaves none to measure with.
void Run::measure_bandwidths() {
  try {
    const Backend::Bandwidths measured = session_.backend->measure_bandwidths();
    input_.context.measured_read_gbs = measured.read_gbs;
    input_.context.measured_copy_gbs = measured.copy_gbs;
    input_.context.measured_h2d_gbs = measured.upload_gbs;
  } catch (const Error& e) {
    if (e.code() != ExitCode::kResources) throw;  // too little memory to measure: null
  }
}

// What the memory was checked for until then is the most that it can be.
void Run::settle_homes() {
  input_.context.hybrid_split = agree_on_split(links_, config_, *session_.backend, plan_);
  input_.homes = plan_.run.homes;
  input_.plan = plan_memory(plan_);
}

RunResult Run::measure() {
  try {
    check_memory(config_, input_.plan, session_.backend.get());
  } catch (const Error& e) {
    write_quietly(2, memory_table(input_.plan, config_.prefill));
    return not_run(CaseStatus::kSkippedMemory, e.what(), e.code());
  }
  try {
    settle_homes();
    read_data();
    check_time();
    let_allocations_throw();
    measure_bandwidths();
    session_.backend->reserve_memory(input_.plan.bytes_to_take());
    load();
  } catch (const TimedOut&) {
    return not_run(
        CaseStatus::kTimeout,
        fmt::format("--timeout: {} s had passed before the models were loaded", config_.timeout_s),
        ExitCode::kInconclusive);
  } catch (const std::bad_alloc&) {
    return not_run(CaseStatus::kOom, "out of memory while loading the models",
                   ExitCode::kResources);
  } catch (const Error& e) {
    if (e.code() == ExitCode::kCommunication) {
      return not_run(CaseStatus::kError, e.what(), e.code());
    }
    if (e.code() != ExitCode::kResources) throw;
    return not_run(CaseStatus::kOom, e.what(), e.code());
  }
  progress_.finish();
  if (config_.timeout_s > 0) {
    input_.config.timeout_s = std::max(1e-3, config_.timeout_s - seconds_spent());
  }
  std::optional<GpuMonitor> monitor;
  if (session_.gpu) input_.monitor = &monitor.emplace(session_.gpu->pci_bus_id);
  // Other ranks of this machine would count as other processes.
  std::optional<LoadMonitor> load;
  if (config_.tp == 1) input_.load = &load.emplace();
  Observer observer(config_, tokenizer_ ? &*tokenizer_ : nullptr, progress_, files_);
  input_.observer = &observer;
  input_.stop = [] { return received_signal().has_value(); };
  return run_measurement(input_);
}

// Names the tensor whose values are not finite, if there is one.
void Run::blame_weights() const {
  for (const ModelChoice* model : {&models_.target, models_.draft ? &*models_.draft : nullptr}) {
    if (model == nullptr) continue;
    if (const std::string found = find_non_finite_tensor(*model); !found.empty()) print_note(found);
  }
}

// One line for each way in which cases ended early or wrong.
void report_cases(const RunResult& result) {
  std::vector<std::pair<std::string, std::string>> lines;  // reason, names
  for (const CaseResult& c : result.cases) {
    std::string reason = c.status_reason.value_or("");
    if (reason.empty() && c.lossless.equal_to_baseline == false) {
      reason = "not lossless: tokens differ from the baseline's";
    }
    if (reason.empty()) continue;
    const auto known = std::find_if(lines.begin(), lines.end(),
                                    [&](const auto& line) { return line.first == reason; });
    if (known == lines.end()) {
      lines.emplace_back(std::move(reason), c.name);
    } else {
      known->second += ", " + c.name;
    }
  }
  for (const auto& [reason, names] : lines) print_error({names, ": ", reason});
}

ExitCode Run::operator()() {
  open();
  const RunResult result = measure();
  progress_.finish();
  if (!reported_) report_cases(result);
  if (result.exit_code == ExitCode::kNumeric) blame_weights();
  const ExitCode written = files_.write_final(result);
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
    code = Run(config, argv, links, ranks)();
  } catch (...) {
    code = report_current_exception();
    ranks.abandon(code);
    return code;
  }
  dismiss_others(links, ranks, code);
  return code;
}

}  // namespace triforce
