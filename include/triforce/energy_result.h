// What a case's tokens took of energy and money, as results hold it (report.h).
#pragma once
#include <optional>

#include "triforce/energy.h"
#include "triforce/timing_result.h"

namespace triforce {

struct CaseEnergy {
  Distribution joules_per_token;
  std::optional<double> saving, saving_ci95_low, saving_ci95_high;
  ByDomain per_token, above_idle;
  std::optional<double> watts;
};
void fields(auto& v, CaseEnergy& e) {
  v("joules_per_token", e.joules_per_token,
    "energy of all domains that were read, per generated token over the timed samples, J; prefill "
    "is no part of it");
  v("saving", e.saving,
    "joules_per_token of the baseline over that of this case, paired as speedup.value; null: this "
    "is it, or the run has none");
  v("saving_ci95_low", e.saving_ci95_low, "95% confidence interval of saving, lower end");
  v("saving_ci95_high", e.saving_ci95_high, "95% confidence interval of saving, upper end");
  v("per_token", e.per_token, "energy over tokens, both summed over the timed samples, J");
  v("above_idle", e.above_idle,
    "the same less what context.energy.sensors.idle_watts makes in their time, J");
  v("watts", e.watts, "energy over decode time, both summed over the timed samples, W");
}

struct CaseCost {
  double eur_per_hour = 0;
  std::optional<double> eur_per_million_tokens;
};
// tokens_per_s: nullopt if nothing was measured.
CaseCost cost_at(double eur_per_hour, const std::optional<double>& tokens_per_s);
void fields(auto& v, CaseCost& c) {
  v("eur_per_hour", c.eur_per_hour, "price of the machine (--price)");
  v("eur_per_million_tokens", c.eur_per_million_tokens,
    "eur_per_hour at timing.tokens_per_s: of decoding, without prefill");
}

}  // namespace triforce
