// Measures methods against each other on the same prompts by the rules of measurement: one prefill
// per prompt shared by all, warm-up kept and flagged, methods interleaved A B B A, the same stop
// rule and count of tokens, intervals over the prompts, losslessness checked.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/gpu_monitor.h"
#include "host/load_monitor.h"
#include "measure/prompt_record.h"
#include "options/config.h"
#include "triforce/backend.h"
#include "triforce/decode.h"
#include "triforce/plan.h"
#include "triforce/report.h"
#include "triforce/weights.h"

namespace triforce {

// A warm-up on a later prompt: kernels and weights are warm by then, and so many tokens touch the
// caches of that prompt.
inline constexpr std::int64_t kLaterWarmupTokens = 32;

// What a measurement tells while it runs. Called on the measuring thread, never inside a timed
// repetition.
class MeasureObserver {
 public:
  virtual ~MeasureObserver() = default;
  // `done` of `total` tokens of the prompt have gone through such passes.
  virtual void on_prefill(int /*prompt*/, int /*prompts*/, Pass /*pass*/, std::int64_t /*done*/,
                          std::int64_t /*total*/) {}
  // Likewise of the pass that comes before the first prompt.
  virtual void on_first_pass(std::int64_t /*done*/, std::int64_t /*total*/) {}
  // `auto` is at step `done` of `total` on tuning prompt `prompt` of `prompts`.
  virtual void on_tuning(int /*prompt*/, int /*prompts*/, std::int64_t /*done*/,
                         std::int64_t /*total*/) {}
  // A generation is about to start, or is that of another measurement (run_measurements());
  // `index` of `total` of the whole measurement.
  virtual void on_generation(Method /*method*/, int /*prompt*/, int /*repetition*/, bool /*warmup*/,
                             std::int64_t /*index*/, std::int64_t /*total*/) {}
  // A timed generation took so long.
  virtual void on_timed(Method /*method*/, double /*ms_per_token*/) {}
  // Tokens of the first generation of each method on each prompt: as they become final in a warm-up
  // of the first prompt of a batch, else all at once after it.
  virtual void on_tokens(Method /*method*/, int /*prompt*/, std::span<const Token> /*tokens*/,
                         std::span<const std::uint8_t> /*origins*/) {}
  // After every repetition: `interim` builds what would be the result if the run ended now, which
  // takes its time.
  virtual void on_repetition(const std::function<RunResult()>& /*interim*/) {}
};

// What `backend` measures now; nullopt: too little memory is left to measure with.
std::optional<Backend::Bandwidths> bandwidths_now(Backend& backend);
// Likewise of matrix products with weights of `dtype`; nullopt also: it is not measured on this
// device.
std::optional<double> gemm_gflops_now(Backend& backend, DType dtype);

// What results say of a model.
ModelInfo model_info(const ModelConfig& config, DType dtype);
ModelInfo model_info(const ModelWeights& weights);

// Tokens as text, and per token the bytes of the text up to its end.
struct TokenText {
  std::string text;
  std::vector<std::int64_t> ends;
};

// What a run is, as its result says.
struct RunFacts {
  const RunConfig* config = nullptr;  // methods, speculation, gen_len, ...; it outlives them
  std::vector<Param> params;          // echo_params(config)
  ResultContext context;              // `end` and what the monitor saw are filled in
  std::optional<ModelInfo> target, draft;
  std::vector<std::string> target_notes, draft_notes;  // for validity.notes, as they stand there
};

// The workload is what the methods are given. What it points to outlives it.
struct Workload {
  std::span<const std::vector<Token>> prompts;  // at least one
  // What config.tuned() is tuned on, none of it in `prompts` and none longer than the longest of
  // these; empty: on the first of these, as the result says.
  std::span<const std::vector<Token>> tuning_prompts;
  std::span<const std::vector<Token>> answers;  // what each prompt asks to copy; empty: nothing
  // What an answer to each prompt must hold, as text; empty: nothing is known. decode_text is given
  // then.
  std::span<const std::vector<std::string>> expected = {};
  DataInfo data = {"not read", std::nullopt};
  // Ids to text, for the output section; may be empty.
  std::function<TokenText(std::span<const Token>)> decode_text;
};

using EngineMaker = std::function<std::unique_ptr<Engine>(const RunShape&)>;

// The machine is what computes: a backend, the models on it, and the memory that a run has there.
struct Machine {
  Backend* backend = nullptr;
  const ModelWeights* target = nullptr;
  const ModelWeights* draft = nullptr;  // null if no method needs it
  EngineMaker make_engine;              // of the engine to measure; empty: over the three above
  MemoryPlan plan;                      // plan_memory() of this run
  KvHomes homes;                        // those it was planned with
};

// The hooks watch a measurement and may end it. What they point to outlives it.
struct Hooks {
  double timeout_s = 0;                 // after which it ends; 0: never
  const GpuMonitor* monitor = nullptr;  // of the GPU that is measured; null: none
  LoadMonitor* load = nullptr;          // of this input alone: watches while it is at work
  // What all ranks have taken of energy so far, J; empty: it cannot be read.
  std::function<ByDomain()> joules = {};
  MeasureObserver* observer = nullptr;
  // Whether other cases use the context too, in this process or in another one of the same sweep.
  bool shares_context = false;
  int context = 0;  // which one it is over, of those of a process
  // Its first prompts, not measured again unless they are of other devices, threads or methods.
  std::span<const PromptRecord> records;
  // Gets the record of each prompt that has ended for all methods; may be empty.
  std::function<void(const PromptRecord&)> on_prompt;
  StopRequested stop;  // ends the measurement at the next pass or round; what is finished counts
};

struct MeasureInput {
  RunFacts facts = {};
  Workload workload = {};
  Machine machine = {};
  Hooks hooks = {};
};

// Runs every method of several configurations with the same models, batch and gen_len; all of them
// share the context, or there is only one. A method is one case. Errors of a method become the
// status of its case; result.exit_code says what the process should exit with:
// kOk, kNumeric (losslessness broken, non-finite logits), kResources (all cases skipped or out of
// memory), kInconclusive (timeout, noise over --max-noise), kInterrupted, or the code of the first
// error. Throws only for broken contracts. The peaks reported are those since the measurement
// before, what was loaded meanwhile included.
//
// Each make_engine of several gives methods over one context that all share: the target processes a
// prompt once, for the first of those that have it, and each of them in turn decodes from it, after
// a warm-up on each prompt, as its methods are built anew. A prompt that begins with another
// configuration's goes on from there (Context::prefill()), and the time of its prefill counts what
// came before. Baselines that sample alike are generated once, for the first that asks, too. Tokens
// and counters are those of each alone; peaks of memory are null. A configuration's time limit
// counts its own time. Ends early, with the others' results
// as they are then, if the device of one fails (ExitCode::kDevice). Where records stand for the
// first prompts the result is that of a measurement that was not interrupted; a prompt is warmed up
// once more before the first one that is measured, and no sample tells of that.
std::vector<RunResult> run_measurements(std::span<const MeasureInput> inputs);

// The result of a run that never started, one case a method: too little memory, a model that does
// not load. Backend, weights and prompts may be missing.
RunResult unrun_result(const MeasureInput& input, CaseStatus status, const std::string& reason,
                       ExitCode exit_code);

}  // namespace triforce
