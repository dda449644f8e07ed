// A plan says what a configuration allocates, here and on machines to choose among, and whether it
// fits.
#pragma once
#include <string>
#include <vector>

#include "app/machine_plan.h"
#include "options/settings.h"
#include "triforce/plan.h"

namespace triforce {

struct PlanReport {
  PlanInput input;      // of the backend that a run would use
  std::string backend;  // its description
  MemoryPlan memory;
  // These describe the same run on CUDA devices, in as many ranks.
  DType device_dtype = DType::kF16;
  MemoryPlan device_memory;
  std::vector<MachinePlan> machines;
  std::vector<std::string> obstacles;    // to running it here: find_obstacles()
  std::vector<std::string> model_notes;  // labelled_notes()

  // Returns what the result's validity.notes would say, for all methods together.
  std::vector<std::string> notes() const;
};

// `input` is plan_input() of a backend; obstacles and notes of the models are left to the caller.
// Throws as plan_memory().
PlanReport make_plan_report(const RunConfig& config, const PlanInput& input,
                            const std::vector<MachineSpec>& machines);

// Its rows are bytes by purpose, the total last. If prompt_tokens is above 0, a row says how much
// of the full cache they take.
std::string memory_table(const MemoryPlan& memory, std::int64_t prompt_tokens);
std::string plan_table(const RunConfig& config, const PlanReport& report);
std::string plan_json(const RunConfig& config, const PlanReport& report);
std::string plan_schema();  // the JSON Schema of plan_json()

// EUR for a million tokens of prompts that are decoded together, each at this time per token, by
// config.price_eur_per_hour, which is given.
double predicted_cost(const RunConfig& config, double ms_per_token);

// Says where the assumed acceptances come from, and whether they are another pair's.
std::string acceptance_source(const RunConfig& config, const PlanInput& in);

}  // namespace triforce
