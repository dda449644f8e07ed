// What a configuration takes and does on a machine that one may choose.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "forecast/forecast.h"
#include "forecast/published.h"

namespace triforce {

struct MachinePlan {
  MachineSpec machine;
  std::string refusal;  // why its GPUs cannot share the run, one line; empty: they can
  // Without a refusal:
  std::optional<int> host_split;  // what --hybrid-split auto would choose
  PlanInput input;                // of one rank, the one with the most of the target
  Forecast forecast;
  // Of each method of the configuration, in its order; empty where nothing was published.
  std::vector<std::vector<const PublishedResult*>> published;
};

// `device`: the input of plan_memory() for a CUDA device; its shard and its homes are chosen here.
// Throws as plan_memory().
MachinePlan plan_for_machine(const RunConfig& config, const PlanInput& device,
                             const MachineSpec& machine);
// "does not fit: 1.2 GB short on each GPU"; empty: it fits.
std::string missing_memory(const MachinePlan& plan);

}  // namespace triforce
