// This is what all ranks of a run do alike, and what all but rank 0 do.
#pragma once
#include <functional>

#include "app/last_resort.h"
#include "comm/host_communicator.h"
#include "comm/rank_processes.h"
#include "host/session.h"
#include "options/config.h"
#include "options/models.h"
#include "ranks/rank_engine.h"
#include "triforce/plan.h"
#include "triforce/report.h"

namespace triforce {

// A rank computes with these: its backend, and what connects it to the others. That is its device
// if there is one and NCCL, else the host's memory.
struct RankMembers {
  // All ranks call this at once. Throws as connect_devices().
  RankMembers(const Session& session, RankLinks& links);
  RankBackend backend;
  std::unique_ptr<Communicator> communicator;
};

// Called on all ranks at once, these throw Error(kUsage) where the ranks differ: in the build, in
// an option, or in number from --tp; in dtype, kind of processor or models.
void expect_same_options(RankLinks& links, const RunConfig& config);
void expect_same_models(RankLinks& links, const Session& session, const ModelPair& models);

// plan_input() of a rank, beside what its communicator has taken of the device. All ranks keep as
// many KV heads near as the one with the least room: a pass must be cut into the same tiles
// everywhere. With --budget auto, config.speculation.budget becomes the largest one that is to be
// tried for which every rank has memory, or the least. To be called on every rank. Throws as
// plan_input() and RankLinks.
PlanInput agree_on_plan(RankLinks& links, RunConfig& config, const Session& session,
                        const ModelPair& models, const RankMembers& rank);

// Settles --hybrid-split auto in plan.run.homes: all ranks measure bus and host at the same time,
// with the rows of one verification, and the slowest of each decides. To be called on every rank
// before anything is leased or reserved. nullopt: there is nothing to settle. Throws as
// Backend::measure_far_rates() and RankLinks.
std::optional<HybridSplit> agree_on_split(RankLinks& links, const RunConfig& config,
                                          Backend& backend, PlanInput& plan);

// Load the models of a run. Throw as load_model().
ModelWeights load_target(Backend& backend, const RunConfig& config, const ModelPair& models,
                         DType dtype, const Shard& shard, const LoadProgress& progress);
ModelWeights load_drafter(Backend& backend, const RunConfig& config, const ModelPair& models,
                          DType dtype, const LoadProgress& progress);

// Starts the ranks of a run: `lead` is rank 0's part, and the others follow it until it returns or
// throws. The exit code; of an error that `lead` throws what `report` makes of it, which is called
// while it is handled.
ExitCode with_ranks(
    const RunConfig& config,
    const std::function<ExitCode(RankLinks& links, const RankProcesses& ranks)>& lead,
    const std::function<ExitCode()>& report = report_current_exception);

// A run on any rank but 0, until that dismisses it. Prints and writes nothing: rank 0 is told of
// errors. The exit code.
ExitCode run_follower(const RunConfig& config, RankLinks& links, const LocalRank& local);

}  // namespace triforce
