#pragma once
#include <vector>

#include "model/streaming_cache.h"
#include "triforce/communicator.h"

namespace triforce {

// Cross-model retrieval (SpecExtend, arXiv 2505.20776): the rows of a drafter's cache are chosen by
// the attention of the model that verifies it. It is a streaming cache of `budget` rows, which has
// chunks of the text where that has sinks:
//
//   rows      [0, chosen_rows())               [chosen_rows(), budget)
//   tokens    chunk 0 and those that the       the most recent ones
//             target attended to most, in
//             the order of the text
//
// Until a verification has been observed they are the first chunks. Each verification chooses anew,
// by the mass that the target's last layer paid to each chunk: all KV heads and queries together,
// of a draft tree the queries before it. Only whole chunks before the recent tokens are chosen. So
// up to a chunk of tokens between them is not seen, nor is what leaves the recent ones before the
// next choice. Positions are rows, as in every streaming cache: a chunk's keys are read at its
// place among the chosen ones. Rows of all tokens are kept beside, as the drafter made them.
class CrossModelCache : public StreamingCache, public LayerObserver {
 public:
  // The model whose passes it observes, or this one's share of its `ranks`. `capacity`: tokens of
  // its full cache, which the sequence never exceeds.
  struct Target {
    int layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t capacity = 0;
    int ranks = 1;
  };
  // As a streaming cache; budget is at least two chunks of chunk_size tokens. `ranks` connects
  // those of the target, which all choose the same, and outlives it; null: there is one. Throws
  // Error(kResources).
  CrossModelCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t budget,
                  std::int64_t max_append, DType type, int chunk_size, const Target& target,
                  Communicator* ranks = nullptr, LaneMemory* memory = nullptr);
  // Returns the rows that hold chosen chunks.
  static std::int64_t chosen_rows(std::int64_t budget, int chunk_size) {
    return budget / 2 / chunk_size * chunk_size;
  }
  // Returns the memory that it takes, tagged as workspace, beside the caches.
  static std::int64_t workspace_bytes(int kv_heads, std::int64_t budget, int chunk_size,
                                      const Target& target);
  // Returns the scratch of the passes that it observes.
  static Backend::ScratchShape scratch_shape(int chunk_size, const Target& target) {
    return StoredCache::scratch_shape(kMaxBatchInvariantRows, target.capacity, target.heads,
                                      target.kv_heads, target.head_dim, chunk_size);
  }

  std::int64_t capacity() const override { return target_.capacity; }
  HeldTokens held(std::int64_t position) const override;
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;

  bool begin_pass(std::int64_t n, RowPath path) override;
  TensorView mass(int layer) override;
  int mass_chunk() const override { return chunk_size_; }
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override;

 protected:
  // Fills the chosen rows by the mass of the verification that was observed last.
  virtual void choose();

 private:
  void add(TensorView parts, TensorView sum);
  void forget_passes() { observes_ = is_complete_ = false; }

  int chunk_size_;
  Target target_;
  Communicator* ranks_;
  KvStorage all_;    // every committed token, unrotated
  Lease passes_;     // of scratch_shape()
  Tensor mass_;      // [target's Hkv, chunks] f32
  Tensor of_ranks_;  // [ranks, chunks] f32: the sum of each one's heads; none of one rank
  Tensor of_heads_;  // [1, chunks] f32: the sum of all heads
  Tensor ids_;       // [Hkv, chosen chunks] i32
  std::vector<std::int32_t> chosen_, marked_chosen_;  // in the order of the text; empty: the first
  std::vector<std::int32_t> for_heads_;               // them once a head; scratch
  bool observes_ = false;                             // the pass in progress
  // Since the last choice all heads of a pass were seen: the sums are of such passes.
  bool is_complete_ = false;
  int heads_seen_ = 0;  // of the last layer of the pass in progress
};

}  // namespace triforce
