// What `plan` tells: bytes by purpose, bytes of a pass, and what follows for some GPUs.
#pragma once
#include <string>
#include <vector>

#include "options/models.h"
#include "triforce/plan.h"
#include "triforce/predict.h"

namespace triforce {

// What a GPU achieves. Sources: nominal figures of the vendor's data sheets; achievable bandwidth
// and overheads are assumptions (about 89% of nominal, as good decode kernels reach, and the gaps
// between the kernels of a replayed graph), and so is the bus: 16 lanes of PCIe 4.0 or 5.0 at 80%.
struct GpuAssumption {
  const char* name;
  double capacity_bytes;
  double bytes_per_s;
  double bus_bytes_per_s;  // from page-locked host memory
  double pass_overhead_ms, layer_overhead_ms;
};
const std::vector<GpuAssumption>& gpu_table();

// Time per token of one method on a GPU.
struct MethodPrediction {
  const MethodSpec* method = nullptr;
  double ms_per_token = 0;
  Gammas gammas;
};
struct GpuPrediction {
  const GpuAssumption* gpu = nullptr;
  bool fits = false;
  double near_layers = 0;                 // see near_layers()
  double autoregressive_ms = 0;           // per token
  std::vector<MethodPrediction> methods;  // those that speculate, in the order asked for
};

struct PlanReport {
  PlanInput input;      // of the backend that a run would use
  std::string backend;  // its description
  MemoryPlan memory;
  // The same run on a CUDA device, which `gpus` are predicted from.
  DType device_dtype = DType::kF16;
  MemoryPlan device_memory;
  std::vector<GpuPrediction> gpus;
  std::vector<std::string> obstacles;  // to running it here: find_obstacles()
};

// Memory a GPU keeps for the driver and libraries.
inline constexpr double kGpuReserveBytes = 1024.0 * 1024.0 * 1024.0;

// Where --on-chip and --kv-offload put the KV heads of in.target's full cache, the homes of `in`
// aside. near_bytes: the room of the device's own memory; none: it works in the host's.
KvHomes choose_homes(const RunConfig& config, const PlanInput& in,
                     std::optional<std::int64_t> near_bytes);
// Far KV heads of each layer, of the kv_heads of a rank, that the host computes with at most.
int host_split(const RunConfig& config, int kv_heads);
// KV heads that are near, counted in layers.
double near_layers(const PlanInput& in);
// The input of plan_memory() for a configuration; see PlanInput for a null backend. Throws as
// plan_memory().
PlanInput plan_input(const RunConfig& config, const ModelPair& models, DType dtype,
                     const Backend* backend);
// `input` is plan_input() of a backend; obstacles are left to the caller. Throws as plan_memory().
PlanReport make_plan_report(const RunConfig& config, const PlanInput& input);
// Per-token acceptance of each level, innermost first: what --synthetic-acceptance says, else what
// the paper reports for the method.
std::vector<double> assumed_alphas(const MethodSpec& method, const SpeculationOptions& options);

// The rows of the memory table by purpose, the total last, at no place.
struct MemoryRow {
  const char* label;
  const char* place;  // "device" or "host"
  std::int64_t bytes = 0;
};
std::vector<MemoryRow> memory_rows(const MemoryPlan& memory);
// With prompt_tokens also the part of the full cache that they take.
std::string memory_table(const MemoryPlan& memory, std::int64_t prompt_tokens);
std::string plan_table(const RunConfig& config, const PlanReport& report);
std::string plan_json(const RunConfig& config, const PlanReport& report);

// Throws Error(kResources, "MemoryLimit") with one line if the plan needs more than --memory-limit,
// or without it more than `backend`'s device has free; null, or no device memory: the machine.
void check_memory(const RunConfig& config, const MemoryPlan& memory, const Backend* backend);

}  // namespace triforce
