// The seam between the algorithm and the hardware: about a dozen fused operations, one per kernel.
#pragma once
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "triforce/quantisation.h"
#include "triforce/random.h"
#include "triforce/tensor.h"

namespace triforce {

// What the caller of a pass asks of its rows.
enum class RowPath : std::uint8_t {
  kInvariant,   // a row has the same bits whatever the number of rows computed with it
  kThroughput,  // as fast as may be: prompts, whose rows nothing is compared with
};
// Rows of one exact kernel call: more are computed in blocks of so many.
inline constexpr int kMaxBatchInvariantRows = 32;
// The path of rows that need not be invariant: few are at no cost.
constexpr RowPath throughput_path(std::int64_t rows) {
  return rows <= kMaxBatchInvariantRows ? RowPath::kInvariant : RowPath::kThroughput;
}
// No pass over a KV cache has more rows, nor more sequences.
inline constexpr std::int64_t kMaxPassRows = 65535;
inline constexpr std::size_t kMaxSequences = 64;
// Proposals of one sequence in a verify(): an outer round keeps up to gamma + inner gamma. No node
// of a draft tree has more children.
inline constexpr int kMaxProposals = 128;
// Rows of one draft tree in a cache.
inline constexpr std::int32_t kMaxTreeRows = kMaxProposals;
// Requests of one to_probs(): each row that a verify() reads may lie in a place of its own.
inline constexpr std::size_t kMaxProbsRequests = kMaxSequences * (kMaxProposals + 1);

// A point in time on a backend's queue of work.
struct Event {
  std::uint32_t id = 0;
};

// A queue takes work. The copy queue runs beside the compute queue; only a Signal orders the two.
enum class Queue : std::uint8_t { kCompute, kCopy };

// How a matrix keeps its weights.
struct WeightFormat {
  // NOLINTNEXTLINE(google-explicit-constructor): a type stands for its format
  constexpr WeightFormat(DType of = DType::kF32, Quantisation by = Quantisation::kNone)
      : type(of), quantisation(by) {}
  DType type;  // f32, f16 or bf16: what they are rounded to first, and are multiplied in
  Quantisation quantisation;
  bool is_quantised() const { return quantisation != Quantisation::kNone; }
  bool operator==(const WeightFormat&) const = default;
};

// A weight matrix [rows, cols] in its backend's own layout; only that backend reads `storage`.
struct Matrix {
  Buffer storage;
  WeightFormat format = {};
  std::int64_t rows = 0, cols = 0;  // out features, in features
  Tensor bias = {};                 // [rows] f32; empty: none
};

// How K and V rows are stored. Nothing else knows their bytes.
struct KvFormat {
  // NOLINTNEXTLINE(google-explicit-constructor): a type stands for its format
  constexpr KvFormat(DType of = DType::kF32, bool rotate = false)
      : type(of), rotate_on_read(rotate) {}
  DType type;
  bool rotate_on_read;  // keys lie unrotated, and are rotated by their row's index when read
  // Of so many elements of K, or of V, that follow each other.
  constexpr std::int64_t bytes(std::int64_t elements) const { return elements * size_of(type); }
  bool operator==(const KvFormat&) const = default;
};

// Rows of KV heads in groups of kKvGroup, as codes (core/quantise.h). Of each head its groups
// follow each other, K and V apart; the order inside a group is the backend's business.
struct KvGroups {
  void* k = nullptr;  // groups of kv_group_k_bytes() each; null: there are none
  void* v = nullptr;  // of kv_group_v_bytes()
  Quantisation quantisation = Quantisation::kNone;
  std::int64_t capacity = 0;           // groups of a head
  const std::int32_t* used = nullptr;  // device memory: so many of these are valid

  explicit operator bool() const { return k != nullptr; }
};

// A KvView says where the K and V rows of some KV heads of a layer are: [first_head, first_head +
// kv_heads), out of its layer_heads. A row is one token of one of them; the order of rows and
// dimensions inside a granule is the backend's business, but for rows on the host. What an op does
// with a head does not depend on the heads beside it.
struct KvView {
  void* k = nullptr;
  void* v = nullptr;
  KvFormat format;
  int first_head = 0, kv_heads = 0, layer_heads = 0;
  int head_dim = 0;
  std::int64_t capacity = 0;             // rows per head, a multiple of kv_granule()
  std::int64_t head_stride = 0;          // elements between heads, the same for k and v
  const std::int32_t* length = nullptr;  // device memory: rows valid after the append of this pass
  // Device memory: so many of these are new, the last of the call's rows for this sequence. Those
  // before them are padding: they are not appended, and what else they give means nothing. Where
  // all are padding the length is 0. Null: none is.
  const std::int32_t* appended = nullptr;
  // A draft tree: the last tree_rows rows of the sequence. Device memory: row i of these follows
  // row parents[i] < i of them, or -1, the last row before them. Each other row follows the one
  // before it. Null: so do these. Read by attention() alone.
  const std::int32_t* parents = nullptr;
  std::int32_t tree_rows = 0;
  // The rows are in page-locked host memory, in the order of host_kv_order.h, and attention() and
  // score_chunks() are computed by the host; rotate_on_read is false.
  bool on_host = false;
  // Rows before the first one, which all rows of the sequence follow: attention() reads them, and
  // quantise_rows() writes them. Others see the rows of k and v alone, and so does `length`. Device
  // code has a few registers less where this is not the last member.
  KvGroups older = {};

  // Heads [first, first + count) of the layer, which are among these.
  KvView heads(int first, int count) const {
    TF_CHECK(first >= first_head && count >= 0 && first + count <= first_head + kv_heads,
             "KV heads [{}, {}) of [{}, {})", first, first + count, first_head,
             first_head + kv_heads);
    KvView part = *this;
    const std::int64_t bytes = format.bytes((first - first_head) * head_stride);
    part.k = static_cast<std::byte*>(k) + bytes;
    part.v = static_cast<std::byte*>(v) + bytes;
    if (older) {
      const std::int64_t before = (first - first_head) * older.capacity;
      part.older.k = static_cast<std::byte*>(older.k) +
                     before * kv_group_k_bytes(head_dim, older.quantisation);
      part.older.v = static_cast<std::byte*>(older.v) +
                     before * kv_group_v_bytes(head_dim, older.quantisation);
    }
    part.first_head = first;
    part.kv_heads = count;
    return part;
  }
};

// The columns of qkv[T, (H + 2 Hkv) d] that belong to a view's first head, `group` query heads to
// each of its KV heads.
struct QkvColumns {
  std::int64_t q, k, v;
};
inline QkvColumns qkv_columns(const KvView& kv, std::int64_t group) {
  const std::int64_t d = kv.head_dim, heads = kv.layer_heads, first = kv.first_head;
  return {first * group * d, (heads * group + first) * d, (heads * group + heads + first) * d};
}

// RoPE tables, [max_position, head_dim / 2] f32 each, scaling folded in (weights.h).
struct RopeView {
  TensorView cos, sin;
};

// The keys of a layer's prompt before RoPE, as products of two narrow matrices (ShadowKV, arXiv
// 2410.21465): token t's of KV head h are the sum over i of coefficients[t, i] basis[h, i, :].
struct LowRankKeys {
  // A rank is a multiple of it.
  static constexpr std::int64_t kRankStep = 16;
  TensorView coefficients;  // [tokens, rank], of the type of the KV rows
  TensorView basis;         // [Hkv, rank, head_dim] of the same
};

// Keys that expand_keys() writes: those of the chunks from number `first` on of the chosen ones,
// where all of a chunk is within the first `tokens` tokens. None by default.
struct ExpandedKeys {
  std::int64_t first = 0, tokens = 0;
  // Whether those of the j-th chunk are, which has this id.
  constexpr bool contains(std::int64_t j, std::int64_t id, std::int64_t chunk) const {
    return j >= first && (id + 1) * chunk <= tokens;
  }
};

// These turn logits into the distribution that a token is drawn from. Temperature comes first, then
// top-k, then top-p, and the rest is renormalised.
struct SamplingParams {
  float temperature = 0.6F;  // 0: the one-hot distribution of the argmax, lowest id first
  float top_p = 0.9F;        // in (0, 1]; 1: off
  int top_k = 0;             // 0: off
};

enum class Acceptance : std::uint8_t {
  kSpeculative,  // accept with probability p/q, redraw from the residual
  kCoupled,      // all levels share Gumbel noise per position; accept iff the draws are equal
};
constexpr auto names_of(Acceptance /*any*/) { return std::array{"speculative", "coupled"}; }
enum class Correction : std::uint8_t {
  kResidual,  // norm(max(p - q, 0)): exact
  kTarget,    // p itself: the published code's inner rule; not lossless
};
constexpr auto names_of(Correction /*any*/) { return std::array{"exact", "published"}; }
// How probable it is that a proposal that is tested is accepted, whatever its probabilities.
struct SyntheticRates {
  // [i]: of one at depth i of its tree, 0 the root's children.
  std::array<double, kMaxProposals> by_depth{};

  SyntheticRates() = default;
  // Beyond the last of `rates`, at least one, all are as that.
  explicit SyntheticRates(std::span<const double> rates) {
    for (std::size_t i = 0; i < by_depth.size(); ++i) {
      by_depth[i] = rates[std::min(i, rates.size() - 1)];
    }
  }
};
struct VerifyRule {
  Acceptance acceptance = Acceptance::kSpeculative;
  Correction correction = Correction::kResidual;
  std::optional<SyntheticRates> synthetic;  // decide instead; the output is meaningless
};

// What a chunk of keys is worth to a query.
enum class ChunkRule : std::uint8_t {
  kMeanKey,   // query . mean key (arXiv 2404.11912, section 4.1)
  kKeyBounds  // the most that query . key can be, by the least and largest of each dimension of its
              // keys (Quest, arXiv 2406.10774)
};

// Rows of logits become the rows of probs.
struct ProbsRequest {
  TensorView logits, probs;  // [n, V] f32 each
};

// What follows a token of one sequence is drawn from these probs: the next token of a chain, or the
// children of a node of a draft tree.
struct SampleRequest {
  TensorView probs;  // [V] f32
  // [V] f32, what the probs were made of; data may be null for one child.
  TensorView logits{};
  DrawKey key{};
  std::int64_t position = 0;  // of the children
  std::int32_t children = 1;  // 1 to kMaxProposals, at most V
  // Child i has number sibling + i among the nodes of its tree at that position; below
  // kMaxSiblings.
  std::uint32_t sibling = 0;
  // The first child, which was drawn from the probs before; -1: it is to be drawn.
  Token given = -1;
};

// One sequence's proposals: n nodes of a draft tree, whose root is its last token.
struct VerifyRequest {
  TensorView p;  // [n + 1, V] f32, verifier's: row 0 after the root, row i + 1 after node i
  // [n, V] f32: row i + 1 is what the children of node i were drawn from, row 0 those of the root.
  // A row without children is not read; n = 0: none.
  TensorView q;
  std::span<const Token> tokens;  // [n], n <= kMaxProposals; those of siblings differ
  // [n], each below its node's own number and not below the one before it; -1: the root. So
  // siblings lie together, in the order in which they were drawn. Empty: a chain, each node the
  // child of the one before.
  std::span<const std::int16_t> parents{};
  DrawKey key{};
  std::int64_t position = 0;  // of the root's children
};

// The path from the root to node `last`, of `accepted` nodes, is kept. Then comes `next`: the
// redraw after a rejection or the bonus token, -1 if a distribution that was needed is not finite.
struct VerifyResult {
  std::int32_t accepted = 0;
  Token next = 0;
  std::int32_t last = -1;  // of a chain accepted - 1; -1: the root
};

// Shapes: S sequences, T new tokens of each (a few while decoding, the prefill chunk before that),
// D hidden, H query heads, Hkv key/value heads, d head_dim, F intermediate, V vocabulary.
// Activations are activation_dtype(), but for the residual stream (what embed writes, rms_norm
// reads and linear accumulates to), logits and probs, which are f32. Calls are asynchronous unless
// they return a value; they allocate nothing beyond the scratch of a Lease, and read every per-step
// value from device memory, so that a sequence of them can be recorded. They are queued on the
// compute queue unless they say otherwise.
//
// Each public operation checks what its comment asks of the arguments (types, shapes, no gaps
// between the elements of a row, rows within the capacity, which tensors may share memory; token
// ids, positions, lengths and chunk ids where they lie in host memory) and throws kInternal, naming
// operation and argument; then it calls the do_ method of the same name, which may rely on all of
// it. Sizes are positive unless a comment says otherwise.
class Backend {
 public:
  // Formats a backend computes with, out of f32, f16 and bf16.
  enum class Formats : std::uint8_t {
    kActivation,  // weights and KV rows are of activation_dtype()
    kStored,      // weights and KV rows of any of the three
    kAll,         // activations, too
  };
  // Traits of a backend never change while it lives.
  struct Traits {
    Place place = Place::kHost;  // where ops expect their tensors
    DType activation = DType::kF32;
    // Tokens of one prefill pass that suit the device: large enough for its throughput path.
    std::int64_t prefill_rows = 512;
    // Rows per granule of the KV layout; capacities and row moves are multiples of it.
    int kv_granule = 1;
    int head_dim_step = 2, max_head_dim = 1 << 20;  // head dimensions: multiples of step up to max
    Formats formats = Formats::kActivation;
    bool records_passes = false;  // whether replay() does
    // A device shares the host's memory if it has none of its own. Page-locked memory is then taken
    // from the same.
    bool shares_host_memory = false;
  };
  // Memory and link allow these rates, in GB/s (1e9 bytes). Times are reported beside them.
  struct Bandwidths {
    double read_gbs = 0;             // of the device's memory
    std::optional<double> copy_gbs;  // within it, bytes read and bytes written
    // The rate from pinned host memory to the device; none: the memory is the host's.
    std::optional<double> upload_gbs;
  };

  explicit Backend(const Traits& traits) : traits_(traits) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const Traits& traits() const { return traits_; }
  Place place() const { return traits_.place; }
  DType activation_dtype() const { return traits_.activation; }
  std::int64_t prefill_rows() const { return traits_.prefill_rows; }
  int kv_granule() const { return traits_.kv_granule; }

  virtual std::string description() const = 0;  // "cpu avx512-bf16, 2 threads"
  virtual Allocator& allocator() = 0;
  // Bytes that the backend itself holds of allocator()'s memory for all its life: of kWorkspace,
  // such as a library's, and of kStaging.
  virtual std::int64_t own_bytes(MemTag /*tag*/) const { return 0; }

  // Bytes that are free in the device's memory; nullopt: place() is the host.
  virtual std::optional<std::int64_t> available_bytes() const { return std::nullopt; }
  // Takes the device's memory for a planned run at once; what allocator() gives then comes from it.
  // Throws Error(kResources, "OutOfMemory").
  virtual void reserve_memory(std::int64_t /*bytes*/) {}
  // Measured now, within a fraction of a second. Throws Error(kResources) without the memory.
  virtual Bandwidths measure_bandwidths() = 0;
  // GFLOP/s (1e9 multiplications and additions) of a large matrix product, in the type in which
  // prefill multiplies by weights of `dtype`: the bound that its time stands beside. Measured now,
  // within about 50 ms. nullopt: not measured on this device. Throws Error(kResources) without the
  // memory.
  virtual std::optional<double> measure_gemm_gflops(DType /*dtype*/) { return std::nullopt; }

  // KV heads in page-locked host memory as a decoding pass reads them.
  struct FarShape {
    int kv_heads = 0;        // of all layers: measuring takes no more memory than they do
    int layer_kv_heads = 0;  // of these, of one layer
    int group = 1;           // query heads of each
    int head_dim = 0;
    std::int64_t rows = 0;     // of each, a multiple of kv_granule()
    std::int64_t queries = 1;  // rows of the pass, at most kMaxBatchInvariantRows and `rows`
  };
  // GB/s (1e9 bytes) of K and V while both are at work: the bus brings heads to slots in the
  // device's memory, the host computes attention with others where they lie.
  struct FarRates {
    double bus_gbs = 0, host_gbs = 0;
  };
  // Measured now, in about a second, nothing being leased; what it allocates is given back, and in
  // no ledger. nullopt: ops read host memory where it lies, so there is no bus. Throws
  // Error(kResources) without the memory.
  virtual std::optional<FarRates> measure_far_rates(const FarShape& /*shape*/) {
    return std::nullopt;
  }

  // Scratch for passes of up to `rows` rows over caches of up to `context` tokens.
  struct ScratchShape {
    std::int64_t rows = 0, context = 0;
    int heads = 0, kv_heads = 0, head_dim = 0;
    // Of these rows, those of batch-invariant passes; 0: kMaxBatchInvariantRows at most.
    std::int64_t exact_rows = 0;
    std::int64_t max_width = 0;  // largest in or out feature count of any linear layer
    std::int64_t vocab = 0;
    int chunk_size = 0;  // smallest chunk of score_chunks or attention mass, 0: neither is used
    // Query and KV heads of one attention that the host computes; 0: none.
    int host_heads = 0, host_kv_heads = 0;

    std::int64_t most_exact_rows() const {
      return exact_rows > 0 ? exact_rows
                            : std::clamp<std::int64_t>(rows, 1, kMaxBatchInvariantRows);
    }
    // Each member becomes the larger of both.
    void grow(const ScratchShape& o) {
      rows = std::max(rows, o.rows);
      exact_rows = std::max(exact_rows, o.exact_rows);
      context = std::max(context, o.context);
      heads = std::max(heads, o.heads);
      kv_heads = std::max(kv_heads, o.kv_heads);
      head_dim = std::max(head_dim, o.head_dim);
      max_width = std::max(max_width, o.max_width);
      vocab = std::max(vocab, o.vocab);
      host_heads = std::max(host_heads, o.host_heads);
      host_kv_heads = std::max(host_kv_heads, o.host_kv_heads);
      if (o.chunk_size > 0 && (chunk_size == 0 || o.chunk_size < chunk_size)) {
        chunk_size = o.chunk_size;
      }
    }
  };
  // Bytes that a first Lease of `shape` takes of the memory that allocator() gives.
  virtual std::int64_t scratch_bytes(const ScratchShape& shape) const = 0;
  // These bytes are page-locked and tagged kStaging.
  virtual std::int64_t staging_bytes(const ScratchShape& /*shape*/) const { return 0; }
  // Lease calls them, and says what they do; begin_lease() returns its id.
  virtual std::uint64_t begin_lease(const ScratchShape& shape);
  virtual void end_lease(std::uint64_t id) noexcept;

  // An unset matrix for linear().
  Matrix make_matrix(std::int64_t rows, std::int64_t cols, WeightFormat format, MemTag tag);
  // Bytes of that matrix in this backend's layout, padding included.
  std::int64_t matrix_bytes(std::int64_t rows, std::int64_t cols, WeightFormat format) const;
  // Sets rows [row_begin, row_begin + src.shape[0]); src is [n, cols], f32/f16/bf16, in host memory
  // or where ops expect tensors. Quantises them to the same scales and codes on every backend:
  // groups of kWeightGroup from column 0 on, core/quantise.h.
  void set_rows(Matrix& m, std::int64_t row_begin, TensorView src);
  // Copies to ops' tensors, from host memory or from one of their own, and back to host memory;
  // converts f32/f16/bf16. Both of one shape and without gaps. The source may be reused when upload
  // returns.
  void upload(TensorView dst, TensorView src);
  void download(TensorView host_dst, TensorView src);
  // out[i] f32 = scale * element first + i of philox_normals(), the same bits on every backend.
  // first + out.numel() is at most 2^34; out has no gaps.
  void random_values(TensorView out, const DrawKey& key, std::int64_t first, double scale);

  // out[T, cols] f32 = rows tokens[T] of the table, a matrix as those of linear() that is not
  // quantised; its bias is not read.
  void embed(TensorView tokens, const Matrix& table, TensorView out);
  // out[T, D] = x * rsqrt(mean(x^2) + eps) * w; x f32, w[D] f32, out an activation or f32. out may
  // be x.
  void rms_norm(TensorView x, TensorView w, float eps, TensorView out);
  // x[T, n, d] = x * rsqrt(mean(x^2) + eps) * w, the mean being over d: each of n heads by itself.
  // x is an activation without gaps within a token; w[n, d] f32.
  void head_norm(TensorView x, TensorView w, float eps);
  // out[T, rows] (+)= x[T, cols] * w^T + w.bias; out is an activation, or f32, to which alone it
  // adds. With kThroughput the bits of a row may depend on T; here and in attention() alone. Of
  // quantised weights it multiplies the codes, sums each group, and then applies the scale.
  void linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
              RowPath path = RowPath::kInvariant);
  // Reads qkv[S T, (H + 2 Hkv) d], T rows for each of the sequences, for the KV heads of their
  // views and the query heads of these. Rotates q into q[S T, h, d] and k by positions[S T] (i32;
  // with rotate_on_read k stays unrotated). Writes rows [length - T, length) of each sequence, but
  // for padding. The views differ in their memory, capacity and numbers alone; 1 <= S <=
  // kMaxSequences, T <= kMaxPassRows; positions have no gaps, q none within a token.
  void rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   std::span<const KvView> sequences);
  void rope_append(TensorView qkv, TensorView positions, const RopeView& rope, TensorView q,
                   const KvView& kv) {
    rope_append(qkv, positions, rope, q, std::span(&kv, 1));
  }
  // out[S T, h d]: softmax(q k / sqrt(d)) v of q[S T, h, d], the query heads of the views' KV
  // heads, where query i of a sequence sees its rows [0, length - T + i], and before them those in
  // groups (KvView::older), with which rotate_on_read and on_host are false. With activations of 16
  // bits the bits are those of rows that have the groups' values, rounded to the cache's type,
  // where capacities add up to the same; with f32 ones they are as near as the formats allow. A
  // row's bits do not depend on the other rows. Of a draft tree's rows (KvView::parents) a query
  // sees those that its own row follows, and itself: the bits are those that it gets where they
  // alone lie behind the others, in that order. tree_rows, at most kMaxTreeRows, is the same for
  // all sequences, and no more than the rows of any that has some. `rope` is read with
  // rotate_on_read only. `mass` is empty, or [kv_heads, capacity / chunk] f32 for each sequence: it
  // receives the probability of each chunk of `chunk` rows, summed over the T queries and the
  // head's group (chunks beyond length are 0); no row is padding, nor of a tree, then. The views
  // are as those of rope_append(); T <= kMaxPassRows; q and out have no gaps within a token. Where
  // they are on_host, the host computes beside what the compute queue is given next, and out and
  // mass are there for what it is given after the next join_host(); at most one such call lies
  // before it, and no score_chunks() between both. With mass, padding, a tree, groups or on_host
  // throughput_path(T) or `path` is kInvariant; groups have no mass.
  void attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                 TensorView out, std::span<const TensorView> mass, int chunk,
                 RowPath path = RowPath::kInvariant);
  // Of one sequence; mass.data is null: no mass.
  void attention(TensorView q, const KvView& kv, const RopeView& rope, TensorView out,
                 TensorView mass, int chunk, RowPath path = RowPath::kInvariant) {
    attention(q, std::span(&kv, 1), rope, out, std::span(&mass, mass.data != nullptr ? 1 : 0),
              chunk, path);
  }
  virtual void join_host() {}
  // out[T, F] = silu(gate) * up; gate_up[T, 2F] holds gate then up.
  void swiglu(TensorView gate_up, TensorView out);
  // Sets all elements of a tensor without gaps to zero.
  void clear(TensorView out);
  // x[T, D] += parts[0] + parts[1] + ... of parts[n, T, D], all f32: the sum in f32 and in that
  // order, then one addition to x, so the same bits on every backend. There are no gaps within a
  // part. What ranks that share a model add to the residual stream.
  void add_parts(TensorView parts, TensorView x);

  // A row with a non-finite logit becomes NaN as a whole. temperature >= 0 (its inverse finite
  // unless it is 0), top_p > 0, top_k >= 0. Of 1 to kMaxProbsRequests requests, all of one V; what
  // one writes no other reads or writes.
  void to_probs(std::span<const ProbsRequest> requests, const SamplingParams& params);
  void to_probs(TensorView logits, const SamplingParams& params, TensorView probs) {
    const ProbsRequest one{logits, probs};
    to_probs(std::span(&one, 1), params);
  }
  // sampling.h: sample_with(). out: the children of each request, one request after the other; -1
  // where its distribution is not finite. Of 1 to kMaxSequences requests, all of one V; blocks
  // once.
  void sample(std::span<const SampleRequest> requests, Acceptance acceptance, std::span<Token> out);
  // One token, of probs[V] f32.
  Token sample(TensorView probs, const DrawKey& key, std::int64_t position, Acceptance acceptance) {
    const SampleRequest one{.probs = probs, .key = key, .position = position};
    Token out = 0;
    sample(std::span(&one, 1), acceptance, std::span(&out, 1));
    return out;
  }
  // sampling.h: verify_with(), once for each of 1 to kMaxSequences requests, all of one V; blocks
  // once.
  void verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
              std::span<VerifyResult> out);
  // One chain of n tokens: p[n + 1, V] f32, q[n, V] f32.
  VerifyResult verify(TensorView p, TensorView q, std::span<const Token> tokens, const DrawKey& key,
                      std::int64_t position, const VerifyRule& rule) {
    const VerifyRequest one{.p = p, .q = q, .tokens = tokens, .key = key, .position = position};
    VerifyResult out;
    verify(std::span(&one, 1), rule, std::span(&out, 1));
    return out;
  }

  // scores[kv_heads, n_chunks] f32 = what chunk c is worth to q[h, d] by the rule, summed over the
  // query heads of the KV head.
  void score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                    TensorView scores, ChunkRule rule = ChunkRule::kMeanKey);
  // ids[Hkv, n] i32: chunk 0, then the n - 1 best of 1..n_chunks-1 by falling score, lower id first
  // among equals. n <= n_chunks = scores.shape[1].
  void top_chunks(TensorView scores, TensorView ids);
  // Rows [j chunk, (j + 1) chunk) of dst = rows of chunk ids[h, j] of src, per kv head, but for
  // keys that are expanded; dst is another cache than src.
  void gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                     const ExpandedKeys& expanded = {});
  // out[count, Hkv d] f32 = keys of rows [row, row + count) of src before RoPE: what rope_append()
  // made of them at positions which are the numbers of their rows is undone. Of an empty `rope`: as
  // they lie. src may be on_host; rotate_on_read is false.
  void read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
                 TensorView out);
  // Keys of rows [first, first + count) of dst = the mean keys of chunks [first, ...) of src, of
  // `chunk` rows each: summed in f32 in the order of rows, divided, and rounded once. src may be
  // on_host. rotate_on_read is false. Values stay as they are.
  void mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                 const KvView& dst);
  // Keys of rows [j chunk, (j + 1) chunk) of dst = those of chunk ids[h, j] by `keys`, per kv head.
  // This is for first <= j < n, of ids[Hkv, n]. A key is the sum in f32, rotated by its position,
  // which is the number of its token, and rounded once. Values stay as they are, and so do chunks
  // that reach beyond the tokens of `keys`. With on_host and rotate_on_read false; no gaps in the
  // matrices.
  void expand_keys(const LowRankKeys& keys, TensorView ids, int chunk, std::int64_t first,
                   const RopeView& rope, const KvView& dst);
  // Rows [dst_row, dst_row + count) of dst = rows [src_row, ...) of src, any alignment, count >= 0.
  // dst may be src if dst_row <= src_row; not both are on_host.
  void copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t dst_row,
                 std::int64_t count, Queue queue = Queue::kCompute);
  // Groups [group, group + count) of dst.older = rows [src_row, ...) of src, kKvGroup of them each;
  // src_row is a multiple of it, and src may be dst or on_host.
  void quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t group,
                     std::int64_t count);
  // Of each cache row first + i becomes what row first + from[i] was, for 0 <= i < n <=
  // kMaxTreeRows; from[n] rises, so that from[i] >= i. What a draft tree leaves of the path that is
  // kept. The caches differ in their memory, capacity and numbers alone.
  void keep_rows(std::span<const KvView> caches, std::int64_t first,
                 std::span<const std::int16_t> from);

  // dst = src, of one dtype: equally many elements without gaps, or two [n, m] with gaps between
  // rows. One transfer, also between page-locked host memory and where ops expect tensors.
  void copy(TensorView dst, TensorView src, Queue queue = Queue::kCompute);

  // Now, in the order of the calls. The newest kEvents can be asked for.
  static constexpr std::uint32_t kEvents = 4096;
  Event record();
  double elapsed_ms(Event a, Event b);  // blocks until b has happened
  virtual void synchronize() = 0;

  // Signal calls them, and says what they do. A backend whose calls have finished when they return
  // needs none.
  virtual std::uint32_t make_signal() { return 0; }
  virtual void drop_signal(std::uint32_t /*id*/) noexcept {}
  virtual void set_signal(std::uint32_t /*id*/, Queue /*after*/) {}
  virtual void wait_signal(std::uint32_t /*id*/, Queue /*before*/) {}

  // A pass over memory of these leases; `kind` tells apart those over the same.
  struct PassKey {
    std::uint64_t model = 0;                            // ids of leases
    std::array<std::uint64_t, kMaxSequences> caches{};  // of its sequences, in their order
    std::uint32_t kind = 0;
    auto operator<=>(const PassKey&) const = default;
  };
  // Runs `body`, of which nothing is left to do if it throws, and may replay it the next time `key`
  // comes up, until one of the leases ends; never where `key` is {}. `body` only calls Backend
  // methods, the same for the same key. What is recorded is so by the second time at the latest.
  virtual void replay(const PassKey& key, const std::function<void()>& body) = 0;
  // Returns whether replay() has yet to record `key`, which takes milliseconds once. It is false
  // where nothing is ever recorded.
  virtual bool is_unrecorded(const PassKey& /*key*/) const { return false; }
  // Passes that were recorded and can be replayed.
  virtual std::size_t recorded_passes() const { return 0; }

 protected:
  virtual std::int64_t do_matrix_bytes(std::int64_t rows, std::int64_t cols,
                                       WeightFormat format) const = 0;
  virtual void do_set_rows(Matrix& m, std::int64_t row_begin, TensorView src) = 0;
  virtual void do_upload(TensorView dst, TensorView src) = 0;
  virtual void do_download(TensorView host_dst, TensorView src) = 0;
  virtual void do_random_values(TensorView out, const DrawKey& key, std::int64_t first,
                                double scale) = 0;
  virtual void do_embed(TensorView tokens, const Matrix& table, TensorView out) = 0;
  virtual void do_rms_norm(TensorView x, TensorView w, float eps, TensorView out) = 0;
  virtual void do_head_norm(TensorView x, TensorView w, float eps) = 0;
  virtual void do_linear(TensorView x, const Matrix& w, TensorView out, bool accumulate,
                         RowPath path) = 0;
  virtual void do_rope_append(TensorView qkv, TensorView positions, const RopeView& rope,
                              TensorView q, std::span<const KvView> sequences) = 0;
  virtual void do_attention(TensorView q, std::span<const KvView> sequences, const RopeView& rope,
                            TensorView out, std::span<const TensorView> mass, int chunk,
                            RowPath path) = 0;
  virtual void do_swiglu(TensorView gate_up, TensorView out) = 0;
  virtual void do_clear(TensorView out) = 0;
  virtual void do_add_parts(TensorView parts, TensorView x) = 0;
  virtual void do_to_probs(std::span<const ProbsRequest> requests,
                           const SamplingParams& params) = 0;
  virtual void do_sample(std::span<const SampleRequest> requests, Acceptance acceptance,
                         std::span<Token> out) = 0;
  virtual void do_verify(std::span<const VerifyRequest> requests, const VerifyRule& rule,
                         std::span<VerifyResult> out) = 0;
  virtual void do_score_chunks(TensorView q, const KvView& kv, int chunk, std::int64_t n_chunks,
                               TensorView scores, ChunkRule rule) = 0;
  virtual void do_top_chunks(TensorView scores, TensorView ids) = 0;
  virtual void do_gather_chunks(const KvView& src, TensorView ids, int chunk, const KvView& dst,
                                const ExpandedKeys& expanded) = 0;
  virtual void do_read_keys(const KvView& src, std::int64_t row, std::int64_t count,
                            const RopeView& rope, TensorView out) = 0;
  virtual void do_mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
                            const KvView& dst) = 0;
  virtual void do_expand_keys(const LowRankKeys& keys, TensorView ids, int chunk,
                              std::int64_t first, const RopeView& rope, const KvView& dst) = 0;
  virtual void do_copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                            std::int64_t dst_row, std::int64_t count, Queue queue) = 0;
  virtual void do_quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst,
                                std::int64_t group, std::int64_t count) = 0;
  virtual void do_keep_rows(std::span<const KvView> caches, std::int64_t first,
                            std::span<const std::int16_t> from) = 0;
  virtual void do_copy(TensorView dst, TensorView src, Queue queue) = 0;
  // Slots of events, in [0, kEvents).
  virtual void do_record(std::size_t slot) = 0;
  virtual double do_elapsed_ms(std::size_t a, std::size_t b) = 0;
  // Drops what was recorded over lease `id`.
  virtual void do_forget(std::uint64_t /*id*/) noexcept {}
  // scratch() is at another place; the old one is gone.
  virtual void do_scratch_moved() noexcept {}
  // Takes staging_bytes(all) in place of what it had for the leases so far; of an empty shape:
  // gives it back. Throws Error(kResources, "OutOfMemory"), and then has nothing.
  virtual void do_stage(const ScratchShape& /*all*/) {}

  std::span<std::byte> scratch() const {
    return {static_cast<std::byte*>(scratch_.data()), static_cast<std::size_t>(scratch_.bytes())};
  }

 private:
  std::size_t slot_of(Event e) const;
  void resize_scratch(std::int64_t bytes);
  void stage(const ScratchShape& all);

  Traits traits_;
  std::uint32_t next_event_ = 0;
  ScratchShape leased_;  // the largest of each
  Buffer scratch_;       // of allocator(), empty when the last lease has ended
  std::int64_t staged_bytes_ = 0;
  std::uint64_t next_lease_ = 0;
  std::int64_t leases_ = 0;  // not ended
};

// What a model or a cache takes of its backend for as long as it lives:
// - scratch for its passes, so that nothing allocates later. All leases share one block, since
//   passes run one after another; it grows to the largest shape (smaller ones fit in it) and is
//   given back when the last lease ends;
// - an id for replay(), never used twice. What was recorded over it ends with it: a recording holds
//   addresses that may then serve another.
// The backend outlives it. Throws Error(kResources, "OutOfMemory"), which leaves the others their
// scratch.
class Lease {
 public:
  Lease(Backend& backend, const Backend::ScratchShape& shape)
      : backend_(backend), id_(backend.begin_lease(shape)) {}
  ~Lease() { backend_.end_lease(id_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  std::uint64_t id() const { return id_; }

 private:
  Backend& backend_;
  std::uint64_t id_;
};

// A Signal orders one queue of a backend after another. Recorded passes cannot have one. The
// backend outlives it.
class Signal {
 public:
  explicit Signal(Backend& backend) : backend_(&backend), id_(backend.make_signal()) {}
  Signal(Signal&& o) noexcept : backend_(std::exchange(o.backend_, nullptr)), id_(o.id_) {}
  Signal& operator=(Signal&&) = delete;
  ~Signal() {
    if (backend_ != nullptr) backend_->drop_signal(id_);
  }
  // Stands for the end of what `after` holds now, and no longer for an earlier moment.
  void set(Queue after) { backend_->set_signal(id_, after); }
  // Work that `before` is given from here on begins after that moment, or at once if it was never
  // set.
  void wait(Queue before) const { backend_->wait_signal(id_, before); }

 private:
  Backend* backend_;
  std::uint32_t id_;
};

}  // namespace triforce
