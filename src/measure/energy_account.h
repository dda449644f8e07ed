// Where the energy of a measurement goes.
#pragma once
#include <functional>
#include <optional>
#include <utility>

#include "triforce/energy.h"

namespace triforce {

// Reads the meters where one part of a measurement ends and the next begins, so that the parts
// leave nothing out. It counts between resume() and pause(), any number of times.
class EnergyAccount {
 public:
  // What the meters of all ranks have counted, J; empty: there are none.
  using Read = std::function<ByDomain()>;
  using Part = ByDomain EnergySpent::*;

  explicit EnergyAccount(Read read) : read_(std::move(read)) {}

  void resume() {
    if (read_) last_ = read_();
  }
  void pause() { count_as(&EnergySpent::other); }
  // Runs `body` and counts it as that part; returns what it took, J.
  template <class Body>
  ByDomain during(Part part, const Body& body) {
    count_as(&EnergySpent::other);
    body();
    return count_as(part);
  }
  // nullopt: there are no meters, or the beginning was not read.
  std::optional<EnergySpent> spent() const { return read_ ? spent_ : std::nullopt; }
  // Begins with what an earlier process has spent; nullopt: it did not read it.
  void restore(const std::optional<EnergySpent>& spent) { spent_ = spent; }

 private:
  ByDomain count_as(Part part) {
    if (!read_) return {};
    const ByDomain now = read_(), passed = now - std::exchange(last_, now);
    if (spent_) *spent_.*part = *spent_.*part + passed;
    return passed;
  }

  static constexpr ByDomain kNone = {0, 0, 0};
  Read read_;
  ByDomain last_;
  std::optional<EnergySpent> spent_ = EnergySpent{kNone, kNone, kNone, kNone};
};

}  // namespace triforce
