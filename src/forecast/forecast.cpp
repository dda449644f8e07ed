#include "forecast/forecast.h"

#include <algorithm>

#include "forecast/published.h"
#include "triforce/pass_kernels.h"

namespace triforce {
namespace {

double ms_of(std::int64_t bytes, double gbs) { return static_cast<double>(bytes) / gbs * 1e-6; }

// A pass, which reads the same bytes and has the same kernels however many rows it has.
double compute_ms(const MachineSpec& m, const PlanInput& in, Pass pass, std::int64_t bytes,
                  std::int64_t parts = 1) {
  const bool drafts = spec_of(pass).net == Net::kDrafter;
  const ModelConfig& model = drafts ? *in.draft : in.target;
  const int ranks = drafts ? 1 : in.shard.size;
  const bool gathers = ranks > 1;
  // As if all heads were near: what brings far ones takes far longer than their kernels.
  const auto kernels =
      static_cast<double>(pass_kernels(model.layers, ranks, model.has_head_norms()));
  const double gaps_ms = m.pass_overhead_ms + kernels * m.kernel_gap_ms +
                         (gathers ? model.layers * kGathersPerLayer * m.gather_ms : 0);
  return ms_of(bytes, m.gpu_gbs) + static_cast<double>(parts) * gaps_ms;
}

StepCurve of_any_rows(double ms) { return {{{1, ms}}}; }

// Far heads are brought, or computed with by the host, while the GPU computes with the others. Of
// unified memory all of that takes turns.
double full_pass_ms(const MachineSpec& m, const PlanInput& in, const PassWork& bytes,
                    const FarTraffic& far) {
  const std::int64_t of_gpu = bytes.at(in.run.max_prompt) - far.host_bytes;
  const double gpu_ms = compute_ms(m, in, kFullPass, of_gpu), far_ms = transfer_ms(m, far);
  return m.unified_memory ? gpu_ms + far_ms : std::max(gpu_ms, far_ms);
}

void add_far(const MachineSpec& m, const PlanInput& in, Forecast& f) {
  const PassWork& full = f.memory.passes[kFullPass];
  const std::int64_t bus_heads = f.memory.kv_heads.bus;
  f.far = {full.far_at(in.run.max_prompt), full.host_at(in.run.max_prompt)};
  f.far_ms = transfer_ms(m, f.far);
  if (bus_heads > 0) {
    f.ahead_bytes =
        f.far.bus_bytes / bus_heads * std::min<std::int64_t>(in.run.homes.slots, bus_heads);
  }
}

// What a draft brings over the bus is gathered layer by layer before it computes with it. Without
// the full pass, which is not the same for drafts and without.
StepCurves draft_steps(const MachineSpec& m, const PlanInput& in, const MemoryPlan& memory) {
  StepCurves steps;
  for (const PassSpec& p : kPassTable) {
    const Pass pass = p.pass;
    const std::int64_t bytes = memory.passes[pass].at(in.run.max_prompt);
    if (bytes == 0 || pass == kFullPass) continue;
    const std::int64_t parts = memory.passes[pass].parts(in.run.max_prompt);
    const std::int64_t far = memory.passes[pass].far_at(in.run.max_prompt);
    steps[pass] =
        of_any_rows(compute_ms(m, in, pass, bytes - far, parts) + transfer_ms(m, {far, 0}));
  }
  return steps;
}

}  // namespace

double transfer_ms(const MachineSpec& m, const FarTraffic& t) {
  return std::max({ms_of(t.bus_bytes, m.bus_gbs), ms_of(m.gpus * t.bus_bytes, m.bus_together_gbs),
                   ms_of(m.gpus * (t.bus_bytes + t.host_bytes), m.host_gbs)});
}

int best_host_split(const MachineSpec& m, int far_heads) {
  constexpr std::int64_t kHeadBytes = std::int64_t{1} << 30;  // of any size
  return choose_host_split(far_heads, [&](int bus, int host) {
    return transfer_ms(m, {bus * kHeadBytes, host * kHeadBytes});
  });
}

std::vector<double> assumed_alphas(const MethodSpec& method, const SpeculationOptions& options,
                                   AssumedAcceptance assumed) {
  constexpr std::int64_t kTableBudget = 4096;
  std::vector<double> alphas;
  const auto is_known = [](double alpha) { return std::isfinite(alpha); };
  for (int l = 0; l < method.levels(); ++l) {
    alphas.push_back(options.synthetic
                         ? options.synthetic->rate_of(method, l, method.step(l, options.gammas()))
                         : method.paper_alpha[static_cast<std::size_t>(l)]);
  }
  if (!std::ranges::all_of(alphas, is_known)) return {};
  if (assumed == AssumedAcceptance::kByBudget && !options.synthetic && !alphas.empty() &&
      method.selects()) {
    const double change =
        published_alpha_of_budget(options.budget) - published_alpha_of_budget(kTableBudget);
    alphas.back() = std::clamp(alphas.back() + change, 0.0, 1.0);
  }
  return alphas;
}

AcceptanceCurves assumed_curves(const MethodSpec& method, const SpeculationOptions& options,
                                AssumedAcceptance assumed) {
  if (!options.synthetic) return constant_acceptance(assumed_alphas(method, options, assumed));
  AcceptanceCurves curves;
  for (int l = 0; l < method.levels(); ++l) {
    curves.push_back({options.synthetic->of(method, l, method.step(l, options.gammas()))});
  }
  return curves;
}

RoomForecast room_on(const MachineSpec& m, const MemoryPlan& memory) {
  RoomForecast room;
  room.host_bytes = m.unified_memory ? memory.total_bytes() : m.gpus * memory.far_bytes();
  room.gpu_missing_bytes = std::max<std::int64_t>(0, memory.near_bytes() - gpu_room_bytes(m));
  room.host_missing_bytes =
      std::max<std::int64_t>(0, room.host_bytes + kHostReserveBytes - m.host_memory_bytes);
  return room;
}

Forecast make_forecast(const MachineSpec& m, const PlanInput& in, const GammaChoice& chosen,
                       AssumedAcceptance assumed) {
  TF_CHECK(in.shard.size == m.gpus, "{} ranks on {} GPUs", in.shard.size, m.gpus);
  Forecast f;
  f.memory = plan_memory(in);
  static_cast<RoomForecast&>(f) = room_on(m, f.memory);
  f.near_layers = near_layers(in);
  add_far(m, in, f);
  const PassWork& full = f.memory.passes[kFullPass];
  f.autoregressive_ms = full_pass_ms(m, in, full, f.far);
  StepCurves steps = draft_steps(m, in, f.memory);
  const FarTraffic verified = {f.far.bus_bytes - f.ahead_bytes, f.far.host_bytes};
  steps[kFullPass] = of_any_rows(full_pass_ms(m, in, full, verified));
  for (const Method method : in.run.methods) {
    const MethodSpec& spec = spec_of(method);
    if (spec.is_baseline() || !drafts_chains(spec, in.options)) continue;
    const AcceptanceCurves alphas = assumed_curves(spec, in.options, assumed);
    const LoopCosts costs{.lanes = in.run.lanes};
    const auto gammas =
        choose_gammas(spec, steps, alphas, in.options.gammas(), in.options.gammas(), chosen, costs);
    if (!gammas) continue;  // no acceptance is known to assume
    RoundForecast round = *predicted_round(spec, steps, alphas, *gammas, costs);
    // However short the drafts, all of this comes over the bus in a round.
    const std::int64_t of_drafts =
        gammas->gamma * f.memory.passes[spec.pass(0)].far_at(in.run.max_prompt);
    if (spec.speculates()) {
      round.ms = std::max(round.ms, transfer_ms(m, {f.far.bus_bytes + of_drafts, 0}));
    }
    f.methods.push_back({&spec, *gammas, round.ms_per_token()});
  }
  return f;
}

}  // namespace triforce
