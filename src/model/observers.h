// Observers of other observers.
#pragma once
#include "triforce/kv_cache.h"

namespace triforce {

// Passes every call on to another observer, which outlives it. One that does something else besides
// derives from it.
class ForwardingObserver : public LayerObserver {
 public:
  explicit ForwardingObserver(LayerObserver& to) : to_(to) {}
  bool begin_pass(std::int64_t n, RowPath path) override { return to_.begin_pass(n, path); }
  TensorView mass(int layer) override { return to_.mass(layer); }
  int mass_chunk() const override { return to_.mass_chunk(); }
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override {
    to_.on_range(layer, q, kv, mass);
  }

 private:
  LayerObserver& to_;
};

// Both see a pass, `first` before `second`, those of them that want to. Attention writes the mass
// where the first wants it, or else the second, and on_range() shows it to both: where both want it
// they have chunks of one size. Both outlive it.
class BothObservers final : public LayerObserver {
 public:
  BothObservers(LayerObserver& first, LayerObserver& second) : first_(first), second_(second) {}
  bool begin_pass(std::int64_t n, RowPath path) override {
    first_sees_ = first_.begin_pass(n, path);
    second_sees_ = second_.begin_pass(n, path);
    return first_sees_ || second_sees_;
  }
  TensorView mass(int layer) override {
    const TensorView a = first_sees_ ? first_.mass(layer) : TensorView{},
                     b = second_sees_ ? second_.mass(layer) : TensorView{};
    TF_CHECK(a.data == nullptr || b.data == nullptr || first_.mass_chunk() == second_.mass_chunk(),
             "mass of chunks of {} and {} tokens", first_.mass_chunk(), second_.mass_chunk());
    of_first_ = a.data != nullptr;
    return of_first_ ? a : b;
  }
  int mass_chunk() const override { return of_first_ ? first_.mass_chunk() : second_.mass_chunk(); }
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override {
    if (first_sees_) first_.on_range(layer, q, kv, mass);
    if (second_sees_) second_.on_range(layer, q, kv, mass);
  }

 private:
  LayerObserver &first_, &second_;
  bool first_sees_ = false, second_sees_ = false;  // the pass in progress
  bool of_first_ = false;                          // the mass that was asked for last
};

}  // namespace triforce
