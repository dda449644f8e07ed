#include "app/machine_plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "app/plan_report.h"
#include "options/options.h"
#include "options/settings.h"
#include "triforce/param.h"

namespace triforce {
namespace {

// --tp 1 is what is not given.
std::string refusal_of(const RunConfig& config, const ModelConfig& target,
                       const MachineSpec& machine) {
  if (config.tp > 1 && config.tp != machine.gpus) {
    return fmt::format("--tp: expected the {} GPU{} of this machine, found {}", machine.gpus,
                       machine.gpus == 1 ? "" : "s", config.tp);
  }
  try {
    check_ranks(target, machine.gpus);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

// Ranks have as many KV heads each, but not always as many features.
Shard largest_shard(const ModelConfig& target, int ranks) {
  Shard largest{0, ranks};
  for (int rank = 1; rank < ranks; ++rank) {
    const Shard shard{rank, ranks};
    if (local_shape(target, shard).intermediate > local_shape(target, largest).intermediate) {
      largest = shard;
    }
  }
  return largest;
}

Gammas gammas_of(const Forecast& forecast, Method method) {
  for (const MethodForecast& m : forecast.methods) {
    if (m.method->method == method) return m.gammas;
  }
  return {};
}

// The run on one rank of the machine, and the split that --hybrid-split auto would choose.
std::pair<PlanInput, std::optional<int>> input_on(const RunConfig& config, const PlanInput& device,
                                                  const MachineSpec& machine) {
  PlanInput in = device;
  std::optional<int> split;
  in.shard = largest_shard(device.target, machine.gpus);
  in.run.homes = choose_homes(config, in, gpu_room_bytes(machine));
  if (is_split_by_rates(config)) {
    const int kv_heads = local_shape(device.target, in.shard).kv_heads;
    split = best_host_split(machine, max_far_heads(in.run.homes, kv_heads));
    in.run.homes = with_host_split(std::move(in.run.homes), kv_heads, *split);
  }
  return {std::move(in), split};
}

// Plans with the budget that device.options has.
MachinePlan plan_once(const RunConfig& config, const PlanInput& device,
                      const MachineSpec& machine) {
  MachinePlan p;
  p.machine = machine;
  std::tie(p.input, p.host_split) = input_on(config, device, machine);
  p.forecast = make_forecast(machine, p.input, {config.auto_gamma, config.auto_inner_gamma},
                             assumed_acceptance(config));
  PublishedSetting setting = published_setting(config);
  setting.speculation.budget = device.options.budget;
  for (const Method method : config.methods) {
    p.published.push_back(
        find_published(setting, {machine.id, device.target.name, device.target.layers, method,
                                 gammas_of(p.forecast, method)}));
  }
  return p;
}

// Sum of the logarithms of the times that depend on the budget.
double log_of_times(const Forecast& f) {
  double sum = 0;
  for (const MethodForecast& m : f.methods) {
    if (m.method->speculates() && m.method->has_budget()) sum += std::log(m.ms_per_token);
  }
  return sum;
}

MachinePlan plan_of_best_budget(const RunConfig& config, const PlanInput& device,
                                const MachineSpec& machine) {
  std::optional<MachinePlan> best;
  for (const std::int64_t budget :
       budgets_to_try(config.prefill, config.speculation.chunk_size, usual_budget(config))) {
    PlanInput in = device;
    in.options.budget = budget;
    in.options.least_budget = 0;
    MachinePlan p = plan_once(config, in, machine);
    if (!p.forecast.methods.empty()) p.best_budget = budget;
    const bool better =
        best && p.forecast.fits() &&
        (!best->forecast.fits() || log_of_times(p.forecast) < log_of_times(best->forecast));
    if (!best || better) best = std::move(p);
  }
  return *best;
}

// Whether there is room for a prompt of so many tokens; nullopt: the options rule it out.
std::optional<bool> has_room(const RunConfig& config, const PlanInput& in,
                             const MachineSpec& machine, std::int64_t prompt) {
  PlanInput other = in;
  other.run.max_prompt = prompt;
  std::optional<bool> fits;
  error_of(ExitCode::kUsage, [&] {
    const PlanInput there = input_on(config, other, machine).first;
    fits = room_on(machine, plan_memory(there)).fits();
  });
  return fits;
}

// Memory rises with the prompt, and so does the need of positions.
void find_longest_prompt(const RunConfig& config, MachinePlan& p) {
  constexpr std::int64_t kLeast = 2;
  const auto fits = [&](std::int64_t prompt) {
    return has_room(config, p.input, p.machine, prompt);
  };
  if (!fits(kLeast).value_or(false)) return;
  std::int64_t good = kLeast, bad = p.input.target.max_position + 1;
  while (good + 1 < bad) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle).value_or(false) ? good : bad) = middle;
  }
  p.longest_prompt = good;
  p.longest_of_positions = !fits(good + 1).has_value();
}

double least_ms(const Forecast& f) {
  double ms = f.autoregressive_ms;
  for (const MethodForecast& m : f.methods) {
    if (m.method->is_lossless()) ms = std::min(ms, m.ms_per_token);
  }
  return ms;
}

void compare_offload(const RunConfig& config, MachinePlan& p) {
  const bool given = config.offload_attention != OffloadAttention::kStream;
  if (given || p.forecast.near_layers >= p.input.target.layers) return;
  for (const OffloadAttention attention :
       {OffloadAttention::kStream, OffloadAttention::kHost, OffloadAttention::kHybrid}) {
    RunConfig with = config;
    with.offload_attention = attention;
    const Forecast f = plan_once(with, p.input, p.machine).forecast;
    if (f.fits()) p.offload.push_back({to_string(attention), least_ms(f)});
  }
  std::ranges::stable_sort(p.offload, [](const OffloadForecast& a, const OffloadForecast& b) {
    return a.ms_per_token < b.ms_per_token;
  });
}

}  // namespace

AssumedAcceptance assumed_acceptance(const RunConfig& config) {
  return config.auto_budget ? AssumedAcceptance::kByBudget : AssumedAcceptance::kTable;
}

MachinePlan plan_for_machine(const RunConfig& config, const PlanInput& device,
                             const MachineSpec& machine) {
  std::string refusal = refusal_of(config, device.target, machine);
  if (!refusal.empty()) {
    MachinePlan refused;
    refused.machine = machine;
    refused.refusal = std::move(refusal);
    return refused;
  }
  MachinePlan p = config.auto_budget ? plan_of_best_budget(config, device, machine)
                                     : plan_once(config, device, machine);
  find_longest_prompt(config, p);
  compare_offload(config, p);
  return p;
}

std::string missing_memory(const MachinePlan& plan) {
  const Forecast& f = plan.forecast;
  if (f.fits()) return {};
  const auto gb = [](std::int64_t bytes) {
    return fmt::format("{:.1f} GB short", static_cast<double>(bytes) / 1e9);
  };
  std::string out;
  if (f.gpu_missing_bytes > 0) {
    out += gb(f.gpu_missing_bytes) + (plan.machine.gpus > 1 ? " on each GPU" : " on the GPU");
  }
  if (f.host_missing_bytes == 0) return out;
  return out + (f.gpu_missing_bytes > 0 ? ", " : "") + gb(f.host_missing_bytes) + " on the host";
}

}  // namespace triforce
