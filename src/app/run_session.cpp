// Tests: tests/app/session_key_test.cpp, tests/cli/results_test.py, tests/cli/sweep_test.py
#include "app/run_session.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <new>

#include "app/diagnose.h"
#include "app/last_resort.h"
#include "app/output.h"
#include "app/plan_report.h"
#include "app/prepare.h"
#include "app/progress.h"
#include "app/run_observer.h"
#include "app/signals.h"
#include "host/gpu_monitor.h"
#include "host/load_monitor.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "measure/prompts.h"
#include "options/identity.h"
#include "options/tokenizers.h"
#include "ranks/ranked_start.h"
#include "report/printers.h"

namespace triforce {
namespace {

using Clock = std::chrono::steady_clock;

TokenText text_of(const Tokenizer& tokenizer, std::span<const Token> ids) {
  TokenText out;
  Tokenizer::Stream stream(tokenizer, true);
  for (const Token id : ids) {
    out.text += stream.push(id);
    out.ends.push_back(std::ssize(out.text));
  }
  out.text += stream.finish();
  if (!out.ends.empty()) out.ends.back() = std::ssize(out.text);
  return out;
}

// Thrown when --timeout has passed before the measurement began.
struct TimedOut {};

// Thrown where no run of the session can be measured.
struct NotRun {
  CaseStatus status;
  std::string reason;
  ExitCode code;
};

}  // namespace

std::string session_key(const RunConfig& c) {
  // Options, as params name them, of which runs of one session may have different values. A context
  // depends on none of them, but for the room that gammas and prompts need. Any other option, also
  // a new one, gives a run a session of its own.
  static const ParamNames kMayDiffer = {"method",
                                        "baseline",
                                        "no_baseline",
                                        "gamma",
                                        "inner_gamma",
                                        "budget",
                                        "chunk_size",
                                        "dense_layers",
                                        "draft_cache_budget",
                                        "draft_kv",
                                        "draft_cache",
                                        "rebuild",
                                        "selection",
                                        "key_rank",
                                        "outlier_chunks",
                                        "temp",
                                        "top_p",
                                        "top_k",
                                        "acceptance",
                                        "inner_rule",
                                        "ignore_eos",
                                        "synthetic_acceptance",
                                        "measure_recovery",
                                        "price",
                                        "repetitions",
                                        "warmup",
                                        "max_noise"};
  // Of ranks, and of KV heads that are far, the prompt's length alone.
  const bool shares_prompts_alone = c.tp > 1 || c.kv_offload || c.on_chip;
  const RoundRoom room = room_for(c.speculation, c.methods, c.batch);
  std::string key = fmt::format("room for {} tokens, {} rows\n", room.tokens, room.exact_rows);
  for (const auto& [name, value] : echo_params(c)) {
    const bool may_differ =
        name == "prefill" || name == "turn" || (!shares_prompts_alone && kMayDiffer.contains(name));
    if (!may_differ) key += fmt::format("{}={}\n", name, to_text(value));
  }
  return key;
}

struct RunSession::Impl {
  // Length, and turn after which a conversation is cut.
  using PromptKey = std::pair<std::int64_t, std::int64_t>;
  static PromptKey key_of(const RunConfig& c) { return {c.prefill, c.turn}; }
  // What runs of one key read.
  struct Prompts {
    std::vector<std::vector<Token>> prompts, tuning_prompts, answers;
    std::vector<std::vector<std::string>> expected;
    Workload workload;
  };
  // One request and what is known of its run.
  struct Run : PlannedRun {
    RunRequest request;
    MemoryPlan memory;                 // of `plan`
    const Prompts* prompts = nullptr;  // null: none were read
    std::unique_ptr<RunObserver> observer;
    std::optional<LoadMonitor> load;
    std::optional<RunResult> unrun;  // why it is not measured
  };

  Impl(std::vector<RunRequest> requests, const std::vector<std::string>& argv, RankLinks& l,
       const RankProcesses& ranks, RunEvents e)
      : links(l),
        local(ranks.local()),
        progress(requests.front().config.progress),
        events(std::move(e)),
        result_context(make_context(argv)) {
    result_context.machines = ranks.machines();
    for (RunRequest& request : requests) {
      Run& run = runs.emplace_back();
      run.request = std::move(request);
      run.PlannedRun::config = &run.request.config;
      run.PlannedRun::shares_context = run.request.shares_context;
      planned.push_back(&run);
    }
  }

  const RunConfig& config() const { return runs.front().request.config; }
  void for_each_to_measure(const std::function<void(Run&)>& visit) {
    for (Run& run : runs) {
      if (!run.unrun) visit(run);
    }
  }
  void open();
  void leave_out(Run& run);
  void describe_machine();
  RunFacts facts_of(const Run& run);
  Machine machine_of(Run& run);
  Hooks hooks_of(Run& run, std::size_t i, const GpuMonitor* monitor);
  void refuse(Run& run, const NotRun& why) {
    const Workload read = run.prompts != nullptr ? run.prompts->workload : Workload{};
    run.unrun =
        unrun_result({facts_of(run), read, machine_of(run), {}}, why.status, why.reason, why.code);
    run.is_left = false;
  }
  std::int64_t memory_for_prompts() const;
  void read_data();
  void read_prompts(const RunConfig& c, std::int64_t& bytes);
  double seconds_spent() const {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  void check_time() const;
  void measure_bounds();
  void measure_idle();
  bool none_is_left() const {
    return std::ranges::all_of(runs, [](const Run& r) { return r.unrun.has_value(); });
  }
  void check_memory_of_all();
  void prepare_to_measure();
  void guarded_preparation();
  std::vector<RunResult> measure();

  RankLinks& links;
  LocalRank local;
  Clock::time_point begin = Clock::now();
  Progress progress;
  RunEvents events;
  std::deque<Run> runs;
  std::vector<PlannedRun*> planned;  // of all
  ResultContext result_context;
  std::optional<RankedStart> start;
  bool loaded = false;
  std::optional<Tokenizer> tokenizer;
  std::map<PromptKey, Prompts> prompts;
};

void RunSession::Impl::open() {
  start.emplace(links, config());
  links.check_at_meetings([this] { check_time(); });
  std::vector<const RunConfig*> configs;
  for (const Run& run : runs) configs.push_back(&run.request.config);
  Prepared prepared = prepare(configs, local);
  start->open(std::move(prepared.session), std::move(prepared.models), config().powercap);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = runs[i];
    run.is_left = start->agree(!prepared.refusals[i]);
    if (!run.is_left) continue;
    run.plan = start->agree_on_plan(run.request.config);
    run.request.config.speculation.budget = run.plan.options.budget;
    leave_out(run);
    run.memory = plan_memory(run.plan);
  }
  const auto has_drafter = [](const Run& r) {
    return any_method(r.request.config.methods, &MethodSpec::has_drafter);
  };
  if (std::ranges::none_of(runs, has_drafter)) start->models().draft.reset();
  open_weights(config(), start->models());
  tokenizer = open_tokenizer(start->models().target, is_of_text(config().dataset));
  describe_machine();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!prepared.refusals[i]) continue;
    refuse(runs[i], {CaseStatus::kSkippedOptions, prepared.refusals[i]->what(), ExitCode::kUsage});
  }
}

// Of --method auto: the methods that have no room beside the others.
void RunSession::Impl::leave_out(Run& run) {
  std::vector<Method>& methods = run.request.config.methods;
  std::string names;
  for (const Method m : methods) {
    if (std::ranges::find(run.plan.run.methods, m) != run.plan.run.methods.end()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(m));
  }
  methods = run.plan.run.methods;
  if (names.empty()) return;
  if (!any_method(methods, &MethodSpec::speculates)) {
    throw_resources("MemoryLimit", "--method auto: expected memory for one of {}, found for none",
                    names);
  }
  print_note(fmt::format("--method auto: no room for {}, not tried", names));
}

void RunSession::Impl::describe_machine() {
  const Session& session = start->session();
  result_context.backend = session.backend->description();
  result_context.isa = to_string(session.isa);
  result_context.threads = session.threads;
  result_context.ranks = config().tp;
  if (config().tp > 1) result_context.communication = start->communicator().description();
  if (const std::optional<CudaFacts>& gpu = session.gpu) {
    result_context.gpu_name = gpu->name;
    result_context.sm = gpu->architecture;
    result_context.driver = gpu->driver;
    result_context.cuda = gpu->runtime;
  }
}

// As far as they are known now.
RunFacts RunSession::Impl::facts_of(const Run& run) {
  const ModelPair& models = start->models();
  RunFacts facts;
  facts.config = &run.request.config;
  facts.params = echo_params(resolved(run.request.config, start->session()));
  facts.context = result_context;
  facts.context.hybrid_split = run.split;
  const DType dtype = start->session().dtype;
  facts.target = loaded ? model_info(start->target()) : model_info(models.target.config, dtype);
  if (tokenizer) facts.target->tokenizer_sha256 = tokenizer->sha256();
  facts.target_notes = labelled_notes("target", models.target);
  if (!models.draft) return facts;
  facts.draft = loaded ? model_info(*start->draft()) : model_info(models.draft->config, dtype);
  facts.draft_notes = labelled_notes("drafter", *models.draft);
  return facts;
}

// Returns what the plans leave of the host's memory, or of --memory-limit where that is the host's.
// Small runs need not fit twice.
std::int64_t RunSession::Impl::memory_for_prompts() const {
  constexpr std::int64_t kAlways = std::int64_t{64} << 20;
  const bool on_host =
      !start->session().gpu || start->session().backend->traits().shares_host_memory;
  std::int64_t limit = on_host ? config().memory_limit_bytes : 0;
  if (limit == 0) {
    const std::optional<MemoryState> state = memory_state();
    limit = state ? state->available_bytes : std::numeric_limits<std::int64_t>::max();
  }
  std::int64_t taken = 0;
  for (const Run& run : runs) {
    const MemoryPlan& plan = run.memory;
    if (!run.unrun) taken = std::max(taken, on_host ? plan.total_bytes() : plan.far_bytes());
  }
  return std::max(kAlways, limit - taken);
}

// Those of key_of(c). `bytes`: of what was read before.
void RunSession::Impl::read_prompts(const RunConfig& c, std::int64_t& bytes) {
  const auto room = [&] { return std::max<std::int64_t>(0, memory_for_prompts() - bytes); };
  const auto count = [&](std::span<const std::vector<Token>> read) {
    for (const auto& tokens : read) bytes += std::ssize(tokens) * std::int64_t{sizeof(Token)};
  };
  PromptSource source{c, start->models().target, tokenizer, room(), [this] { check_time(); }};
  Dataset data = load_prompts(source, print_note);
  Prompts read;
  for (Prompt& prompt : data.prompts) {
    read.prompts.push_back(std::move(prompt.tokens));
    if (!prompt.answer.empty()) read.answers.push_back(std::move(prompt.answer));
    if (!prompt.expected.empty()) read.expected.push_back(std::move(prompt.expected));
  }
  count(read.prompts);
  const bool tuned = std::ranges::any_of(runs, [&](const Run& r) {
    return key_of(r.request.config) == key_of(c) && r.request.config.tuned();
  });
  source.max_bytes = room();
  if (tuned) read.tuning_prompts = load_tuning_prompts(source);
  // Conversations are as long as they are: there is room for those that are measured.
  const auto longest = std::ranges::max(read.prompts, {}, [](const auto& p) { return p.size(); });
  std::erase_if(read.tuning_prompts, [&](const auto& p) { return p.size() > longest.size(); });
  count(read.tuning_prompts);
  Prompts& kept = prompts[key_of(c)] = std::move(read);
  kept.workload = {kept.prompts, kept.tuning_prompts, kept.answers, kept.expected, data.info, {}};
  if (tokenizer) {
    kept.workload.decode_text = [this](std::span<const Token> ids) {
      return text_of(*tokenizer, ids);
    };
  }
}

// What a data set cannot give at one length is a reason for the runs of that length alone. Throws
// it where there is no other.
void RunSession::Impl::read_data() {
  std::map<PromptKey, std::optional<Error>> errors;
  std::int64_t bytes = 0;
  for_each_to_measure([&](Run& run) {
    const RunConfig& c = run.request.config;
    const auto [it, is_new] = errors.try_emplace(key_of(c));
    if (!is_new) return;
    try {
      read_prompts(c, bytes);
    } catch (const Error& e) {
      if (received_signal()) throw;
      it->second = e;
    }
  });
  if (prompts.empty() && !errors.empty()) throw Error(*errors.begin()->second);
  for_each_to_measure([&](Run& run) {
    if (const std::optional<Error>& e = errors.at(key_of(run.request.config))) {
      const bool usage = e->code() == ExitCode::kUsage;
      refuse(run, {usage ? CaseStatus::kSkippedOptions : CaseStatus::kError, e->what(), e->code()});
      return;
    }
    run.prompts = &prompts.at(key_of(run.request.config));
  });
}

// Between steps of what comes before the measurement.
void RunSession::Impl::check_time() const {
  throw_if_signalled();
  if (events.on_step) events.on_step(0);
  if (config().timeout_s <= 0) return;
  if (seconds_spent() > config().timeout_s) throw TimedOut();
}

Machine RunSession::Impl::machine_of(Run& run) {
  EngineMaker make;
  if (config().tp > 1) {
    make = [this, &run](const RunShape& shape) {
      const BuildEngine build = [this](int i, std::int64_t max_prompt, std::int64_t max_generated) {
        const PlannedRun& of = *planned[static_cast<std::size_t>(i)];
        return start->engine(of, of.plan.run.methods, max_prompt, max_generated);
      };
      const auto number = std::ranges::find(planned, &run) - planned.begin();
      return lead(links, build, static_cast<int>(number), shape.max_prompt, shape.max_generated);
    };
  } else {
    make = [this, &run](const RunShape& shape) {
      return start->engine(run, shape.methods, shape.max_prompt, shape.max_generated);
    };
  }
  Backend* const backend = start->session().backend.get();
  if (!loaded) return {backend, nullptr, nullptr, make, run.memory, run.plan.run.homes};
  return {backend, &start->target(), start->draft(), make, run.memory, run.plan.run.homes};
}

// Before the memory is taken: a run that fills it leaves none to measure with.
void RunSession::Impl::measure_bounds() {
  Backend& backend = *start->session().backend;
  const auto measured = bandwidths_now(backend);
  result_context.measured_gemm_gflops = gemm_gflops_now(backend, start->session().dtype);
  if (!measured) return;
  result_context.measured_read_gbs = measured->read_gbs;
  result_context.measured_copy_gbs = measured->copy_gbs;
  result_context.measured_h2d_gbs = measured->upload_gbs;
}

// Runs that need more than there is are not measured; throws if that are all.
void RunSession::Impl::check_memory_of_all() {
  std::optional<NotRun> last;
  for_each_to_measure([&](Run& run) {
    const RunConfig& c = run.request.config;
    try {
      check_memory(c, run.memory, start->session().backend.get());
    } catch (const Error& e) {
      write_quietly(2, memory_table(run.memory, c.batch * c.prefill));
      last = NotRun{CaseStatus::kSkippedMemory, e.what(), e.code()};
      refuse(run, *last);
    }
  });
  if (last && none_is_left()) throw NotRun(*last);
}

// Says how energy is read, and what all ranks take of it before they load their models.
void RunSession::Impl::measure_idle() {
  const ByDomain watts = start->measure_idle_watts();
  RunEnergy& energy = result_context.energy.emplace();
  energy.sensors = start->meters().sensors();
  for (std::size_t i = 0; i < energy.sensors.size(); ++i) {
    EnergySensor& s = energy.sensors[i];
    s.idle_watts = watts.*kDomains[i];
    if (!s.source || s.idle_watts.value_or(0) > 0) continue;
    s.unread =
        s.idle_watts ? *s.source + ": it did not move in a second" : "not read by another rank";
    s.source.reset();
    s.idle_watts.reset();
  }
}

void RunSession::Impl::prepare_to_measure() {
  check_memory_of_all();
  RankedStart::choose_contexts(planned, start->session().backend.get());
  // Memory was checked until here for the most that the plan can take.
  start->agree_on_contexts(planned);
  measure_idle();
  std::int64_t to_take = 0;
  for_each_to_measure([&](Run& run) {
    run.memory = plan_memory(run.plan);
    to_take = std::max(to_take, run.memory.bytes_to_take());
  });
  read_data();
  check_time();
  let_allocations_throw();
  measure_bounds();
  start->load(config(), to_take, [this](const char* what) {
    return [this, what](std::int64_t done, std::int64_t total) {
      check_time();
      links.alive();
      progress.update(what, done, total, "MB");
    };
  });
  loaded = true;
}

// Throws NotRun for what is the status of all runs.
void RunSession::Impl::guarded_preparation() {
  try {
    prepare_to_measure();
  } catch (const TimedOut&) {
    throw NotRun{
        CaseStatus::kTimeout,
        fmt::format("--timeout: {} s had passed before the models were loaded", config().timeout_s),
        ExitCode::kInconclusive};
  } catch (const std::bad_alloc&) {
    throw NotRun{CaseStatus::kOom, "out of memory while loading the models", ExitCode::kResources};
  } catch (const Error& e) {
    const bool lost = e.code() == ExitCode::kCommunication;
    if (!lost && e.code() != ExitCode::kResources) throw;
    throw NotRun{lost ? CaseStatus::kError : CaseStatus::kOom, e.what(), e.code()};
  }
}

Hooks RunSession::Impl::hooks_of(Run& run, std::size_t i, const GpuMonitor* monitor) {
  run.observer = std::make_unique<RunObserver>(i, run.request, tokenizer ? &*tokenizer : nullptr,
                                               progress, events);
  Hooks hooks;
  if (const double limit = run.request.config.timeout_s; limit > 0) {
    hooks.timeout_s = std::max(1e-3, limit - seconds_spent());
  }
  hooks.monitor = monitor;
  hooks.load = &run.load.emplace([this] { return start->meters().load(gather_readings); });
  const bool reads_energy = result_context.energy->idle_watts().total().has_value();
  if (reads_energy) {
    hooks.joules = [this] {
      ByDomain joules = start->meters().joules(gather_readings);
      const std::vector<EnergySensor>& sensors = result_context.energy->sensors;
      for (std::size_t d = 0; d < sensors.size(); ++d) {
        if (!sensors[d].source) (joules.*kDomains[d]).reset();
      }
      return joules;
    };
  }
  hooks.observer = run.observer.get();
  hooks.shares_context = run.request.shares_context;
  hooks.context = run.context_of;
  hooks.records = run.request.records;
  if (events.on_prompt) {
    hooks.on_prompt = [this, i](const PromptRecord& record) {
      events.on_prompt(i, record);
      progress.add_to_whole();
    };
  }
  hooks.stop = [] { return received_signal().has_value(); };
  return hooks;
}

std::vector<RunResult> RunSession::Impl::measure() {
  try {
    if (!none_is_left()) guarded_preparation();
  } catch (const NotRun& why) {
    for_each_to_measure([&](Run& run) { refuse(run, why); });
  }
  progress.finish();
  std::optional<GpuMonitor> monitor;
  if (const auto& gpu = start->session().gpu) monitor.emplace(gpu->pci_bus_id);
  std::vector<MeasureInput> inputs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = runs[i];
    if (run.unrun) continue;
    inputs.push_back({facts_of(run), run.prompts->workload, machine_of(run),
                      hooks_of(run, i, monitor ? &*monitor : nullptr)});
    const RunFacts& facts = inputs.back().facts;
    if (events.on_loaded) {
      events.on_loaded(i, triforce::facts_of(facts.context, facts.target, facts.draft,
                                             run.prompts->workload.data, facts.params));
    }
  }
  std::vector<RunResult> measured;
  if (!inputs.empty()) measured = run_measurements(inputs);
  std::vector<RunResult> results;
  auto next = measured.begin();
  for (Run& run : runs) results.push_back(run.unrun ? std::move(*run.unrun) : std::move(*next++));
  progress.finish();
  return results;
}

RunSession::RunSession(std::vector<RunRequest> requests, const std::vector<std::string>& argv,
                       RankLinks& links, const RankProcesses& ranks, RunEvents events)
    : impl_(std::make_unique<Impl>(std::move(requests), argv, links, ranks, std::move(events))) {}
RunSession::~RunSession() = default;

void RunSession::set_whole(const Progress::Whole& whole) { impl_->progress.set_whole(whole); }

std::vector<RunResult> RunSession::run() {
  impl_->open();
  return impl_->measure();
}

void RunSession::blame_weights() const {
  const ModelPair& pair = impl_->start->models();
  for (const ModelChoice* model : {&pair.target, pair.draft ? &*pair.draft : nullptr}) {
    if (model == nullptr) continue;
    if (const std::string found = find_non_finite_tensor(*model); !found.empty()) print_note(found);
  }
}

std::vector<std::string> failures_of(const RunResult& result) {
  const auto lines = names_by_text(result, [](const CaseResult& c) -> std::string {
    std::string reason = c.status_reason.value_or("");
    if (reason.empty() && c.lossless.equal_to_baseline == false) {
      reason = "not lossless: tokens differ from the baseline's";
    }
    return reason;
  });
  const bool measured = std::ranges::any_of(
      result.cases, [](const CaseResult& c) { return c.timing.ms_per_token.n > 0; });
  std::vector<std::string> failures;
  for (const auto& [reason, names] : lines) {
    const bool of_all = lines.size() == 1 && !measured;
    failures.push_back(of_all ? reason : fmt::format("{}: {}", names, reason));
  }
  return failures;
}

}  // namespace triforce
