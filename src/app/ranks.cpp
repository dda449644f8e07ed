#include "app/ranks.h"

#include <algorithm>
#include <new>

#include "app/last_resort.h"
#include "app/plan_report.h"
#include "host/session.h"

namespace triforce {

void agree_on_homes(RankLinks& links, const RunConfig& config, PlanInput& plan) {
  const Shard& shard = links.shard();
  if (shard.size == 1) return;
  const int layers = plan.target.layers, kv_heads = local_shape(plan.target, shard).kv_heads;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(shard.size));
  counts[static_cast<std::size_t>(shard.rank)] = count_heads(plan.run.homes, layers, kv_heads).near;
  links.all_gather(std::as_writable_bytes(std::span(counts)));
  plan.run.homes = spread_homes(layers, kv_heads, *std::min_element(counts.begin(), counts.end()),
                                host_split(config, kv_heads));
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

void follow_rank_0(const RunConfig& config, RankLinks& links) {
  const Session session = open_session(config, links.shard());
  const ModelPair models = choose_models(config, any_uses(config.methods, Pass::kDraft));
  RankMembers rank(*session.backend, links);
  PlanInput plan = plan_input(config, models, session.dtype, session.backend.get());
  plan.shard = links.shard();
  plan.communicator_bytes = rank.communicator.own_bytes();
  agree_on_homes(links, config, plan);
  const std::int64_t bytes = plan_memory(plan).bytes_to_take();
  links.meet();
  session.backend->reserve_memory(bytes);
  const ModelWeights target =
      load_target(*session.backend, config, models, session.dtype, links.shard(), {});
  ModelWeights draft;
  if (models.draft) draft = load_drafter(*session.backend, config, models, session.dtype, {});
  links.meet();
  follow(links, [&](std::int64_t max_prompt, std::int64_t max_generated) {
    return make_engine(rank.backend, target, models.draft ? &draft : nullptr, config.speculation,
                       {max_prompt, max_generated, config.methods, plan.run.homes},
                       &rank.communicator);
  });
}

}  // namespace

ExitCode run_follower(const RunConfig& config, RankLinks& links) {
  try {
    let_allocations_throw();
    follow_rank_0(config, links);
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

}  // namespace triforce
