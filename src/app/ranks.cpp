#include "app/ranks.h"

#include <algorithm>
#include <new>

#include "app/last_resort.h"
#include "comm/same_on_ranks.h"
#include "core/rounding.h"
#include "host/load_monitor.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "options/options.h"
#include "options/plan_input.h"
#include "options/settings.h"
#include "report/printers.h"
#include "triforce/predict.h"

namespace triforce {

void expect_same_options(RankLinks& links, const RunConfig& config) {
  const ResultContext build = make_context({});
  RankFacts facts = {{"version", build.version},
                     {"commit", build.commit.value_or("")},
                     {"build type", build.build_type},
                     {"compiler", build.compiler}};
  for (const Option& o : option_table()) {
    if ((o.commands & kRun) == 0 || o.value.get == nullptr || o.role == Role::kOutputs) continue;
    facts.emplace_back(fmt::format("--{}", o.name), to_text(o.value.get(config)));
  }
  expect_same(links, facts);
  if (config.tp == links.shard().size) return;
  throw_usage("--tp: expected {}, the processes that were started together, found {}",
              links.shard().size, config.tp);
}

void expect_same_models(RankLinks& links, const Session& session, const ModelPair& models) {
  RankFacts facts = {
      {"dtype", to_string(session.dtype)},
      {"processor", session.gpu ? session.gpu->architecture : std::string(to_string(session.isa))},
      {"target", model_line("", model_info(models.target.config, session.dtype))}};
  if (models.draft) {
    facts.emplace_back("drafter", model_line("", model_info(models.draft->config, session.dtype)));
  }
  links.meet();  // opening a device takes its time
  expect_same(links, facts);
}

RankMembers::RankMembers(const Session& session, RankLinks& links)
    : backend(*session.backend, links) {
  if (session.gpu && links.shard().size > 1)
    communicator = connect_devices(*session.backend, links);
  if (communicator == nullptr) {
    communicator = std::make_unique<HostCommunicator>(*session.backend, links);
  }
}

namespace {

bool fits(const RunConfig& config, const PlanInput& plan, const Backend* backend) {
  try {
    check_memory(config, plan_memory(plan), backend);
    return true;
  } catch (const Error& e) {
    if (e.code() != ExitCode::kResources) throw;
    return false;
  }
}

// On this rank.
std::int64_t largest_budget(RunConfig config, const Backend* backend,
                            const std::function<PlanInput(const RunConfig&)>& plan_of) {
  SpeculationOptions& s = config.speculation;
  const std::int64_t most = s.budget;
  const auto budgets = budgets_to_try(config.prefill, s.chunk_size, usual_budget(config));
  for (auto b = budgets.rbegin(); b != budgets.rend(); ++b) {
    s.budget = std::min(*b, most);
    if (fits(config, plan_of(config), backend)) break;
  }
  return s.budget;
}

}  // namespace

PlanInput agree_on_plan(RankLinks& links, RunConfig& config, const Session& session,
                        const ModelPair& models, const RankMembers& rank) {
  const auto plan_of = [&](const RunConfig& c) {
    PlanInput plan = plan_input(c, models, session.dtype, session.backend.get());
    plan.shard = links.shard();
    plan.communicator_bytes = rank.communicator->own_bytes();
    return plan;
  };
  if (config.auto_budget) {
    const std::vector<std::int64_t> budgets =
        links.gather_values(largest_budget(config, session.backend.get(), plan_of));
    config.speculation.budget = *std::min_element(budgets.begin(), budgets.end());
  }
  PlanInput plan = plan_of(config);
  if (plan.shard.size == 1) return plan;
  const int layers = plan.target.layers, kv_heads = local_shape(plan.target, plan.shard).kv_heads;
  const std::vector<std::int64_t> near =
      links.gather_values(count_heads(plan.run.homes, layers, kv_heads).near);
  plan.run.homes = spread_homes(layers, kv_heads, *std::min_element(near.begin(), near.end()),
                                host_split(config, kv_heads));
  return plan;
}

namespace {

// Returns what a verification of `plan`, on its rank, reads of far KV heads.
Backend::FarShape far_shape(const RunConfig& config, const Backend& backend,
                            const PlanInput& plan) {
  // Longer rows change no rate, but the time it takes to measure one.
  constexpr std::int64_t kMaxRows = 65536;
  const LocalShape target = local_shape(plan.target, plan.shard);
  const KvHeadCounts heads = count_heads(plan.run.homes, plan.target.layers, target.kv_heads);
  const bool proposes = std::any_of(config.methods.begin(), config.methods.end(),
                                    [](Method m) { return spec_of(m).speculates(); });
  Backend::FarShape s;
  s.kv_heads = static_cast<int>(heads.bus + heads.host);
  s.layer_kv_heads = max_far_heads(plan.run.homes, target.kv_heads);
  s.group = target.heads / target.kv_heads;
  s.head_dim = target.head_dim;
  s.rows = round_up(std::min(plan.run.max_prompt, kMaxRows), backend.kv_granule());
  s.queries = proposes ? config.speculation.gamma + 1 : 1;
  s.queries = std::min({s.queries, s.rows, std::int64_t{kMaxBatchInvariantRows}});
  return s;
}

}  // namespace

std::optional<HybridSplit> agree_on_split(RankLinks& links, const RunConfig& config,
                                          Backend& backend, PlanInput& plan) {
  const Backend::FarShape shape = far_shape(config, backend, plan);
  if (!is_split_by_rates(config) || shape.kv_heads == 0) return std::nullopt;
  links.meet();  // they share the host's memory, and maybe the bus
  HybridSplit split;
  split.rows = shape.queries;
  split.kv_heads = shape.layer_kv_heads;
  const std::optional<Backend::FarRates> measured = backend.measure_far_rates(shape);
  if (measured) {
    Backend::FarRates lowest = *measured;
    for (const Backend::FarRates& r : links.gather_values(*measured)) {
      lowest = {std::min(lowest.bus_gbs, r.bus_gbs), std::min(lowest.host_gbs, r.host_gbs)};
    }
    split.bus_gbs = lowest.bus_gbs;
    split.host_gbs = lowest.host_gbs;
    split.kv_heads = choose_host_split(shape.layer_kv_heads, lowest);
  }
  const int kv_heads = local_shape(plan.target, plan.shard).kv_heads;
  plan.run.homes = with_host_split(std::move(plan.run.homes), kv_heads, split.kv_heads);
  return split;
}

ModelWeights load_target(Backend& backend, const RunConfig& config, const ModelPair& models,
                         DType dtype, const Shard& shard, const LoadProgress& progress) {
  return load_model(backend, models.target, dtype, config.seed, MemTag::kTargetWeights, progress,
                    shard);
}

ModelWeights load_drafter(Backend& backend, const RunConfig& config, const ModelPair& models,
                          DType dtype, const LoadProgress& progress) {
  // Another seed than the target's, or a drafter of the same shape would be the target.
  return load_model(backend, *models.draft, dtype, config.seed + 1, MemTag::kDraftWeights,
                    progress);
}

namespace {

void follow_rank_0(RunConfig config, RankLinks& links, const LocalRank& local) {
  expect_same_options(links, config);
  const Session session = open_session(session_options(config), local);
  const ModelPair models =
      choose_models(config, any_method(config.methods, &MethodSpec::has_drafter));
  expect_same_models(links, session, models);
  const RunLoad machines(links);
  RankMembers rank(session, links);
  PlanInput plan = agree_on_plan(links, config, session, models, rank);
  agree_on_split(links, config, *session.backend, plan);
  const std::int64_t bytes = plan_memory(plan).bytes_to_take();
  links.meet();
  session.backend->reserve_memory(bytes);
  const LoadProgress at_work = [&](std::int64_t, std::int64_t) { links.alive(); };
  const ModelWeights target =
      load_target(*session.backend, config, models, session.dtype, links.shard(), at_work);
  ModelWeights draft;
  if (models.draft) draft = load_drafter(*session.backend, config, models, session.dtype, at_work);
  links.meet();
  const BuildEngine build = [&](std::int64_t max_prompt, std::int64_t max_generated) {
    return make_engine(rank.backend, target, models.draft ? &draft : nullptr, config.speculation,
                       {max_prompt, max_generated, config.methods, plan.run.homes},
                       rank.communicator.get());
  };
  follow(links, build, [&] { return machines.of_rank(); });
}

}  // namespace

ExitCode run_follower(const RunConfig& config, RankLinks& links, const LocalRank& local) {
  try {
    let_allocations_throw();
    follow_rank_0(config, links, local);
    return ExitCode::kOk;
  } catch (const Error& e) {
    links.fail(e);
    return e.code();
  } catch (const std::bad_alloc&) {
    links.fail({ExitCode::kResources, "OutOfMemory", "the system refused an allocation"});
    return ExitCode::kResources;
  } catch (const std::exception& e) {
    links.fail({ExitCode::kInternal, "Internal", e.what()});
    return ExitCode::kInternal;
  }
}

namespace {

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

ExitCode with_ranks(
    const RunConfig& config,
    const std::function<ExitCode(RankLinks& links, const RankProcesses& ranks)>& lead,
    const std::function<ExitCode()>& report) {
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(config.comm_timeout_s));
  RankProcesses ranks = RankProcesses::start(config.tp, timeout);
  RankLinks links(ranks.shard(), ranks.take_sockets(), timeout);
  if (links.shard().rank != 0) return follow_command(config, links, ranks);
  ExitCode code = ExitCode::kOk;
  try {
    code = lead(links, ranks);
  } catch (...) {
    code = report();
    ranks.abandon(code);
    return code;
  }
  dismiss_others(links, ranks, code);
  return code;
}

}  // namespace triforce
