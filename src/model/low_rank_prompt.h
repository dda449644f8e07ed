#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "model/full_cache.h"

namespace triforce {

// The keys of a prompt in low-rank form (ShadowKV, arXiv 2410.21465, section 4). Before RoPE those
// of all KV heads of a layer are K[tokens, Hkv d]. K is nearly A[tokens, rank] B[rank, Hkv d], with
// the least sum of squared errors. The host finds B: it takes time by the square of Hkv d for each
// token, and by its cube for each layer. Some chunks keep their own keys: chunk 0, those whose keys
// differ most from their mean, and the last ones. Everything here is of the layers that select.
class LowRankPrompt {
 public:
  struct Shape {
    int first_layer = 0, layers = 0;  // layers [first_layer, layers) of the model
    int kv_heads = 0, head_dim = 0;
    std::int64_t capacity = 0;  // tokens
    int chunk_size = 8;         // tokens
    int rank = 0;               // a multiple of LowRankKeys::kRankStep
    int outlier_chunks = 0;     // of each KV head
    DType type = DType::kF32;   // of A, of B and of KV rows

    std::int64_t width() const { return std::int64_t{kv_heads} * head_dim; }
    std::int64_t chunks() const { return capacity / chunk_size; }
    // What is kept of each key, and what reading a prompt takes besides.
    std::int64_t key_bytes() const;
    std::int64_t workspace_bytes() const;
    std::int64_t block_rows() const;  // that are read at once, whole chunks
  };
  // Throws Error(kResources).
  LowRankPrompt(Backend& backend, const Shape& shape);
  // Of a key-rank that a user asks for: no more than the dimensions of these KV heads.
  static int rank_of(int asked, int kv_heads, int head_dim);

  // Takes the first `tokens` rows of `full`. go_on(done) is called before each block of rows and
  // after each layer, of which so many are done; false ends it. Returns whether all are done.
  // Throws Error(kNumeric) where keys are not finite.
  bool read(const FullCache& full, std::int64_t tokens, const RopeView& rope,
            const std::function<bool(int done)>& go_on);
  void clear() { tokens_ = exact_ = 0; }
  // Adds so much to scores[., chunks] of these KV heads, of all chunks that there are, that chunks
  // which keep their keys are selected first.
  void favour(int layer, const HeadRange& heads, TensorView scores) const;
  // Those that expand() writes. Chunks before them come first of all that are selected, chunk 0
  // with them: their keys stay.
  ExpandedKeys expanded() const { return {exact_, tokens_}; }
  // The keys of chunks ids[., n] in the rows of dst from the first on, those that stay excepted.
  void expand(int layer, const HeadRange& heads, TensorView ids, const KvView& dst) const;

 private:
  // Keys of rows [from, from + n) of a layer as [n, width], turned back by `rope` unless it is
  // empty. They are there until the next call.
  const float* keys_of(const RowSource& rows, std::int64_t from, std::int64_t n,
                       const RopeView& rope);
  bool read_layer(const RowSource& rows, int index, const RopeView& rope,
                  const std::function<bool(int done)>& go_on);
  void choose_exact(const RowSource& rows, int index);

  Backend& b_;
  Shape shape_;
  Tensor coefficients_;  // [layers, capacity, rank]
  Tensor basis_;         // [layers, Hkv, rank, d]
  Tensor favours_;       // [layers, Hkv, chunks] f32: infinity, or 0
  Tensor block_;         // [block_rows, width] f32
  std::vector<float> host_block_;
  RopeView rope_;
  std::int64_t tokens_ = 0, exact_ = 0;
};

}  // namespace triforce
