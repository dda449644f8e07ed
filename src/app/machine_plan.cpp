#include "app/machine_plan.h"

#include <utility>

#include "app/plan_report.h"

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

}  // namespace

MachinePlan plan_for_machine(const RunConfig& config, const PlanInput& device,
                             const MachineSpec& machine) {
  MachinePlan p;
  p.machine = machine;
  p.refusal = refusal_of(config, device.target, machine);
  if (!p.refusal.empty()) return p;
  p.input = device;
  p.input.shard = largest_shard(device.target, machine.gpus);
  p.input.run.homes = choose_homes(config, p.input, gpu_room_bytes(machine));
  if (is_split_by_rates(config)) {
    const int kv_heads = local_shape(device.target, p.input.shard).kv_heads;
    KvHomes& homes = p.input.run.homes;
    p.host_split = best_host_split(machine, max_far_heads(homes, kv_heads));
    homes = with_host_split(std::move(homes), kv_heads, *p.host_split);
  }
  p.forecast = make_forecast(machine, p.input, {config.auto_gamma, config.auto_inner_gamma});
  for (const Method method : config.methods) {
    p.published.push_back(
        find_published(config, {machine.id, device.target.name, device.target.layers, method,
                                gammas_of(p.forecast, method)}));
  }
  return p;
}

std::string missing_memory(const MachinePlan& plan) {
  const Forecast& f = plan.forecast;
  if (f.fits()) return {};
  const auto gb = [](std::int64_t bytes) {
    return fmt::format("{:.1f} GB short", static_cast<double>(bytes) / 1e9);
  };
  std::string out = "does not fit: ";
  if (f.gpu_missing_bytes > 0) {
    out += gb(f.gpu_missing_bytes) + (plan.machine.gpus > 1 ? " on each GPU" : " on the GPU");
  }
  if (f.host_missing_bytes == 0) return out;
  return out + (f.gpu_missing_bytes > 0 ? ", " : "") + gb(f.host_missing_bytes) + " on the host";
}

}  // namespace triforce
