// One Llama forward for target and drafter, every cache and every backend.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "triforce/backend.h"
#include "triforce/communicator.h"
#include "triforce/kv_cache.h"
#include "triforce/weights.h"

namespace triforce {

class PassParts;  // model/pass_parts.h

enum class Logits : std::uint8_t { kNone, kLast, kAll };

// What a pass multiplies with: the model's own matrices, or ModelWeights::drafts, of which it has
// some then.
enum class Precision : std::uint8_t { kOwn, kDraft };

// How many tokens LlamaModel::prefill() takes, where that is more than max_rows, and whether their
// residual stream lies in memory that is lent for each such pass.
struct PromptBlock {
  std::int64_t tokens = 0;
  bool is_lent = false;
  // Bytes of the residual stream.
  static std::int64_t bytes(std::int64_t tokens, std::int64_t hidden) {
    return tokens * hidden * size_of(DType::kF32);
  }
};

// One sequence's share of a pass. Its cache and its observer serve no other part of the same pass.
struct PassPart {
  std::span<const Token> tokens;
  KvCache* cache = nullptr;
  LayerObserver* observer = nullptr;  // null: none
  // The last parents.size() tokens of the sequence, with these, are a draft tree: token i of them
  // follows token parents[i] of them, or -1, the last one before them (KvView::parents). Its
  // position is that of the one it follows + 1. An observer is shown the mass of the rows before
  // the tree alone, of which there are some. Empty: each token follows the one before it.
  std::span<const std::int16_t> parents = {};
};

class LlamaModel {
 public:
  // RoPE tables of `positions` rows; activations for max_rows tokens at once, and the residual
  // stream for those of a block; logits for up to max_logits rows. `weights` outlives the model,
  // and so does `ranks`, which connects the shards of a model that is split; it is not used, and
  // may be null, where one rank holds it whole. Throws Error(kResources).
  LlamaModel(Backend& backend, const ModelWeights& weights, std::int64_t positions,
             std::int64_t max_rows, std::int64_t max_logits, Communicator* ranks = nullptr,
             const PromptBlock& block = {});
  ~LlamaModel();
  LlamaModel(const LlamaModel&) = delete;
  LlamaModel& operator=(const LlamaModel&) = delete;

  // Appends `tokens` to `cache`. Returns f32 logits [n, V] (kAll, n <= max_logits), [1, V] of the
  // last token (kLast), or an empty view; valid until the next call. One pass: tokens.size() <=
  // max_rows. With kInvariant the result's bits are those of single-token passes. Throws
  // Error(kBadInput, "TokenRange") for a token outside the vocabulary. Every rank of a model that
  // is split appends the same tokens at the same time, to caches of its own heads, and gets the
  // same logits; throws as Communicator.
  TensorView forward(std::span<const Token> tokens, KvCache& cache, Logits want,
                     LayerObserver* observer = nullptr, RowPath path = RowPath::kInvariant) {
    const PassPart part{tokens, &cache, observer};
    return forward(std::span(&part, 1), want, path);
  }

  // forward() of up to kMaxSequences sequences in one pass: each gets the bits that it gets alone.
  // With T the most tokens of a part, rows [s T, (s + 1) T) of the logits (kAll) are those of part
  // s, the last of them those of its tokens, the others padding; kLast: row s. A part without
  // tokens takes no row of its cache. Those with tokens have trees of equally many, at most
  // kMaxTreeRows. Parts x T <= max_rows, and <= max_logits with kAll, as are
  // the parts with kLast. The caches are of one kind and divide their KV heads alike. Of a pass of
  // several parts kInvariant is asked.
  TensorView forward(std::span<const PassPart> parts, Logits want,
                     RowPath path = RowPath::kInvariant, Precision precision = Precision::kOwn);

  // Runs forward() without observers, and takes it back, until its backend has recorded the pass:
  // until then one of so many rows over these caches takes longer. Nothing where there is nothing
  // to record. The caches hold what they held; rows that they may append next are overwritten.
  void record_pass(std::span<const PassPart> parts, Logits want, Precision precision);

  // Appends up to max_block() tokens in one pass whose layers take them in tiles of max_rows():
  // what a layer's keys and values need of memory or bus, they need once. on_tile(done, total) is
  // called after each tile of each layer, in tokens of a whole pass; may be empty; false: stop.
  // Returns false if it stopped; the cache then holds what it held. Else as forward() without
  // logits.
  using OnTile = std::function<bool(std::int64_t done, std::int64_t total)>;
  bool prefill(std::span<const Token> tokens, KvCache& cache, LayerObserver* observer,
               const OnTile& on_tile);

  // Memory for the residual stream of a lent block, where ops expect tensors. A prefill() that
  // takes it leaves zeros: KV rows that are masked must be finite. Empty: no longer.
  void lend(TensorView memory);

  const ModelConfig& config() const { return weights_.config; }
  std::int64_t max_rows() const { return max_rows_; }
  std::int64_t max_block() const { return max_block_; }
  std::int64_t max_logits() const { return max_logits_; }
  RopeView rope() const { return rope_.view(); }
  // What connects the ranks that share the model; null: this one holds all of it.
  Communicator* ranks() const { return ranks_; }
  // Bytes of activations a model of this shape allocates, for the plan.
  static std::int64_t activation_bytes(const ModelConfig& config, DType activation,
                                       std::int64_t max_rows, std::int64_t max_logits,
                                       const Shard& shard = {}, const PromptBlock& block = {});
  // Multiplications and additions of prefill() over `tokens` tokens from the first on, as one rank
  // computes them: 2 m k n for each product of linear(), and for attention 4 times query width
  // times keys for each query, of the keys that it sees. Of the last layer only what its keys and
  // values need. What is not a product of matrices (norms, rotations, softmax) is not counted.
  static double prefill_operations(const ModelConfig& config, std::int64_t tokens,
                                   const Shard& shard = {});
  // The same of one row of forward() with its logits, of a rank's own: of products with weights,
  // and for each key that the row sees.
  struct RowOperations {
    double of_weights = 0, of_each_key = 0;
  };
  static RowOperations row_operations(const ModelConfig& config, const Shard& shard = {});
  // The scratch it reserves; `positions`: of its RoPE table. No cache holds more rows than that.
  static Backend::ScratchShape scratch_shape(const ModelConfig& config, std::int64_t max_rows,
                                             std::int64_t positions, const Shard& shard = {});

 private:
  // Rows [first, first + rows) of a pass over n rows.
  struct Tile {
    int index = 0;
    std::int64_t first = 0, rows = 0;
    bool last = true;
  };
  Tile tile_of(std::int64_t n, int index) const;
  // Of a pass over these parts that nothing observes; nullopt: no such pass is recorded.
  std::optional<Backend::PassKey> key_of(std::span<const PassPart> parts, Logits want,
                                         Precision precision) const;
  void begin(std::span<const PassPart> parts, RowPath path, Precision precision);
  bool enqueue(std::int64_t logits, const OnTile& on_tile);  // logits: rows of them
  void attend(int l, const Tile& tile, std::int64_t needed);
  void feed_forward(int l, TensorView x);
  // Of the pass in progress.
  bool drafts() const { return precision_ == Precision::kDraft; }
  const LayerMatrices& matrices(int l) const {
    const auto i = static_cast<std::size_t>(l);
    return drafts() ? weights_.drafts->layers[i] : weights_.layers[i];
  }
  void add_product(TensorView in, const Matrix& w, TensorView x);

  Backend& b_;
  const ModelWeights& weights_;
  LocalShape shape_;
  Communicator* ranks_;  // null: this one holds all of the model
  std::int64_t max_rows_, max_logits_, max_block_;
  TensorView stream_;  // f32 [n, D]: the residual stream of the pass
  RopeTable rope_;
  std::unique_ptr<PassParts> parts_;  // of the pass in progress
  TensorView lent_;
  RowPath path_ = RowPath::kInvariant;  // of the pass in progress, as is the next
  Precision precision_ = Precision::kOwn;
  Tensor x_, h_, qkv_, q_, attn_, gate_up_, ffn_, products_, logits_;
  Lease lease_;
};

}  // namespace triforce
