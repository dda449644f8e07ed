// How long a run takes on a machine, and whether it fits there: bytes over bandwidths, from the
// configurations alone.
#pragma once
#include <cstdint>
#include <vector>

#include "forecast/machine_spec.h"
#include "triforce/plan.h"
#include "triforce/predict.h"

namespace triforce {

// Memory that is left free: of each GPU for the driver and libraries, of the host for its system.
inline constexpr std::int64_t kGpuReserveBytes = std::int64_t{1} << 30;
inline constexpr std::int64_t kHostReserveBytes = std::int64_t{4} << 30;
inline std::int64_t gpu_room_bytes(const MachineSpec& m) {
  return m.gpu_memory_bytes - kGpuReserveBytes;
}
// After the output projection and after the feed-forward of a layer of the target.
inline constexpr int kGathersPerLayer = 2;

// What far KV heads move in one pass, on each rank.
struct FarTraffic {
  std::int64_t bus_bytes = 0;   // to its GPU
  std::int64_t host_bytes = 0;  // to the processor, which computes with them
};
// How long that takes on all ranks at once: what bus and processor read shares the host's memory.
double transfer_ms(const MachineSpec& machine, const FarTraffic& traffic);
// Of a layer's far_heads KV heads as many as the host computes with where transfer_ms() of the
// layer is least, of equal ones the least.
int best_host_split(const MachineSpec& machine, int far_heads);

// What acceptance is assumed of methods that draft with a retrieval cache where none is given: that
// of the paper's Table 2 with any budget, or with less or more of it as the budget of figure 6a
// (published_alpha_of_budget()) is from that of the table.
enum class AssumedAcceptance : std::uint8_t { kTable, kByBudget };
// Per-token acceptance of each level, innermost first: what --synthetic-acceptance says, else what
// the paper reports for the method. Empty: it reports none.
std::vector<double> assumed_alphas(const MethodSpec& method, const SpeculationOptions& options,
                                   AssumedAcceptance assumed = AssumedAcceptance::kTable);
// The same by position, where that is given; without any a curve has the one rate.
AcceptanceCurves assumed_curves(const MethodSpec& method, const SpeculationOptions& options,
                                AssumedAcceptance assumed = AssumedAcceptance::kTable);

// What a run takes of a machine's memory and what it lacks there; 0: nothing.
struct RoomForecast {
  // Page-locked, of all ranks; of unified memory all that the run takes.
  std::int64_t host_bytes = 0;
  std::int64_t gpu_missing_bytes = 0, host_missing_bytes = 0;
  bool fits() const { return gpu_missing_bytes == 0 && host_missing_bytes == 0; }
};
// `memory`: of one rank of the machine.
RoomForecast room_on(const MachineSpec& machine, const MemoryPlan& memory);

// Time per token of one method.
struct MethodForecast {
  const MethodSpec* method = nullptr;
  Gammas gammas;
  double ms_per_token = 0;
};
struct Forecast : RoomForecast {
  MemoryPlan memory;       // of each rank
  double near_layers = 0;  // near KV heads, counted in layers
  // One pass over the full cache with the whole prompt, on each rank; ahead_bytes of the bus's are
  // in their slots before a verification begins, since they come while others draft.
  FarTraffic far;
  std::int64_t ahead_bytes = 0;
  double far_ms = 0;             // what `far` takes
  double autoregressive_ms = 0;  // of a token
  // Those that speculate with chains, in the order asked for: of trees no acceptance is known.
  std::vector<MethodForecast> methods;
};
// `in`: of one rank of the machine, with in.shard and in.run.homes as they would be there and no
// backend. `chosen`: the gammas that are searched. Times are those of a machine with enough memory.
// Throws as plan_memory().
Forecast make_forecast(const MachineSpec& machine, const PlanInput& in, const GammaChoice& chosen,
                       AssumedAcceptance assumed = AssumedAcceptance::kTable);

}  // namespace triforce
