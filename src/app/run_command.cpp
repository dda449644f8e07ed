#include <algorithm>
#include <chrono>
#include <new>

#include "app/commands.h"
#include "app/datasets.h"
#include "app/environment.h"
#include "app/gpu_monitor.h"
#include "app/last_resort.h"
#include "app/measure.h"
#include "app/models.h"
#include "app/output.h"
#include "app/plan_report.h"
#include "app/progress.h"
#include "app/session.h"
#include "app/signals.h"
#include "triforce/tokenizer.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;

// Writes results to the files that were asked for, as often as there is something new.
class ResultFiles {
 public:
  explicit ResultFiles(const RunConfig& config) : config_(config) {}

  // While the run goes on. A file that cannot be written is reported once, and tried again at the
  // end.
  void write_interim(const RunResult& result) {
    if (warned_ || config_.json_file.empty()) return;
    Sinks sinks;
    sinks.write(config_.json_file, to_json(result));
    warned_ = sinks.failed();
  }

  // All files, then stdout. True if all could be written.
  bool write_final(const RunResult& result) {
    Sinks sinks;
    if (!config_.json_file.empty()) sinks.write(config_.json_file, to_json(result));
    if (!config_.jsonl_file.empty()) sinks.write(config_.jsonl_file, to_jsonl(result));
    if (!config_.csv_file.empty()) sinks.write(config_.csv_file, to_csv(result));
    sinks.write("-", printed(result));
    return !sinks.failed();
  }

 private:
  std::string printed(const RunResult& result) const {
    switch (config_.output_format) {
      case OutputFormat::kTable:
        return to_table(result);
      case OutputFormat::kJson:
        return to_json(result);
      case OutputFormat::kJsonl:
        return to_jsonl(result);
      case OutputFormat::kCsv:
        return to_csv(result);
      case OutputFormat::kMarkdown:
        return to_markdown(result);
    }
    TF_CHECK(false, "output format");
  }
  const RunConfig& config_;
  bool warned_ = false;
};

class Observer final : public MeasureObserver {
 public:
  Observer(const RunConfig& config, const Tokenizer* tokenizer, Progress& progress,
           ResultFiles& files)
      : verbose_(config.verbose),
        progress_(progress),
        stream_(tokenizer, wants_colour(2)),
        files_(files) {}

  void on_stop_flag(std::atomic<bool>* flag) override { set_stop_flag(flag); }
  void on_prefill(int prompt, int prompts, std::int64_t done, std::int64_t total) override {
    stream_.end();
    progress_.update(prompts > 1 ? fmt::format("prefill {}/{}", prompt + 1, prompts) : "prefill",
                     done, total, "tokens");
  }
  void on_generation(Method method, int prompt, int /*repetition*/, bool /*warmup*/,
                     std::int64_t index, std::int64_t total) override {
    stream_.end();
    progress_.update("decode", index, total, "generations");
    method_ = method;
    prompt_ = prompt;
    titled_ = false;
  }
  void on_tokens(Method method, std::span<const Token> tokens,
                 std::span<const std::uint8_t> origins) override {
    if (!verbose_) return;
    if (!titled_) {
      progress_.finish();
      const int levels = method == Method::kAutoregressive ? 0
                         : method == Method::kTriForce     ? 2
                                                           : 1;
      stream_.begin(fmt::format("{}, prompt {}", to_string(method), prompt_), levels);
      titled_ = true;
    }
    stream_.add(tokens, origins);
  }
  void on_result(const RunResult& result) override {
    stream_.end();
    files_.write_interim(result);
  }

 private:
  bool verbose_;
  Progress& progress_;
  TokenStream stream_;
  ResultFiles& files_;
  Method method_ = Method::kAutoregressive;
  int prompt_ = 0;
  bool titled_ = false;
};

// Thrown by load progress when --timeout has passed before the measurement began.
struct LoadTimeout {};

class Run {
 public:
  Run(const RunConfig& config, const std::vector<std::string>& argv)
      : config_(config), progress_(config.progress), files_(config_) {
    input_.config = config;
    input_.context = make_context(argv);
    input_.params = echo_params(config);
  }
  ExitCode operator()();

 private:
  void open();
  void read_data();
  void load();
  ModelInfo target_info(ModelInfo info) const {
    if (tokenizer_) info.tokenizer_sha256 = tokenizer_->sha256();
    return info;
  }
  void check_positions() const;
  LoadProgress load_progress(const char* what);
  void measure_bandwidths();
  RunResult measure();
  RunResult not_run(CaseStatus status, const std::string& reason, ExitCode code) {
    progress_.finish();
    print_error(reason);
    return unrun_result(input_, status, reason, code, plan_);
  }

  const RunConfig& config_;
  Clock::time_point begin_ = Clock::now();
  Progress progress_;
  ResultFiles files_;
  Session session_;
  ModelPair models_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<MemoryPlan> plan_;
  ModelWeights target_, draft_;
  MeasureInput input_;
};

void Run::open() {
  session_ = open_session(config_);
  models_ = choose_models(config_, Use::kLoad, needs_of(config_.methods).draft);
  check_positions();
  plan_ = plan_memory(plan_input(config_, models_, session_.dtype, session_.backend.get()));
  const std::filesystem::path file = tokenizer_file(models_.target);
  if (!file.empty()) tokenizer_ = Tokenizer::open(file, models_.target.config.vocab);

  input_.backend = session_.backend.get();
  input_.target_info = target_info(model_info(models_.target.config, session_.dtype));
  if (models_.draft) input_.draft_info = model_info(models_.draft->config, session_.dtype);
  input_.context.backend = session_.backend->description();
  input_.context.isa = cpu::to_string(session_.isa);
  input_.context.threads = session_.threads;
  if (const std::optional<CudaFacts>& card = session_.card) {
    input_.context.gpu_name = card->name;
    input_.context.sm = card->architecture;
    input_.context.driver = card->driver;
    input_.context.cuda = card->runtime;
  }
}

void Run::check_positions() const {
  const ModelConfig& target = models_.target.config;
  if (config_.prefill + config_.gen_len <= target.max_position) return;
  throw_usage(
      "--prefill and --gen-len: expected together at most the target's {} positions, found {}",
      target.max_position, config_.prefill + config_.gen_len);
}

void Run::read_data() {
  const ModelConfig& target = models_.target.config;
  DatasetRequest request{config_.dataset,
                         config_.prefill,
                         config_.prompts,
                         config_.seed,
                         target.bos,
                         target.vocab,
                         {}};
  if (is_published_dataset(config_.dataset)) request.downloads = find_data_folder().downloads();
  Encode encode;
  if (tokenizer_) {
    encode = [this](std::string_view text) {
      throw_if_signalled();
      return tokenizer_->encode(text, false);
    };
    input_.decode_text = [this](std::span<const Token> ids) { return tokenizer_->decode(ids); };
  }
  Dataset data = load_dataset(request, encode);
  for (Prompt& prompt : data.prompts) input_.prompts.push_back(std::move(prompt.tokens));
  const bool bytes_as_ids = data.info.kind == "synthetic" && !tokenizer_;
  if (bytes_as_ids && !models_.target.random) print_note(no_tokenizer_note(models_.target));
  input_.data = {data.info.kind, data.info.sha256, data.info.n_prompts, data.info.n_skipped,
                 bytes_as_ids};
}

LoadProgress Run::load_progress(const char* what) {
  return [this, what](std::int64_t done, std::int64_t total) {
    throw_if_signalled();
    if (config_.timeout_s > 0 &&
        std::chrono::duration<double>(Clock::now() - begin_).count() > config_.timeout_s) {
      throw LoadTimeout();
    }
    progress_.update(what, done, total, "MB");
  };
}

void Run::load() {
  Engine::Shape shape{config_.prefill, config_.gen_len, config_.methods};
  const SpeculationOptions& s = config_.speculation;
  target_ = load_model(*session_.backend, models_.target, session_.dtype,
                       Engine::target_positions(s, shape), config_.seed, MemTag::kTargetWeights,
                       load_progress("load target"));
  input_.target = &target_;
  input_.target_info = target_info(model_info(target_));
  if (!models_.draft) return;
  // Another seed than the target's, or a drafter of the same shape would be the target.
  draft_ = load_model(*session_.backend, *models_.draft, session_.dtype, Engine::draft_positions(s),
                      config_.seed + 1, MemTag::kDraftWeights, load_progress("load drafter"));
  input_.draft = &draft_;
  input_.draft_info = model_info(draft_);
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

RunResult Run::measure() {
  let_allocations_throw();
  try {
    check_memory(config_, *plan_, session_.backend.get());
    measure_bandwidths();
    session_.backend->reserve_memory(plan_->total_bytes());
  } catch (const Error& e) {
    print_stderr(memory_table(*plan_, config_.prefill));
    return not_run(CaseStatus::kSkippedMemory, e.what(), e.code());
  }
  try {
    load();
  } catch (const LoadTimeout&) {
    return not_run(
        CaseStatus::kTimeout,
        fmt::format("--timeout: {} s had passed before the models were loaded", config_.timeout_s),
        ExitCode::kInconclusive);
  } catch (const std::bad_alloc&) {
    return not_run(CaseStatus::kOom, "out of memory while loading the models",
                   ExitCode::kResources);
  } catch (const Error& e) {
    if (e.code() != ExitCode::kResources) throw;
    return not_run(CaseStatus::kOom, e.what(), e.code());
  }
  progress_.finish();
  if (config_.timeout_s > 0) {
    const double spent = std::chrono::duration<double>(Clock::now() - begin_).count();
    input_.config.timeout_s = std::max(1e-3, config_.timeout_s - spent);
  }
  std::optional<GpuMonitor> monitor;
  if (session_.card) input_.monitor = &monitor.emplace(session_.card->pci_bus_id);
  Observer observer(config_, tokenizer_ ? &*tokenizer_ : nullptr, progress_, files_);
  input_.observer = &observer;
  return run_measurement(input_);
}

ExitCode Run::operator()() {
  open();
  read_data();
  throw_if_signalled();
  const RunResult result = measure();
  progress_.finish();
  const bool written = files_.write_final(result);
  const std::optional<ExitCode> signal = received_signal();
  if (signal && result.exit_code == ExitCode::kInterrupted) return *signal;
  if (result.exit_code != ExitCode::kOk) return result.exit_code;
  return written ? ExitCode::kOk : ExitCode::kResources;
}

}  // namespace

ExitCode run_command(const RunConfig& config, const std::vector<std::string>& argv) {
  return Run(config, argv)();
}

}  // namespace triforce
