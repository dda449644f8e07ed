#include <algorithm>
#include <cmath>

#include "compare/check.h"
#include "report/printers.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

constexpr double kTolerance = 1e-6;

bool near(double a, double b) {
  return std::abs(a - b) <= kTolerance * std::max({std::abs(a), std::abs(b), 1e-6});
}

std::string shown(const std::optional<double>& x) {
  return x ? fmt::format("{}", *x) : std::string("null");
}

// A statistic against what follows from the samples; null is not looked at.
void check_value(const CheckedCase& c, std::string_view name, const std::optional<double>& found,
                 const std::optional<double>& expected) {
  if (!found || (expected && near(*found, *expected))) return;
  c.contradicts("{}: expected {}, which follows from what stands beside, found {}", name,
                shown(expected), *found);
}

// Ends and, where it is given, the value between them.
void check_order(const CheckedCase& c, std::string_view name, const std::optional<double>& low,
                 const std::optional<double>& high, const std::optional<double>& value = {}) {
  if (low.has_value() != high.has_value()) {
    c.contradicts("{}: expected both ends of an interval or none, found {} and {}", name,
                  shown(low), shown(high));
  }
  if (!low || !std::isfinite(*low) || !std::isfinite(*high)) return;
  const double slack = kTolerance * std::max(std::abs(*low), std::abs(*high));
  const double middle = value.value_or(*low);
  const bool between =
      !std::isfinite(middle) || (*low <= middle + slack && middle <= *high + slack);
  if (*low > *high || !between) {
    c.contradicts("{}: expected low <= {} <= high, found {} to {}", name,
                  value ? fmt::format("{}", *value) : std::string("value"), *low, *high);
  }
}

// Returns the samples that statistics are of: timed ones that generated something.
std::vector<const Sample*> measured_samples(const CaseResult& c) {
  std::vector<const Sample*> samples = timed_samples(c);
  std::erase_if(samples, [](const Sample* s) { return s->tokens < 1; });
  return samples;
}

void check_distribution(const CheckedCase& c, std::string_view name, const Distribution& found,
                        const Distribution& expected) {
  if (found.n != expected.n) {
    c.contradicts("{}.n: expected {}, as many as timing.samples, found {}", name, expected.n,
                  found.n);
  }
  const auto check = [&](std::string_view of, std::optional<double> Distribution::*member) {
    check_value(c, fmt::format("{}.{}", name, of), found.*member, expected.*member);
  };
  check("geometric_mean", &Distribution::geometric_mean);
  check("ci95_low", &Distribution::ci95_low);
  check("ci95_high", &Distribution::ci95_high);
  check("mean", &Distribution::mean);
  check("median", &Distribution::median);
  check("stddev", &Distribution::stddev);
  check("min", &Distribution::min);
  check("max", &Distribution::max);
  check("p90", &Distribution::p90);
  check("p95", &Distribution::p95);
  check("p99", &Distribution::p99);
  if (found.ci95_over && found.ci95_over != expected.ci95_over) {
    c.contradicts("{}.ci95_over: expected {}, found {}", name,
                  expected.ci95_over ? to_string(*expected.ci95_over) : "null",
                  to_string(*found.ci95_over));
  }
}

void check_times(const CheckedCase& c) {
  ByPrompt times;
  for (const Sample* s : measured_samples(c.result)) {
    times[s->decoded_in()].push_back(s->ms_per_token());
  }
  check_distribution(c, "timing.ms_per_token", c.result.timing.ms_per_token,
                     summarize(groups_of(std::move(times))));
  check_value(c, "timing.tokens_per_s", c.result.timing.tokens_per_s,
              tokens_per_s(c.result.timing.samples));
}

// Passes of each kind in a generation: the proposer runs one for each token that it drafts, a
// verifier one a round.
double bytes_read(const Sample& s, const std::vector<PassTraffic>& traffic) {
  double bytes = 0;
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    const std::int64_t passes = s.levels.empty() ? s.rounds
                                : i == 0         ? s.levels.front().drafted
                                                 : s.levels[i - 1].rounds;
    bytes += static_cast<double>(passes) * static_cast<double>(traffic[i].bytes_per_pass);
  }
  return bytes;
}

void check_noise(const CheckedCase& c) {
  const Timing& t = c.result.timing;
  if (!t.noise_pct) return;
  ByPrompt per_byte;
  for (const Sample* s : measured_samples(c.result)) {
    const double bytes =
        s->levels.size() + 1 == c.result.traffic.size() ? bytes_read(*s, c.result.traffic) : 0;
    if (!(bytes > 0)) {  // nobody knows what was read
      if (!(*t.noise_pct >= 0)) {
        c.contradicts("timing.noise_pct: expected at least 0, found {}", *t.noise_pct);
      }
      return;
    }
    per_byte[s->prompt].push_back(s->decode_ms / bytes);
  }
  check_value(c, "timing.noise_pct", t.noise_pct, noise_percent(groups_of(std::move(per_byte))));
}

void check_batch(const CheckedCase& c) {
  if (!c.result.batch) return;
  const std::optional<double>& alone = c.result.batch->baseline_alone_ms_per_token;
  const std::optional<double>& all = c.result.timing.tokens_per_s;
  check_value(c, "batch.gain_over_alone", c.result.batch->gain_over_alone,
              alone && all ? std::optional(*all * *alone / 1000) : std::nullopt);
}

void check_speedup(const CheckedCase& c) {
  if (!c.result.speedup) return;
  const Speedup& s = *c.result.speedup;
  check_order(c, "speedup.ci95", s.ci95_low, s.ci95_high, s.value);
  check_order(c, "speedup.end_to_end_ci95", s.end_to_end_ci95_low, s.end_to_end_ci95_high,
              s.end_to_end);
  for (const auto& [name, x] : {std::pair{"value", &s.value}, std::pair{"predicted", &s.predicted},
                                std::pair{"end_to_end", &s.end_to_end}}) {
    if (*x && !(**x > 0)) c.contradicts("speedup.{}: expected above 0, found {}", name, **x);
  }
  const CaseResult* const baseline = baseline_of(c.run);
  if (baseline == nullptr || baseline->name != s.baseline) return;
  const std::optional<Estimate> expected =
      paired_ratio(ms_per_token(*baseline), ms_per_token(c.result));
  std::optional<double> value, low, high;
  if (expected) {
    value = expected->value;
    if (expected->interval) {
      low = expected->interval->low;
      high = expected->interval->high;
    }
  }
  check_value(c, "speedup.value", s.value, value);
  check_value(c, "speedup.ci95_low", s.ci95_low, low);
  check_value(c, "speedup.ci95_high", s.ci95_high, high);
}

// Generations that were repeated with the same outcome count once in an interval, and each time in
// its rate: that need not lie in it.
void check_rates(const CheckedCase& c) {
  for (const LevelResult& level : c.result.acceptance) {
    if (!level.ci95) continue;
    const auto check = [&](std::string_view name, const Interval& i) {
      check_order(c, fmt::format("acceptance.{}.ci95.{}", level.name, name), i.low, i.high);
    };
    check("acceptance_rate", level.ci95->acceptance_rate);
    check("alpha", level.ci95->alpha);
    check("accepted_per_drafted", level.ci95->accepted_per_drafted);
    check("mean_accepted_length", level.ci95->mean_accepted_length);
  }
  if (const auto& d = c.result.divergence)
    check_order(c, "divergence.ci95", d->ci95_low, d->ci95_high);
  if (c.result.recovery) {
    check_order(c, "recovery.ci95", c.result.recovery->ci95_low, c.result.recovery->ci95_high);
  }
}

void check_cost(const CheckedCase& c) {
  if (!c.result.cost) return;
  const CaseCost& cost = *c.result.cost;
  const ParamValue* const price = find_param(c.result.params, "price");
  const double* const given = price != nullptr ? std::get_if<double>(price) : nullptr;
  check_value(c, "cost.eur_per_hour", cost.eur_per_hour,
              given != nullptr ? *given : std::abs(cost.eur_per_hour));
  check_value(c, "cost.eur_per_million_tokens", cost.eur_per_million_tokens,
              cost_at(cost.eur_per_hour, c.result.timing.tokens_per_s).eur_per_million_tokens);
}

// What a counter counted is not below 0.
void check_counted(const CheckedCase& c, const std::string& name, const ByDomain& joules) {
  for (std::size_t i = 0; i < kDomains.size(); ++i) {
    const std::optional<double>& x = joules.*kDomains[i];
    if (x && !(*x >= 0)) {
      c.contradicts("{}.{}: expected at least 0, found {}", name, kDomainNames[i], *x);
    }
  }
}

void check_energy(const CheckedCase& c) {
  for (std::size_t i = 0; i < c.result.timing.samples.size(); ++i) {
    const Sample& s = c.result.timing.samples[i];
    check_counted(c, fmt::format("timing.samples[{}].energy", i), s.energy.value_or(ByDomain{}));
  }
  if (!c.result.energy) return;
  const CaseEnergy& found = *c.result.energy;
  const ByDomain idle = c.run.context.energy.value_or(RunEnergy{}).idle_watts();
  const CaseEnergy e = energy_of(c.result, baseline_of(c.run), idle).value_or(CaseEnergy{});
  check_distribution(c, "energy.joules_per_token", found.joules_per_token, e.joules_per_token);
  const auto check = [&](std::string_view name, const std::optional<double>& its,
                         const std::optional<double>& expected) {
    check_value(c, fmt::format("energy.{}", name), its, expected);
  };
  check("saving", found.saving, e.saving);
  check("saving_ci95_low", found.saving_ci95_low, e.saving_ci95_low);
  check("saving_ci95_high", found.saving_ci95_high, e.saving_ci95_high);
  check("watts", found.watts, e.watts);
  for (std::size_t i = 0; i < kDomains.size(); ++i) {
    check(fmt::format("per_token.{}", kDomainNames[i]), found.per_token.*kDomains[i],
          e.per_token.*kDomains[i]);
    check(fmt::format("above_idle.{}", kDomainNames[i]), found.above_idle.*kDomains[i],
          e.above_idle.*kDomains[i]);
  }
}

}  // namespace

void check_statistics(const CheckedCase& c) {
  check_times(c);
  check_noise(c);
  check_speedup(c);
  check_batch(c);
  check_energy(c);
  check_cost(c);
  check_rates(c);
}

}  // namespace triforce
