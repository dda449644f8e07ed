// Energy of a run by where it goes, as its result holds it (report.h).
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace triforce {

// Energy or power of each domain, joules or watts as its owner says; nullopt: not known.
struct ByDomain {
  std::optional<double> processor, memory, gpu;
  // Sum of those that are known; nullopt: none is.
  std::optional<double> total() const;
  friend bool operator==(const ByDomain&, const ByDomain&) = default;
};
inline constexpr std::array kDomainNames = {"processor", "memory", "gpu"};
inline constexpr std::array kDomains = {&ByDomain::processor, &ByDomain::memory, &ByDomain::gpu};
static_assert(kDomainNames.size() == kDomains.size());
// Of the domains that both have.
ByDomain operator+(const ByDomain& a, const ByDomain& b);
ByDomain operator-(const ByDomain& a, const ByDomain& b);
ByDomain operator*(double factor, const ByDomain& a);

void fields(auto& v, ByDomain& d) {
  v("processor", d.processor, "of the processors' packages; null: not read");
  v("memory", d.memory, "of the memory modules; null: not read");
  v("gpu", d.gpu, "of the GPUs, their memory included; null: not read");
}

// An EnergySensor says how a domain is read, on the machine of rank 0.
struct EnergySensor {
  std::string domain;                 // of kDomainNames
  std::optional<std::string> source;  // nullopt: it is not read
  std::optional<std::string> unread;  // why
  std::optional<double> idle_watts;   // of all ranks
};
void fields(auto& v, EnergySensor& s) {
  v("domain", s.domain, "processor, memory or gpu");
  v("source", s.source,
    "what its energy was read from: RAPL (Linux powercap), the energy counter of NVML, or samples "
    "of NVML's power; null: it was not read");
  v("unread", s.unread, "why it was not read, one line; null: it was");
  v("idle_watts", s.idle_watts,
    "power during a second in which this run waited, before it loaded the models; what others did "
    "is in it; null: not read");
}

// Where the energy of a measurement went, joules. The parts follow each other without gaps.
struct EnergySpent {
  ByDomain prefill, warmup, decode, other;
  ByDomain whole() const { return prefill + warmup + decode + other; }
};
void fields(auto& v, EnergySpent& e) {
  v("prefill", e.prefill, "prefill of the target and of the methods' caches, J");
  v("warmup", e.warmup, "generations that are warm-ups, and the pass before the first prompt, J");
  v("decode", e.decode, "timed generations, J; a baseline counts where it was generated");
  v("other", e.other, "auto's trials, single passes, comparisons, building of caches, J");
}

struct RunEnergy {
  std::vector<EnergySensor> sensors;  // one a domain
  std::optional<EnergySpent> spent;
  // Of all domains, W; nullopt: not known.
  ByDomain idle_watts() const;
};
void fields(auto& v, RunEnergy& e) {
  v.named("sensors", e.sensors, &EnergySensor::domain, kDomainNames, "how each domain was read");
  v("spent", e.spent,
    "while these cases were at work, of all ranks: from the first prefill to the end of the last "
    "prompt, loading left out; null: nothing was read");
}

}  // namespace triforce
