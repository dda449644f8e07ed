// The KV caches of one sequence. A model sees only KvCache; which one it is decides what a query
// attends to and where keys live. Lengths count tokens of the sequence, not rows of memory.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "triforce/backend.h"

namespace triforce {

// Memory of one cache: all layers, K and V. Zero-filled, because masked rows are still multiplied.
class KvStorage {
 public:
  // capacity in tokens is rounded up to the backend's granule. Throws Error(kResources).
  KvStorage(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t capacity,
            DType dtype, MemTag tag);
  // `length` is filled in by the cache.
  KvView layer(int l) const;
  std::int64_t capacity() const { return capacity_; }
  int layers() const { return layers_; }
  TensorView bytes_view() const;  // everything, as i32 words

  static std::int64_t bytes(int layers, int kv_heads, int head_dim, std::int64_t capacity,
                            DType dtype, int granule);

 private:
  Buffer buffer_;
  int layers_, kv_heads_, head_dim_;
  std::int64_t capacity_;
  DType dtype_;
};

// Sees each layer right after its attention, while that layer's full rows are on the device.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // Asked before the pass over n rows; false: the pass may be recorded and the hooks skipped.
  virtual bool wants_pass(std::int64_t n) = 0;
  // Where attention shall write the chunk mass of this layer; data == nullptr: not wanted.
  virtual TensorView mass(int layer) = 0;
  virtual int mass_chunk() const = 0;
  // q[n, H, d] rotated queries of the pass.
  virtual void on_layer(int layer, TensorView q, const KvView& kv) = 0;
};

// Keeps the newest query of every layer of the passes it observes: after a prompt, those of its
// last token, from which a retrieval cache selects.
class LastQueries final : public LayerObserver {
 public:
  // [layers, heads, head_dim] in activation_dtype(). Throws Error(kResources).
  LastQueries(Backend& backend, int layers, int heads, int head_dim);
  bool wants_pass(std::int64_t /*n*/) override { return true; }
  TensorView mass(int /*layer*/) override { return {}; }
  int mass_chunk() const override { return 0; }
  void on_layer(int layer, TensorView q, const KvView& kv) override;
  TensorView view() const { return queries_.view(); }

 private:
  Backend& b_;
  Tensor queries_;
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual std::int64_t length() const = 0;     // tokens held
  virtual std::int64_t committed() const = 0;  // tokens truncate() can no longer drop
  virtual std::int64_t capacity() const = 0;   // most tokens of the sequence it can follow
  // Most tokens of one begin(); the throughput path may take more at once than the exact one.
  virtual std::int64_t max_append() const = 0;

  // One forward pass over n new tokens: begin(n), then layer(0) .. layer(L - 1), then end().
  // begin() puts length and positions where ops read them; layer() only returns a view.
  virtual void begin(std::int64_t n) = 0;
  virtual TensorView positions() const = 0;  // [n] i32: what to rotate the new rows by
  virtual KvView layer(int l) = 0;
  virtual void end() = 0;

  virtual void truncate(std::int64_t length) = 0;  // committed() <= length <= length()
  // Tokens before `length` are final: the streaming cache evicts here, the retrieval cache takes
  // the exact rows of the full cache here.
  virtual void commit(std::int64_t length) = 0;

  // The state after the prompt: mark() remembers it (and commits all of it), rewind() returns to it
  // bit for bit, reset() empties the cache for the next prompt.
  virtual void mark() = 0;
  virtual void rewind() = 0;
  virtual void reset() = 0;

  virtual std::uint32_t id() const = 0;  // tells recorded passes over different caches apart
};

// Every token, RoPE at absolute position, append-only; rollback is a shorter length.
class FullCache final : public KvCache {
 public:
  FullCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t capacity,
            std::int64_t max_append, DType dtype);
  ~FullCache() override;
  std::int64_t length() const override;
  std::int64_t committed() const override;
  std::int64_t capacity() const override;
  std::int64_t max_append() const override;
  void begin(std::int64_t n) override;
  TensorView positions() const override;
  KvView layer(int l) override;
  void end() override;
  void truncate(std::int64_t length) override;
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;
  std::uint32_t id() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// StreamingLLM (arXiv 2309.17453): sinks + the most recent tokens, at most `budget` committed ones.
// Keys are stored unrotated and rotated by row when read. Evicts whole granules.
// Positions are rows: below budget + max_append, which the RoPE tables must cover. What is not
// committed yet must fit in max_append tokens, so a long prompt is committed append by append.
class StreamingCache final : public KvCache {
 public:
  static constexpr int kSinks = 16;
  // budget in tokens, sinks included: at least 2 granules more than the sinks, which are rounded up
  // to granules. Keeps a second copy of its rows for rewind().
  StreamingCache(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t budget,
                 std::int64_t max_append, DType dtype);
  ~StreamingCache() override;
  std::int64_t length() const override;
  std::int64_t committed() const override;
  std::int64_t capacity() const override;
  std::int64_t max_append() const override;
  void begin(std::int64_t n) override;
  TensorView positions() const override;
  KvView layer(int l) override;
  void end() override;
  void truncate(std::int64_t length) override;
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;
  std::uint32_t id() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

enum class Selection : std::uint8_t { kMeanKey, kAttention };
struct RebuildPolicy {
  enum class Kind : std::uint8_t { kNever, kEvery, kAdaptive } kind = Kind::kNever;
  std::int64_t every_tokens = 0;  // kEvery: committed tokens between selections
  double below_rate = 0;          // kAdaptive: rolling outer acceptance that triggers one
};

// TriForce section 4.1: the chunks of the full cache that matter most, `budget` tokens of them,
// most relevant first; committed tokens since the selection overwrite the least relevant end. It
// observes the passes of the target over `full`, and selects during the ones it needs to.
//
// Rows [0, budget) hold committed tokens, [budget, budget + max_append) those not committed yet. As
// long as every committed token fits in the budget they are kept in natural order, so that answers
// are the full cache's; afterwards the rows are ordered by relevance. Tokens since the selection
// may take budget - chunk_size rows (of a budget of one chunk all but 16); before that runs out the
// next observed pass selects again, whatever the policy. Should one commit bring more than is left,
// the oldest of them leave.
class RetrievalCache final : public KvCache, public LayerObserver {
 public:
  struct Options {
    std::int64_t budget = 4096;  // tokens; a multiple of chunk_size
    int chunk_size = 8;          // tokens
    Selection selection = Selection::kMeanKey;
    RebuildPolicy rebuild;
  };
  // `full` outlives this cache and has the same shape. heads: query heads of the model.
  RetrievalCache(Backend& backend, FullCache& full, int layers, int heads, int kv_heads,
                 int head_dim, std::int64_t max_append, DType dtype, const Options& options);
  ~RetrievalCache() override;

  // The full cache holds a whole prompt but its last token, all of it committed: selects among the
  // whole chunks by that token's rotated queries [L, H, d] and takes over the prefix. By mean key,
  // or with kAttention by the attention of those queries to the prefix. Only after reset().
  void select_prompt(TensorView queries, const RopeView& rope);
  // Outer acceptance of the last round, for the adaptive policy; accepted <= tested.
  void report_round(std::int64_t accepted, std::int64_t tested);
  std::int64_t selections() const;  // since the last rewind() or reset(), the prompt's not counted
  // Rounds whose acceptance the adaptive policy looks at.
  static constexpr int kAdaptiveRounds = 8;
  // Chunk ids [layers, Hkv, n] now selected, as a host copy, for tests and reports.
  std::vector<std::int32_t> selected_chunks() const;

  std::int64_t length() const override;
  std::int64_t committed() const override;
  std::int64_t capacity() const override;
  std::int64_t max_append() const override;
  void begin(std::int64_t n) override;
  TensorView positions() const override;
  KvView layer(int l) override;
  void end() override;
  void truncate(std::int64_t length) override;
  void commit(std::int64_t length) override;
  void mark() override;
  void rewind() override;
  void reset() override;
  std::uint32_t id() const override;

  bool wants_pass(std::int64_t n) override;
  TensorView mass(int layer) override;
  int mass_chunk() const override;
  void on_layer(int layer, TensorView q, const KvView& kv) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triforce
