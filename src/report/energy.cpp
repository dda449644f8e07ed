#include "triforce/energy.h"

#include "triforce/energy_result.h"

namespace triforce {
namespace {

template <class Combine>
ByDomain combined(const ByDomain& a, const ByDomain& b, const Combine& combine) {
  ByDomain out;
  for (const auto domain : kDomains) {
    if (a.*domain && b.*domain) out.*domain = combine(*(a.*domain), *(b.*domain));
  }
  return out;
}

}  // namespace

std::optional<double> ByDomain::total() const {
  std::optional<double> sum;
  for (const auto domain : kDomains) {
    if (this->*domain) sum = sum.value_or(0) + *(this->*domain);
  }
  return sum;
}

ByDomain operator+(const ByDomain& a, const ByDomain& b) {
  return combined(a, b, [](double x, double y) { return x + y; });
}
ByDomain operator-(const ByDomain& a, const ByDomain& b) {
  return combined(a, b, [](double x, double y) { return x - y; });
}
ByDomain operator*(double factor, const ByDomain& a) {
  return combined(a, a, [&](double x, double) { return factor * x; });
}

ByDomain RunEnergy::idle_watts() const {
  ByDomain watts;
  for (const EnergySensor& s : sensors) {
    for (std::size_t i = 0; i < kDomains.size(); ++i) {
      if (s.domain == kDomainNames[i]) watts.*kDomains[i] = s.idle_watts;
    }
  }
  return watts;
}

CaseCost cost_at(double eur_per_hour, const std::optional<double>& tokens_per_s) {
  CaseCost cost{eur_per_hour, std::nullopt};
  if (tokens_per_s && *tokens_per_s > 0) {
    cost.eur_per_million_tokens = eur_per_hour / (3600 * *tokens_per_s) * 1e6;
  }
  return cost;
}

}  // namespace triforce
