// Measures how much of the full cache's attention falls on tokens that a small cache held.
#pragma once
#include <cstdint>
#include <vector>

#include "model/full_cache.h"
#include "model/row_count.h"
#include "triforce/metrics.h"

namespace triforce {

// Observes the passes of one small cache, whatever it is, and the verifications by the full cache,
// and adds each verification's first row to counters: what that row sees in the small cache is
// copied in the pass that feeds its token there, and its attention over the full cache is computed
// once more in the verification, for this row alone, with the probability of every token. Nothing
// that passes compute changes; they are not recorded, and take longer.
class RecoveryMeter {
 public:
  // `full` and `small` are caches of a model of that shape and outlive the meter. Throws
  // Error(kResources).
  RecoveryMeter(Backend& backend, const FullCache& full, const StoredCache& small, int layers,
                int heads, int kv_heads, int head_dim);
  // Of memory that it takes besides a lease of scratch_shape(): workspace.
  static std::int64_t bytes(int heads, int kv_heads, int head_dim, std::int64_t capacity,
                            DType activation);
  static Backend::ScratchShape scratch_shape(int heads, int kv_heads, int head_dim,
                                             std::int64_t capacity) {
    return StoredCache::scratch_shape(1, capacity, heads, kv_heads, head_dim, 1);
  }

  LayerObserver& drafts() { return drafts_; }
  LayerObserver& verifications() { return verifications_; }

  // `drafts`: whether a pass of the small cache precedes each verification. Where auto chose a
  // gamma of 0 there is none, and nothing is measured.
  void restart(bool drafts = true) {
    counters_ = {};
    held_.position = -1;
    expects_drafts_ = drafts;
  }
  const RecoveryCounters& counters() const { return counters_; }  // since restart()

 private:
  struct Drafts final : LayerObserver {
    explicit Drafts(RecoveryMeter& m) : meter(m) {}
    bool begin_pass(std::int64_t n, RowPath path) override;
    TensorView mass(int /*layer*/) override { return {}; }
    int mass_chunk() const override { return 0; }
    void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override;
    RecoveryMeter& meter;
  };
  struct Verifications final : LayerObserver {
    explicit Verifications(RecoveryMeter& m) : meter(m) {}
    bool begin_pass(std::int64_t n, RowPath path) override;
    TensorView mass(int /*layer*/) override { return {}; }
    int mass_chunk() const override { return 0; }
    void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override;
    RecoveryMeter& meter;
  };
  // Of the first row of a verification: q[1, h, d], the query heads of kv.
  void measure(int layer, TensorView q, const KvView& kv);

  Backend& b_;
  const FullCache& full_;
  const StoredCache& small_;
  int layers_, kv_heads_;
  Lease lease_;
  RowCount length_;  // of the full cache with the row's token
  Tensor mass_;      // [Hkv, capacity] f32
  Tensor attended_;  // [1, H d]: what attention gives, not used
  std::vector<float> host_mass_;
  HeldTokens held_;
  bool expects_drafts_ = true;
  std::vector<double> shares_;  // of each layer, of the heads seen so far
  std::int64_t heads_seen_ = 0;
  RecoveryCounters counters_;
  Drafts drafts_{*this};
  Verifications verifications_{*this};
};

}  // namespace triforce
