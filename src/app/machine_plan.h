// A machine's plan says what a configuration takes and does there.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "forecast/forecast.h"
#include "forecast/published.h"
#include "options/config.h"

namespace triforce {

// Least predicted time per token of a run's lossless methods with one --offload-attention.
struct OffloadForecast {
  std::string attention;  // "hybrid"
  double ms_per_token = 0;
};

struct MachinePlan {
  MachineSpec machine;
  std::string refusal;  // why its GPUs cannot share the run, one line; empty: they can
  // All below is for a plan that was not refused.

  // With --budget auto this is the best of the budgets that a run would try, and that fit: the one
  // with the least geometric mean of the times of the methods that have it. `input` and `forecast`
  // are of it, as if it had been given. If none fits, it is the least one.
  std::optional<std::int64_t> best_budget;
  // The longest prompt for which there is room, all else being equal, in tokens; 0: none. At most
  // as many as the target has positions for.
  std::int64_t longest_prompt = 0;
  bool longest_of_positions = false;  // these are what bounds it
  // These are the ways that fit, by rising time. It is empty if no KV heads are far with `stream`,
  // or if another way of attention than `stream` is given.
  std::vector<OffloadForecast> offload;
  std::optional<int> host_split;  // what --hybrid-split auto would choose
  PlanInput input;                // of one rank, the one with the most of the target
  Forecast forecast;
  // Each method of the configuration has a list, in its order. It is empty where nothing was
  // published.
  std::vector<std::vector<const PublishedResult*>> published;
};

// Returns what is assumed of acceptance: by budget where that is searched.
AssumedAcceptance assumed_acceptance(const RunConfig& config);
// `device`: the input of plan_memory() for a CUDA device; its shard and its homes are chosen here.
// Throws as plan_memory().
MachinePlan plan_for_machine(const RunConfig& config, const PlanInput& device,
                             const MachineSpec& machine);
// "1.2 GB short on each GPU"; empty: it fits.
std::string missing_memory(const MachinePlan& plan);

}  // namespace triforce
