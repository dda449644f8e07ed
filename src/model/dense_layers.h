// The layers of a small cache that read every token (arXiv 2404.11912, Table 1 and figure 3: the
// first two layers, whose attention is not sparse).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "triforce/kv_cache.h"

namespace triforce {

// The first `count` layers of a small cache of the target read `full` instead.
struct SharedLayers {
  FullCache* full = nullptr;  // may be null if there are none
  int count = 0;
};
// The KV heads that the small cache stores itself of each layer: all but those of shared layers.
std::vector<HeadRange> stored_heads(int layers, int kv_heads, const SharedLayers& shared);

// DenseLayers are those layers in the passes of a small cache. Their rows lie in the full cache's
// own memory, at absolute positions. Rows up to full.length() are the full cache's. A pass of the
// small cache that feeds such tokens again computes their rows anew, and end() puts back what was
// there. Rows beyond it hold what the small cache has fed and the full cache not yet. A pass of the
// full cache or of another small one may overwrite them. From then on begin() wants those tokens
// truncated and fed again, so that no pass reads another token's row.
class DenseLayers {
 public:
  // The first shared.count >= 1 layers of shared.full, which outlives this and has their KV heads
  // near. In passes of up to max_append rows. Throws Error(kResources).
  DenseLayers(Backend& backend, const SharedLayers& shared, std::int64_t max_append);
  // Returns how much memory it takes, tagged as workspace.
  static std::int64_t bytes(int count, int kv_heads, int head_dim, std::int64_t max_append,
                            KvFormat format, int granule);

  int count() const { return saved_.layers(); }
  // Tokens of the sequence for which there is room.
  std::int64_t capacity() const;
  // A pass over n more tokens of a small cache that holds `length`.
  Placement begin(std::int64_t length, std::int64_t n);
  void end();
  // Whether the rows of n tokens from `length` on, which the small cache has fed, are not yet the
  // full cache's. Throws kInternal if some are, or if a pass has overwritten them since.
  bool has_fed(std::int64_t length, std::int64_t n) const;
  int ranges(int l) const;
  KvView range(int l, int i) const;

 private:
  FullCache& full_;
  KvStorage saved_;  // the full cache's rows that the pass overwrites
  std::int64_t first_saved_ = 0, n_saved_ = 0;
  std::uint64_t tail_ = 0;  // FullCache::tail() of its last pass
};

}  // namespace triforce
