#include "app/sweep_estimate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "app/plan_report.h"
#include "forecast/forecast.h"
#include "measure/measure.h"
#include "options/models.h"
#include "options/settings.h"

namespace triforce {
namespace {

// More cases are not worth their planning.
constexpr std::size_t kMostCases = 2000;

// This machine as one GPU: all that a pass reads comes from its device's memory.
MachineSpec machine_of(double read_gbs) {
  MachineSpec m;
  m.name = "this machine";
  m.gpu_memory_bytes = m.host_memory_bytes = std::int64_t{1} << 60;
  m.gpu_gbs = m.bus_gbs = m.bus_together_gbs = m.host_gbs = read_gbs;
  return m;
}

class Estimate {
 public:
  // If no machine is given, it estimates for this one, by what it achieves now.
  Estimate(const RunConfig& first, std::optional<MachineSpec> machine)
      : machine_(std::move(machine)) {
    if (machine_) return;
    session_ = open_session(session_options(first));
    const auto bandwidths = bandwidths_now(*session_->backend);
    if (bandwidths) read_gbs_ = bandwidths->read_gbs;
    gemm_gflops_ = gemm_gflops_now(*session_->backend, session_->dtype);
  }

  bool possible() const { return machine_ || read_gbs_; }
  void add(const std::vector<SweepCase>& cases, const std::vector<std::size_t>& group) {
    std::set<std::string> baselines;
    group_prefill_ms_ = 0;
    for (const std::size_t i : group) {
      try {
        add_case(*cases[i].config, group.size() > 1, baselines);
      } catch (const Error&) {  // what it is refused for its row says
        ++left_out_;
      }
    }
    prefill_ms_ += group_prefill_ms_;
  }

  std::string text() const {
    const char* const unlike =
        machine_ ? "have no room there" : "have ranks or KV rows in host memory";
    if (counted_ == 0) {
      return fmt::format("No estimate of the time: all cases {}, or do not run.", unlike);
    }
    const std::string time = about_time((prefill_ms_ + decode_ms_) / 1e3);
    std::string out =
        machine_ ? fmt::format("About {} on {}, by the times of a token that plan predicts", time,
                               machine_->name)
                 : fmt::format(
                       "About {} on this machine, by the bytes that passes read at {:.3g} "
                       "GB/s (measured now)",
                       time, *read_gbs_);
    out += gemm_gflops_ ? fmt::format(" and prefill at {:.3g} GFLOP/s", *gemm_gflops_)
                        : std::string(", prefill not counted");
    out += "; loading the models is not counted";
    if (left_out_ > 0) {
      out += fmt::format(", nor are {} case{} that {}, or do not run", left_out_,
                         left_out_ == 1 ? "" : "s", unlike);
    }
    return out + '.';
  }

 private:
  // nullopt: such a case is not counted.
  std::optional<Forecast> forecast_there(const RunConfig& c) const {
    const ModelPair models = choose_models(c, any_method(c.methods, &MethodSpec::has_drafter));
    const PlanInput in = device_input(c, plan_input(c, models, DType::kF16, nullptr));
    MachinePlan p = plan_for_machine(c, in, *machine_);
    if (!p.refusal.empty() || !p.forecast.fits()) return std::nullopt;
    return std::move(p.forecast);
  }

  // The longest prompt's prefill is that of all in the group.
  std::optional<Forecast> forecast_here(const RunConfig& c) {
    if (c.tp > 1 || c.kv_offload || c.on_chip) return std::nullopt;
    PlanInput in = plan_input(c, choose_models(c, any_method(c.methods, &MethodSpec::has_drafter)),
                              session_->dtype, session_->backend.get());
    if (gemm_gflops_) {
      const double operations = static_cast<double>(c.prompts) * plan_memory(in).prefill_operations;
      group_prefill_ms_ = std::max(group_prefill_ms_, operations / *gemm_gflops_ / 1e6);
    }
    in.backend = nullptr;
    in.run.homes = {};
    return make_forecast(machine_of(*read_gbs_), in, {c.auto_gamma, c.auto_inner_gamma});
  }

  void add_case(const RunConfig& c, bool shares, std::set<std::string>& baselines) {
    const std::optional<Forecast> f = machine_ ? forecast_there(c) : forecast_here(c);
    ++(f ? counted_ : left_out_);
    if (!f) return;
    const std::int64_t later = std::min(kLaterWarmupTokens, c.gen_len) * (c.prompts - 1);
    const double tokens =
        static_cast<double>(c.prompts * c.repetitions * c.gen_len) +
        static_cast<double>(c.warmup) * static_cast<double>(c.gen_len + (shares ? later : 0));
    const SamplingParams& s = c.speculation.sampling;
    const std::string sampling =
        fmt::format("{} {} {} {} {} {} {}", c.prefill, c.turn, s.temperature, s.top_p, s.top_k,
                    static_cast<int>(c.speculation.acceptance), c.speculation.ignore_eos);
    const bool has_baseline = std::ranges::find(c.methods, kBaselineMethod) != c.methods.end();
    // Where cases sample alike their baseline is generated once.
    if (baselines.insert(sampling).second && has_baseline)
      decode_ms_ += tokens * f->autoregressive_ms;
    for (const MethodForecast& m : f->methods) decode_ms_ += tokens * m.ms_per_token;
  }

  std::optional<MachineSpec> machine_;
  std::optional<Session> session_;
  std::optional<double> read_gbs_, gemm_gflops_;
  double prefill_ms_ = 0, group_prefill_ms_ = 0, decode_ms_ = 0;
  std::int64_t counted_ = 0, left_out_ = 0;
};

}  // namespace

std::string about_time(double seconds) {
  if (seconds < 1) return "a second";
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  const auto minutes = static_cast<std::int64_t>(std::lround(seconds / 60));
  if (minutes < 90) return fmt::format("{} min", minutes);
  if (minutes < 48 * 60) return fmt::format("{} h {} min", minutes / 60, minutes % 60);
  return fmt::format("{} days", (minutes + 720) / 1440);
}

std::string estimate_of(const CommandLine& line, const SliceOfCases& mine) {
  std::optional<MachineSpec> machine;
  if (!line.config.machine.empty()) machine = find_machines(line.config.machine).front();
  std::size_t cases = 0;
  for (const auto& group : mine.groups) cases += group.size();
  if (cases == 0) return "Nothing to measure.";
  if (cases > kMostCases) {
    return fmt::format("No estimate of the time: there are more than {} cases.", kMostCases);
  }
  try {
    Estimate estimate(*line.cases[mine.groups.front().front()].config, std::move(machine));
    if (!estimate.possible()) {
      return "No estimate of the time: too little memory to measure the device's bandwidth.";
    }
    for (const auto& group : mine.groups) estimate.add(line.cases, group);
    return estimate.text();
  } catch (const Error& e) {
    return fmt::format("No estimate of the time: {}", e.what());
  }
}

}  // namespace triforce
