// Ranks of a run start by the same steps, on rank 0 and on those that follow it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/rank_processes.h"
#include "host/run_meters.h"
#include "host/session.h"
#include "options/models.h"
#include "ranks/rank_engine.h"
#include "triforce/plan.h"
#include "triforce/report.h"

namespace triforce {

// A run of a session, as each of its ranks knows it.
struct PlannedRun {
  const RunConfig* config = nullptr;
  PlanInput plan;                    // agree_on_plan()
  std::optional<HybridSplit> split;  // if it was measured
  bool is_left = true;               // it is to be measured
  bool shares_context = false;       // its engines are over a context that stays
  // Number of the run with the longest prompt of those over the same context.
  int context_of = 0;
};

// Takes a rank from its options to an engine. All ranks call the steps at once and in this order;
// each is all that they do together until the next. A step throws as RankLinks, and Error(kUsage)
// where the ranks differ in what it compares.
class RankedStart {
 public:
  // Compares the build and the options, and --tp with the number of ranks. The links outlive it.
  RankedStart(RankLinks& links, const RunConfig& config);

  // Compares dtype, kind of processor and models, opens the meters (`powercap`: RAPL's folder), and
  // connects the devices: by NCCL if there is one, else through the host's memory. Throws as
  // connect_devices().
  void open(Session session, ModelPair models, const std::string& powercap);

  // What rank 0 gives, on all ranks.
  bool agree(bool of_rank_0);

  // plan_input() of this rank, beside what its communicator has taken of the device. All ranks keep
  // as many KV heads near as the one with the least room: a pass must be cut into the same tiles
  // everywhere. With --budget auto, options.budget of the plan is the largest one that is to be
  // tried for which every rank has memory, or the least. With --method auto, run.methods are those
  // of config.methods that have room together. Throws as plan_input().
  PlanInput agree_on_plan(const RunConfig& config);

  // Settles --hybrid-split auto in plan.run.homes before anything is leased or reserved. All ranks
  // measure bus and host at the same time, with the rows of one verification; the slowest decides.
  // nullopt: there is nothing to settle. Throws as Backend::measure_far_rates().
  std::optional<HybridSplit> agree_on_split(const RunConfig& config, PlanInput& plan);

  // Of the runs that are left, on rank 0: those whose KV heads have the same homes are over one
  // context, if there is memory for it beside each of them.
  static void choose_contexts(std::span<PlannedRun* const> runs, const Backend* backend);
  // Gives all ranks what rank 0 has of is_left, shares_context and context_of, and the plans what
  // follows from that: agree_on_split() is called once for each context, with its longest prompt.
  // Throws as that.
  void agree_on_contexts(std::span<PlannedRun* const> runs);

  // The power of all ranks while they wait for a second, W; RunMeters::measure_idle_watts().
  ByDomain measure_idle_watts() { return meters_->measure_idle_watts(); }

  // Takes `bytes` of the device and loads the models, once no rank measures any more. `what` is
  // "load target" or "load drafter". Throws as load_model().
  void load(const RunConfig& config, std::int64_t bytes,
            const std::function<LoadProgress(const char* what)>& progress);

  // Builds an engine for what was planned, of these methods of it, for prompts and generations of
  // these lengths. Over its context there is one engine at a time. Throws as make_engine().
  std::unique_ptr<Engine> engine(const PlannedRun& run, std::span<const Method> methods,
                                 std::int64_t max_prompt, std::int64_t max_generated);

  const Session& session() const { return session_; }
  ModelPair& models() { return models_; }
  const Communicator& communicator() const { return *communicator_; }
  const RunMeters& meters() const { return *meters_; }
  const ModelWeights& target() const { return target_; }
  // Null if there is no drafter.
  const ModelWeights* draft() const { return models_.draft ? &draft_ : nullptr; }

 private:
  RankLinks& links_;
  Session session_;
  ModelPair models_;
  std::optional<RunMeters> meters_;
  std::optional<RankBackend> backend_;
  std::unique_ptr<Communicator> communicator_;
  ModelWeights target_, draft_;
  std::shared_ptr<Context> context_;  // of the last engine that shares one
  Context::Shape context_shape_;
};

// All that a rank but 0 does, until that dismisses it: the steps, then calls of its engines. Throws
// as they do. `configs` are those of the session.
void follow_rank_0(std::span<const RunConfig> configs, RankLinks& links, const LocalRank& local);

}  // namespace triforce
