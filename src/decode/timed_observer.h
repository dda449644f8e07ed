#pragma once
#include "model/observers.h"
#include "triforce/phase_timer.h"

namespace triforce {

// An observer whose work counts as the phase kRebuild. What it is made with outlives it.
class TimedObserver final : public ForwardingObserver {
 public:
  TimedObserver(LayerObserver& timed, PhaseTimer& timer)
      : ForwardingObserver(timed), timer_(timer) {}
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override {
    const PhaseTimer::Scope scope(timer_, Phase::kRebuild);
    ForwardingObserver::on_range(layer, q, kv, mass);
  }

 private:
  PhaseTimer& timer_;
};

}  // namespace triforce
