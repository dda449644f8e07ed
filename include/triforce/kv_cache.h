// The KV cache of one sequence as a model sees it. Which one it is (src/model: full_cache.h,
// streaming_cache.h, cross_model_cache.h, retrieval_cache.h, quantised_cache.h) decides what a
// query attends to and where keys live. Lengths count tokens of the sequence, not rows of memory.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "triforce/backend.h"

namespace triforce {

// KV heads [first, first + count) of a layer.
struct HeadRange {
  int first = 0, count = 0;
};

// KvHomes says where the KV heads of a full cache live. In each layer those that the host computes
// with come first, then the near ones, then the others.
struct KvHomes {
  // This many KV heads of each layer are near: where ops expect tensors. The others are far, in
  // page-locked host memory. Empty: all are near.
  std::vector<int> near_heads;
  // Near memory of so many heads through which far ones are brought; 0: ops read them where they
  // lie.
  int slots = 0;
  // The host computes attention with this many of the far heads where they lie, in passes of up to
  // kMaxBatchInvariantRows rows. Longer passes need a slot to bring them. Empty: none.
  std::vector<int> host_heads = {};

  bool operator==(const KvHomes&) const = default;
};

// KV heads of all layers together, by where attention of decoding passes reads them.
struct KvHeadCounts {
  std::int64_t near = 0;  // where ops expect tensors
  std::int64_t bus = 0;   // from host memory, over the bus
  std::int64_t host = 0;  // in host memory, by the host
};
// Counts the heads of a cache that has kv_heads in each layer.
KvHeadCounts count_heads(const KvHomes& homes, int layers, int kv_heads);

// Memory of the caches that several lanes have alike: one piece for each storage of a cache, in
// which the lanes are equally far apart. So an op can take them all in one launch.
class LaneMemory {
 public:
  explicit LaneMemory(int lanes = 1) : lanes_(lanes) {}
  // Storages that are made from here on are those of the next lane: as many, as large, and in the
  // same order as those of the first.
  void next_lane();
  // The next storage's piece of the lane, of which `data` is the begin.
  std::shared_ptr<Buffer> take(Backend& backend, std::int64_t bytes, Place place, MemTag tag,
                               std::byte*& data);

 private:
  struct Piece {
    std::shared_ptr<Buffer> all;
    std::int64_t bytes = 0;  // of a lane
  };
  int lanes_, lane_ = 0;
  std::size_t next_ = 0;
  std::vector<Piece> pieces_;
};

// The groups of a storage's heads (KvView::older): so many of each head. None by default.
struct KvGroupShape {
  std::int64_t groups = 0;
  Quantisation quantisation = Quantisation::kNone;
  // Of keys and values of one head.
  std::int64_t bytes(int head_dim) const {
    return groups *
           (kv_group_k_bytes(head_dim, quantisation) + kv_group_v_bytes(head_dim, quantisation));
  }
};

// Memory of one cache, or of the part of it that has one home: K and V of one range of heads per
// layer, each head's rows in one piece, and the groups before these. Zero-filled, because masked
// rows are still multiplied.
class KvStorage {
 public:
  // Holds all heads of every layer, where ops expect tensors. The capacity in tokens is rounded up
  // to the backend's granule. Throws Error(kResources).
  KvStorage(Backend& backend, int layers, int kv_heads, int head_dim, std::int64_t capacity,
            KvFormat format, MemTag tag);
  // heads[l] of layer l, out of kv_heads, at `place`, or for the host to compute with (on_host,
  // page-locked); none is possible. `memory`: of this lane and others; null: its own.
  KvStorage(Backend& backend, const std::vector<HeadRange>& heads, int kv_heads, int head_dim,
            std::int64_t capacity, KvFormat format, Place place, MemTag tag,
            LaneMemory* memory = nullptr, bool on_host = false, const KvGroupShape& older = {});
  // Returns its heads of layer l; kv_heads is 0 if it has none. `length` is filled in by the cache,
  // and so is older.used.
  KvView layer(int l) const;
  std::int64_t capacity() const { return capacity_; }
  int kv_heads() const { return kv_heads_; }  // of a layer, elsewhere or here
  int head_dim() const { return head_dim_; }
  const KvFormat& format() const { return format_; }
  int layers() const { return static_cast<int>(heads_.size()); }
  TensorView bytes_view() const;  // everything, as i32 words

  static std::int64_t bytes(int layers, int kv_heads, int head_dim, std::int64_t capacity,
                            KvFormat format, int granule, const KvGroupShape& older = {});

 private:
  std::vector<HeadRange> heads_;            // of each layer
  std::vector<std::int64_t> heads_before_;  // of all layers before it
  int kv_heads_, head_dim_;
  std::int64_t capacity_;
  KvFormat format_;
  KvGroupShape older_;
  bool on_host_;
  std::shared_ptr<Buffer> buffer_;  // that of all lanes
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Sees each range of KV heads of each layer right after its attention (of the last tile, if there
// are several), while its rows are there.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // A pass over n rows begins. false: it may be recorded, and the hooks below are skipped. `path`
  // is what the caller of the pass asks of its rows: mass() is asked for in invariant passes.
  virtual bool begin_pass(std::int64_t n, RowPath path) = 0;
  // Returns where attention shall write the chunk mass [Hkv, .] of this layer. If data is null,
  // none is wanted.
  virtual TensorView mass(int layer) = 0;
  virtual int mass_chunk() const = 0;
  // q[n, h, d]: rotated queries of the pass, those of the heads of kv. mass[heads of kv, .]: what
  // attention wrote of these heads, if this observer or another of the pass wanted it. Where
  // another did, it lies there and not where this one's mass() says. It is not to be changed.
  virtual void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) = 0;
};

// Keeps the newest query of every layer of the passes it observes: after a prompt, those of its
// last token, from which a retrieval cache selects.
class LastQueries final : public LayerObserver {
 public:
  // [layers, heads, head_dim] in activation_dtype(). Throws Error(kResources).
  LastQueries(Backend& backend, int layers, int heads, int head_dim);
  bool begin_pass(std::int64_t /*n*/, RowPath /*path*/) override { return true; }
  TensorView mass(int /*layer*/) override { return {}; }
  int mass_chunk() const override { return 0; }
  void on_range(int layer, TensorView q, const KvView& kv, TensorView mass) override;
  TensorView view() const { return queries_.view(); }
  void copy(const LastQueries& from) { b_.copy(queries_.view(), from.view()); }

 private:
  Backend& b_;
  Tensor queries_;
};

// New rows of a pass go behind `before` rows, rotated by positions from first_position on.
struct Placement {
  std::int64_t first_position = 0, before = 0;
};
// Layers of a cache differ in no more than these: those that it stores, and its dense ones.
inline constexpr int kMaxPlacements = 2;

class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual std::int64_t length() const = 0;     // tokens held
  virtual std::int64_t committed() const = 0;  // tokens truncate() can no longer drop
  virtual std::int64_t capacity() const = 0;   // most tokens of the sequence it can follow
  // Most tokens of one begin(); the throughput path may take more at once than the exact one.
  virtual std::int64_t max_append() const = 0;

  // One forward pass over n new tokens is begin(), each layer in order, then end() or cancel(). A
  // layer takes the tokens in tiles of tile_rows; the last tile has what is left. A layer takes
  // each tile in ranges. A range is of KV heads whose rows are at one place. The ranges of a
  // layer hold each head once, in rising order, and only the first may be on_host. Work that is
  // queued between range(l, i, tile) and done(l, i, tile) may read the rows before the tile and
  // append those of the tile. If the layer has destinations, the tile's rows were appended there
  // before its first range, and the work may read them. A pass of more than one tile has tiles of
  // more than kMaxBatchInvariantRows rows. `path` is what the caller asks of the pass's rows.
  // Returns where they go, 1 to kMaxPlacements places; the views of ranges and destinations have no
  // length, which is for the caller to keep.
  virtual std::span<const Placement> begin(std::int64_t n, std::int64_t tile_rows,
                                           RowPath path) = 0;
  virtual int placement_of(int /*l*/) const { return 0; }  // of what begin() returned, layer l's
  // A layer's destinations are where all its new rows are appended at once, before its first range.
  // They are ranges of KV heads that hold each head once, in rising order. Only a pass of one tile
  // has them. 0: rows are appended to each range when it is there.
  virtual int destinations(int /*l*/) const { return 0; }
  virtual KvView destination(int /*l*/, int /*i*/) const { return {}; }
  virtual int ranges(int l) const = 0;
  virtual KvView range(int l, int i, int tile) = 0;
  // This is called after a range's rows were appended and before its attention. q[n, h, d] are the
  // rotated queries of its heads; a cache may now choose what they attend to.
  virtual void on_queries(int /*l*/, TensorView /*q*/, const RopeView& /*rope*/) {}
  virtual void done(int l, int i, int tile) = 0;
  virtual void end() = 0;
  // Ends the pass wherever it is; nothing was appended.
  virtual void cancel() = 0;

  virtual void truncate(std::int64_t length) = 0;  // committed() <= length <= length()
  // Of the tokens that were appended from `length` on, those numbered `path` become the next ones,
  // and the others are dropped. Numbers rise. What is kept is then held as if it had been appended
  // in that order: the way to forget a draft tree (PassPart::parents). committed() <= length.
  virtual void keep(std::int64_t length, std::span<const std::int16_t> path) = 0;
  // Tokens before `length` are final: the streaming cache evicts here, the retrieval cache takes
  // the exact rows of the full cache here.
  virtual void commit(std::int64_t length) = 0;

  // The state after the prompt: mark() remembers it (and commits all of it), rewind() returns to it
  // bit for bit, reset() empties the cache for the next prompt.
  virtual void mark() = 0;
  virtual void rewind() = 0;
  virtual void reset() = 0;

  virtual std::uint64_t id() const = 0;  // of its lease, for Backend::replay()
  // Returns whether range() and done() queue the same work in every pass over as many tokens.
  virtual bool recordable() const { return true; }
};

class FullCache;       // model/full_cache.h
class StreamingCache;  // model/streaming_cache.h
class RetrievalCache;  // model/retrieval_cache.h
class QuantisedCache;  // model/quantised_cache.h

// A retrieval cache ranks chunks by one of these.
enum class Selection : std::uint8_t {
  kMeanKey,    // the chunk's mean key against the last query (arXiv 2404.11912, section 4.1)
  kAttention,  // attention of the last full verification, anew at each (2512.01278, 2602.07223)
  // Attention so far. The most recent tokens have half of the budget, the chunks that have received
  // most have the other half (arXiv 2306.14048).
  kH2O,
  kSnapKv,  // attention of the prompt's last kObservedTokens tokens (arXiv 2404.14469)
  kQuest    // the bounds of the chunk's keys against the last query (arXiv 2406.10774)
};
constexpr auto names_of(Selection /*any*/) {
  return std::array{"mean-key", "attention", "h2o", "snapkv", "quest"};
}
// By what the keys of a chunk are ranked; nullopt: by attention.
constexpr std::optional<ChunkRule> rule_of(Selection s) {
  return s == Selection::kMeanKey ? std::optional(ChunkRule::kMeanKey)
         : s == Selection::kQuest ? std::optional(ChunkRule::kKeyBounds)
                                  : std::nullopt;
}
inline constexpr std::int64_t kObservedTokens = 32;
// Chunks before the end of the prompt that keep their keys where those of others are rebuilt
// (ShadowKV, arXiv 2410.21465, as its code is configured).
inline constexpr std::int64_t kLocalChunks = 4;
// Whether a prompt's tokens are read once more, for the attention that they pay.
constexpr bool replays_prompt(Selection s) {
  return s == Selection::kH2O || s == Selection::kSnapKv;
}
struct RebuildPolicy {
  // kToken: for every token that is fed, by its own queries, in passes of one token.
  enum class Kind : std::uint8_t { kNever, kEvery, kAdaptive, kToken } kind = Kind::kNever;
  std::int64_t every_tokens = 0;  // kEvery: committed tokens between selections
  double below_rate = 0;          // kAdaptive: rolling outer acceptance that triggers one
};
// Whether a retrieval cache keeps a landmark of each chunk, its mean key (as ShadowKV, 2410.21465),
// for selections that would read every key for each token. Chunks of one token are their keys.
constexpr bool keeps_landmarks(const RebuildPolicy& rebuild, Selection s, int chunk_size) {
  return rebuild.kind == RebuildPolicy::Kind::kToken && s == Selection::kMeanKey && chunk_size > 1;
}

}  // namespace triforce
