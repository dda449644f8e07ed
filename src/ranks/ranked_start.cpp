// Tests: tests/app/plan_report_test.cpp, tests/cli/ranks_test.py, tests/cli/launched_test.py
#include "ranks/ranked_start.h"

#include <algorithm>

#include "comm/host_communicator.h"
#include "comm/same_on_ranks.h"
#include "core/rounding.h"
#include "host/devices.h"
#include "host/machine.h"
#include "measure/measure.h"
#include "options/options.h"
#include "options/settings.h"
#include "report/printers.h"
#include "triforce/predict.h"

namespace triforce {

RankedStart::RankedStart(RankLinks& links, const RunConfig& config) : links_(links) {
  const ResultContext build = make_context({});
  RankFacts facts = {{"version", build.version},
                     {"commit", build.commit.value_or("")},
                     {"build type", build.build_type},
                     {"compiler", build.compiler}};
  for (const Option& o : option_table()) {
    if ((o.commands & kRun) == 0 || o.value.get == nullptr || o.role == Role::kOutputs) continue;
    facts.emplace_back(fmt::format("--{}", o.name), to_text(o.value.get(config)));
  }
  expect_same(links_, facts);
  if (config.tp == links_.shard().size) return;
  throw_usage("--tp: expected {}, the processes that were started together, found {}",
              links_.shard().size, config.tp);
}

void RankedStart::open(Session session, ModelPair models, const std::string& powercap) {
  session_ = std::move(session);
  models_ = std::move(models);
  RankFacts facts = {{"dtype", to_string(session_.dtype)},
                     {"processor", session_.gpu ? session_.gpu->architecture
                                                : std::string(to_string(session_.isa))},
                     {"target", model_line("", model_info(models_.target.config, session_.dtype))}};
  if (models_.draft) {
    facts.emplace_back("drafter",
                       model_line("", model_info(models_.draft->config, session_.dtype)));
  }
  links_.meet();  // opening a device takes its time
  expect_same(links_, facts);
  MeterSource source;
  source.energy.powercap = powercap;
  if (session_.gpu) source.energy.pci_bus_id = session_.gpu->pci_bus_id;
  meters_.emplace(links_, std::move(source));
  backend_.emplace(*session_.backend, links_);
  if (session_.gpu && links_.shard().size > 1) {
    communicator_ = connect_devices(*session_.backend, links_);
  }
  if (communicator_ == nullptr) {
    communicator_ = std::make_unique<HostCommunicator>(*session_.backend, links_);
  }
}

bool RankedStart::agree(bool of_rank_0) {
  auto agreed = static_cast<std::uint8_t>(of_rank_0 ? 1 : 0);
  links_.broadcast_value(agreed);
  return agreed != 0;
}

namespace {

// On this rank.
std::int64_t largest_budget(RunConfig config, const Backend* backend,
                            const std::function<PlanInput(const RunConfig&)>& plan_of) {
  SpeculationOptions& s = config.speculation;
  const std::int64_t most = s.budget;
  const auto budgets = budgets_to_try(config.prefill, s.chunk_size, usual_budget(config));
  for (auto b = budgets.rbegin(); b != budgets.rend(); ++b) {
    s.budget = std::min(*b, most);
    if (fits_here(config, plan_memory(plan_of(config)), backend)) break;
  }
  return s.budget;
}

// On the only rank: those of the methods that have room together, of which the first ones are kept.
std::vector<Method> methods_with_room(RunConfig config, const Backend* backend,
                                      const std::function<PlanInput(const RunConfig&)>& plan_of) {
  SpeculationOptions& s = config.speculation;
  if (config.auto_budget) s.budget = std::min(s.budget, usual_budget(config));
  std::vector<Method> all;
  std::swap(all, config.methods);
  for (const Method m : all) {
    config.methods.push_back(m);
    const bool speculates = spec_of(m).speculates();
    if (speculates && !fits_here(config, plan_memory(plan_of(config)), backend)) {
      config.methods.pop_back();
    }
  }
  return config.methods;
}

}  // namespace

PlanInput RankedStart::agree_on_plan(const RunConfig& given) {
  RunConfig config = given;
  const auto plan_of = [&](const RunConfig& c) {
    PlanInput plan = plan_input(c, models_, session_.dtype, session_.backend.get());
    plan.shard = links_.shard();
    plan.communicator_bytes = communicator_->own_bytes();
    return plan;
  };
  if (config.auto_method) {
    config.methods = methods_with_room(config, session_.backend.get(), plan_of);
  }
  PlanInput plan = plan_of(config);
  if (config.auto_budget) {
    const std::vector<std::int64_t> budgets =
        links_.gather_values(largest_budget(config, session_.backend.get(), plan_of));
    config.speculation.budget = *std::ranges::min_element(budgets);
    plan = plan_of(config);
  }
  if (plan.shard.size == 1) return plan;
  const int layers = plan.target.layers, kv_heads = local_shape(plan.target, plan.shard).kv_heads;
  const std::vector<std::int64_t> near =
      links_.gather_values(count_heads(plan.run.homes, layers, kv_heads).near);
  plan.run.homes =
      spread_homes(layers, kv_heads, *std::ranges::min_element(near), host_split(config, kv_heads));
  return plan;
}

namespace {

// The longest and the shortest prompt of the runs over the context of `of`.
void set_prompts_of_context(std::span<PlannedRun* const> runs, PlannedRun& of) {
  RunShape& shape = of.plan.run;
  shape.longest_prompt = shape.shortest_prompt = shape.max_prompt;
  for (const PlannedRun* run : runs) {
    if (!run->is_left || run->context_of != of.context_of) continue;
    shape.longest_prompt = std::max(shape.longest_prompt, run->plan.run.max_prompt);
    shape.shortest_prompt = std::min(shape.shortest_prompt, run->plan.run.max_prompt);
    if (run->config != of.config && of.config->turn > 0)
      shape.shortest_prompt = 2;  // not known yet
  }
}

}  // namespace

void RankedStart::choose_contexts(std::span<PlannedRun* const> runs, const Backend* backend) {
  const auto n = static_cast<int>(runs.size());
  const auto at = [&](int i) -> PlannedRun& { return *runs[static_cast<std::size_t>(i)]; };
  for (int i = 0; i < n; ++i) {
    int longest = i;
    for (int k = n - 1; k >= 0; --k) {
      if (!at(k).is_left || at(k).plan.run.homes != at(i).plan.run.homes) continue;
      if (at(k).plan.run.max_prompt >= at(longest).plan.run.max_prompt) longest = k;
    }
    at(i).context_of = longest;
  }
  const auto has_room = [&](int context) {
    return std::ranges::all_of(runs, [&](const PlannedRun* run) {
      if (!run->is_left || run->context_of != context) return true;
      PlannedRun shared = *run;
      set_prompts_of_context(runs, shared);
      return fits_here(*shared.config, plan_memory(shared.plan), backend);
    });
  };
  for (int context = 0; context < n; ++context) {
    if (has_room(context)) continue;
    for (int i = 0; i < n; ++i) {
      if (at(i).context_of == context) at(i).context_of = i;
    }
  }
}

namespace {

// Returns what a verification of `plan`, on its rank, reads of far KV heads.
Backend::FarShape far_shape(const Backend& backend, const PlanInput& plan) {
  // Longer rows change no rate, but the time it takes to measure one.
  constexpr std::int64_t kMaxRows = 65536;
  const LocalShape target = local_shape(plan.target, plan.shard);
  const KvHeadCounts heads = count_heads(plan.run.homes, plan.target.layers, target.kv_heads);
  const bool proposes = any_method(plan.run.methods, &MethodSpec::speculates);
  Backend::FarShape s;
  s.kv_heads = static_cast<int>(heads.bus + heads.host);
  s.layer_kv_heads = max_far_heads(plan.run.homes, target.kv_heads);
  s.group = target.heads / target.kv_heads;
  s.head_dim = target.head_dim;
  s.rows = round_up(std::min(plan.run.max_prompt, kMaxRows), backend.kv_granule());
  s.queries = proposes ? plan.options.gamma + 1 : 1;
  s.queries = std::min({s.queries, s.rows, std::int64_t{kMaxBatchInvariantRows}});
  return s;
}

}  // namespace

void RankedStart::agree_on_contexts(std::span<PlannedRun* const> runs) {
  for (PlannedRun* const run : runs) {
    run->is_left = agree(run->is_left);
    run->shares_context = agree(run->shares_context);
    links_.broadcast_value(run->context_of);
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    PlannedRun& run = *runs[i];
    if (!run.is_left || run.context_of != static_cast<int>(i)) continue;
    run.split = agree_on_split(*run.config, run.plan);
  }
  for (PlannedRun* const run : runs) {
    if (!run->is_left) continue;
    const PlannedRun& longest = *runs[static_cast<std::size_t>(run->context_of)];
    run->split = longest.split;
    run->plan.run.homes = longest.plan.run.homes;
    if (run->shares_context) set_prompts_of_context(runs, *run);
  }
}

std::optional<HybridSplit> RankedStart::agree_on_split(const RunConfig& config, PlanInput& plan) {
  Backend& backend = *session_.backend;
  const Backend::FarShape shape = far_shape(backend, plan);
  if (!is_split_by_rates(config) || shape.kv_heads == 0) return std::nullopt;
  links_.meet();  // they share the host's memory, and maybe the bus
  HybridSplit split;
  split.rows = shape.queries;
  split.kv_heads = shape.layer_kv_heads;
  const std::optional<Backend::FarRates> measured = backend.measure_far_rates(shape);
  if (measured) {
    Backend::FarRates lowest = *measured;
    for (const Backend::FarRates& r : links_.gather_values(*measured)) {
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

void RankedStart::load(const RunConfig& config, std::int64_t bytes,
                       const std::function<LoadProgress(const char* what)>& progress) {
  links_.meet();  // all have what they compute with, and measure no more
  Backend& backend = *session_.backend;
  backend.reserve_memory(bytes);
  target_ = load_model(backend, models_.target, session_.dtype, config.seed, MemTag::kTargetWeights,
                       progress("load target"), links_.shard(), config.speculation.draft_weights);
  if (models_.draft) {
    // Another seed than the target's, or a drafter of the same shape would be the target.
    draft_ = load_model(backend, *models_.draft, session_.dtype, config.seed + 1,
                        MemTag::kDraftWeights, progress("load drafter"));
  }
  links_.meet();  // all have loaded
}

std::unique_ptr<Engine> RankedStart::engine(const PlannedRun& run, std::span<const Method> methods,
                                            std::int64_t max_prompt, std::int64_t max_generated) {
  const bool alone = links_.shard().size == 1;
  Backend& backend = alone ? *session_.backend : static_cast<Backend&>(*backend_);
  Communicator* const ranks = alone ? nullptr : communicator_.get();
  const SpeculationOptions& options = run.plan.options;
  RunShape shape = run.plan.run;
  shape.max_prompt = max_prompt;
  shape.max_generated = max_generated;
  shape.shortest_prompt = std::min(shape.shortest_prompt, max_prompt);
  if (shape.longest_prompt == 0) {
    shape.methods.assign(methods.begin(), methods.end());
    return make_engine(backend, target_, draft(), options, shape, ranks);
  }
  const Context::Shape whole = context_shape(backend, target_, options, shape);
  if (context_ == nullptr || context_shape_ != whole) {
    context_.reset();  // before there is another one
    context_ = std::make_shared<Context>(backend, target_, whole, ranks);
    context_shape_ = whole;
  }
  context_->set_room(Context::shape_of(shape, options));
  return std::make_unique<Methods>(context_, draft(), options, methods);
}

void follow_rank_0(std::span<const RunConfig> configs, RankLinks& links, const LocalRank& local) {
  const RunConfig& config = configs.front();
  RankedStart start(links, config);
  Session session = open_session(session_options(config), local);
  const bool drafts = std::ranges::any_of(
      configs, [](const RunConfig& c) { return any_method(c.methods, &MethodSpec::has_drafter); });
  start.open(std::move(session), choose_models(config, drafts), config.powercap);
  std::vector<PlannedRun> runs(configs.size());
  std::vector<PlannedRun*> all;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].config = &configs[i];
    runs[i].is_left = start.agree(true);
    if (runs[i].is_left) runs[i].plan = start.agree_on_plan(configs[i]);
    all.push_back(&runs[i]);
  }
  start.agree_on_contexts(all);
  start.measure_idle_watts();
  std::int64_t to_take = 0;
  for (const PlannedRun& run : runs) {
    if (run.is_left) to_take = std::max(to_take, plan_memory(run.plan).bytes_to_take());
  }
  start.load(config, to_take,
             [&](const char*) { return [&](std::int64_t, std::int64_t) { links.alive(); }; });
  const BuildEngine build = [&](int i, std::int64_t max_prompt, std::int64_t max_generated) {
    const PlannedRun& run = runs.at(static_cast<std::size_t>(i));
    return start.engine(run, run.plan.run.methods, max_prompt, max_generated);
  };
  follow(links, build, [&] { return start.meters().of_rank(); });
}

}  // namespace triforce
