// The kernels as plain C++ sees them: one operation, or what follows a product, a .cu file.
// Contracts are those of Backend (triforce/backend.h), which checks them; tensors lie in device
// memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "triforce/backend.h"
#include "triforce/host_kv_order.h"
#include "triforce/pass_kernels.h"

namespace triforce::kernels {

// Weights in the order in which tensor cores take them (pack.cu, linear.cu).
//
// A matrix [N, K] is padded with zeros to N16 x K32 and cut in tiles of 16 x 32; the tiles of 16
// rows lie one after another in k. A tile is two operands A of mma.m16n8k16, each 32 lanes x 16
// bytes, so that a warp's loads of weights are consecutive and need no shared memory. Lane 4 g + p
// holds rows g and g + 8, columns 8 p .. 8 p + 7 of its tile: the first four in the first operand.
// Operand B then is 16 consecutive bytes of x for both. (The order of k within a tile is free as
// long as A and B agree.)
inline constexpr int kTileRows = 16, kTileCols = 32;

// Quantised weights are padded to N16 x K64 and cut in groups of 16 x 64, two such tiles. Of each
// there are first the codes, without a sign: 8 or 128 more than they are. A lane's codes of both
// tiles follow each other (4 bits), or those of one tile (8 bits), 16 bytes that are one load.
// Then come the scales, of rows g and g + 8 beside each other. Codes of padding mean nothing: what
// they are multiplied with is zero, or their sums go nowhere.

// Bytes of a Matrix's storage, which is 16-byte aligned. Its type is f16 or bf16.
std::int64_t packed_bytes(std::int64_t rows, std::int64_t cols, WeightFormat format);

// Rows [row_begin, row_begin + src.shape[0]) of m = src [n, K], f32, f16 or bf16 in device memory,
// rounded to m's type, and then quantised to its scales and codes. The padding of rows is not
// written: memory begins as zeros.
void pack_rows(const Matrix& m, std::int64_t row_begin, const TensorView& src, cudaStream_t stream);
// dst [n, K] of m's type, row-major = rows [row_begin, row_begin + n) of m, which is not quantised.
void unpack_rows(const Matrix& m, std::int64_t row_begin, const TensorView& dst,
                 cudaStream_t stream);

// A matrix in that order as kernels read it.
struct PackedMatrix {
  const void* data = nullptr;
  WeightFormat format = DType::kF16;
  std::int64_t rows = 0, cols = 0;
  const float* bias = nullptr;  // [rows]; null: none
};
inline PackedMatrix packed(const Matrix& m) {
  return {m.storage.data(), m.format, m.rows, m.cols, m.bias.view().as<const float>()};
}

// Rows of one linear(); of one kernel of it with quantised weights.
inline constexpr std::int64_t kMaxLinearRows = 128, kMaxQuantisedRows = 16;
// Rows of a product that one kernel computes with what follows it.
inline std::int64_t max_fused_rows(const PackedMatrix& w) {
  return w.format.is_quantised() ? kMaxQuantisedRows : kMaxBatchInvariantRows;
}

// out[T, N] (+)= x[T, K] w^T + bias for T of 1 to kMaxLinearRows, which reads w once: up to 32 rows
// at the speed at which it can be read. x of w's type, out of that type or f32; accumulate only
// into f32, one addition of the finished sum. The bits of a row do not depend on T: eight warps
// take every eighth tile of k, or group of it, and their sums are added in order. Quantised weights
// are read once for every kMaxQuantisedRows rows. These products may read w before kernels that
// were queued earlier have ended (launch_early): who has written w has waited for that on the host.
void linear(const TensorView& x, const PackedMatrix& w, const TensorView& out, bool accumulate,
            cudaStream_t stream);
// linear() of up to max_fused_rows(w) rows to gate_up[T, 2 F] and swiglu() of that to out[T, F], to
// the same bits; F is a multiple of 16 (has_linear_swiglu).
bool has_linear_swiglu(const PackedMatrix& w);
void linear_swiglu(const TensorView& x, const PackedMatrix& w, const TensorView& gate_up,
                   const TensorView& out, cudaStream_t stream);
// Sequences that one launch takes: of one capacity, their keys and their values equally far apart,
// and their lengths, numbers of appended rows and trees' parents one after the other. So are their
// groups, and the numbers of these.
struct KvLanes {
  KvLanes() = default;
  KvLanes(const KvView& one) : kv(one) {}  // of a single sequence
  KvView kv;                               // of the first
  std::int64_t step = 0;                   // elements from one to the next, of keys and of values
  std::int64_t older_k_step = 0, older_v_step = 0;  // bytes, of groups of keys and of values
  int count = 1;
};
// As many of the first sequences as one launch takes.
KvLanes lanes_of(std::span<const KvView> sequences);
// launch(lanes, first, n) for each of the launches that all sequences take: of rows [first, first +
// n) of `rows`, of which each sequence has as many.
template <class Launch>
void for_each_lanes(std::span<const KvView> sequences, std::int64_t rows, const Launch& launch) {
  const std::int64_t each = rows / static_cast<std::int64_t>(sequences.size());
  std::int64_t first = 0;
  while (!sequences.empty()) {
    const KvLanes lanes = lanes_of(sequences);
    launch(lanes, first, lanes.count * each);
    first += lanes.count * each;
    sequences = sequences.subspan(static_cast<std::size_t>(lanes.count));
  }
}

// Ranges of KV heads of a layer that one kernel appends rows to, each at a place of its own: on the
// host, on the device, and far from it. They follow each other, and dtype, head_dim, capacity,
// length, appended, rotate_on_read and the number of lanes are the same for all.
inline constexpr int kMaxHeadRanges = 3;
inline int kv_heads_of(std::span<const KvLanes> ranges) {
  return ranges.back().kv.first_head + ranges.back().kv.kv_heads - ranges.front().kv.first_head;
}
// linear() of up to max_fused_rows(w) rows to qkv[T, (H + 2 Hkv) d] and rope_append() of that, to
// the same bits; `ranges`, at most kMaxHeadRanges, hold all heads of their layer.
void linear_rope_append(const TensorView& x, const PackedMatrix& w, const TensorView& qkv,
                        const TensorView& positions, const RopeView& rope, const TensorView& q,
                        std::span<const KvLanes> ranges, cudaStream_t stream);

// Operations on rows of activations (rows.cu).

// A token outside the table reads row 0: callers have checked tokens.
void embed(const TensorView& tokens, const PackedMatrix& table, const TensorView& out,
           cudaStream_t stream);

// One block a row, the order of its sum fixed by D.
void rms_norm(const TensorView& x, const TensorView& w, float eps, const TensorView& out,
              cudaStream_t stream);

// One warp a head; heads of up to 256 dimensions.
void head_norm(const TensorView& x, const TensorView& w, float eps, cudaStream_t stream);
// out[T, N] (+)= bias[N], f32, f16 or bf16: what a product is added to.
void set_bias(const float* bias, const TensorView& out, bool accumulate, cudaStream_t stream);

// In f32 inside.
void swiglu(const TensorView& gate_up, const TensorView& out, cudaStream_t stream);
void add_parts(const TensorView& parts, const TensorView& x, cudaStream_t stream);

// dst[n, m] = src[n, m] between f32, f16 and bf16, or any type and itself; rows may be strided.
void convert(const TensorView& src, const TensorView& dst, cudaStream_t stream);

// Of at most kMaxHeadRanges ranges, q for their query heads. Angles in f32, results rounded once.
void rope_append(const TensorView& qkv, const TensorView& positions, const RopeView& rope,
                 const TensorView& q, std::span<const KvLanes> ranges, cudaStream_t stream);

// The layout of rows repeats every 8 (kv_layout.cuh), that of rows on the host every 16.
inline constexpr int kKvGranule = kHostKeyBlock;

// Rows that overlap move in order, by one block per head.
void copy_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t dst_row,
               std::int64_t count, cudaStream_t stream);
// Of up to kKeptCaches caches in one launch.
inline constexpr std::size_t kKeptCaches = 64;
void keep_rows(std::span<const KvView> caches, std::int64_t first,
               std::span<const std::int16_t> from, cudaStream_t stream);
void mean_keys(const KvView& src, int chunk, std::int64_t first, std::int64_t count,
               const KvView& dst, cudaStream_t stream);
void read_keys(const KvView& src, std::int64_t row, std::int64_t count, const RopeView& rope,
               const TensorView& out, cudaStream_t stream);
void gather_chunks(const KvView& src, const TensorView& ids, int chunk, const KvView& dst,
                   const ExpandedKeys& expanded, cudaStream_t stream);
// A block takes 128 rows of a head (low_rank_keys.cu).
void expand_keys(const LowRankKeys& keys, const TensorView& ids, int chunk, std::int64_t first,
                 const RopeView& rope, const KvView& dst, cudaStream_t stream);
// A block takes a group of a head (kv_groups.cu).
void quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t group,
                   std::int64_t count, cudaStream_t stream);

// Packed rows, T times the group of query heads of a KV head, that a warp computes. Four warps
// share keys for as many more (attention_wide.cu): up to 128 rows read them once.
inline constexpr int kAttentionRows = 32;

// Tokens of a split: a multiple of 64 that gives a device of `multiprocessors` a few blocks of
// equal work each, for all KV heads of a layer. A pure function, so that bits depend on the cache
// alone and not on its length, nor on which heads are computed together.
std::int64_t split_tokens(int multiprocessors, int layer_heads, std::int64_t capacity);

// Rows that a sequence has room for, with those in groups: what attention's capacities are.
inline std::int64_t whole_capacity(const KvView& kv) {
  return kv.older.capacity * kKvGroup + kv.capacity;
}

// Bytes of workspace for T queries of H heads of each of so many sequences, over caches of that
// capacity. tree: the sequences end in draft trees.
std::int64_t attention_bytes(std::int64_t queries, int heads, int kv_heads, int head_dim,
                             std::int64_t capacity, std::int64_t split, bool mass,
                             bool tree = false, int lanes = 1);

// The same for every cache of up to that capacity, cut by split_tokens(), with draft trees, too,
// and all sequences that have so many queries together.
std::int64_t max_attention_bytes(int multiprocessors, std::int64_t queries, int heads, int kv_heads,
                                 int head_dim, std::int64_t capacity, bool mass);

// Backend::attention with RowPath::kInvariant: q[S T, H, d] and out[S T, H d] of kv's type. Keys
// are the rows of the matrix unit's product and queries its columns. The cache is cut at multiples
// of `split`; a block takes 64 keys at a time, 16 a warp; sums of warps and of splits are added in
// order. So the bits of a row depend neither on T nor on what comes after it. Of up to
// kAttentionRows packed rows the block that finishes a head last adds its splits, of more a kernel
// of its own. Over draft trees another kernel adds the splits of any number of rows, once it has
// taken the last keys of each query: the last 63 at most that all see, and those of its branch
// (attention_tree.cu). What is padding there gets no result. `mass` is empty, or for each sequence
// [Hkv, n] f32, which receives the probability of each chunk, by a second pass over the keys: over
// those of as many sequences at a time as the workspace has room for. arrivals[S Hkv]: zeros in
// device memory, left so when the call has run.
void attention(const TensorView& q, const KvLanes& lanes, const RopeView& rope,
               const TensorView& out, std::span<const TensorView> mass, int chunk,
               std::int64_t split, std::span<std::byte> workspace, unsigned* arrivals,
               cudaStream_t stream);

// Backend::attention without mass for any T; made for more than 32. q[T, H, d] and out[T, H d] of
// kv's type. A block takes a tile of queries of one head, the rows of the matrix unit's products,
// and passes over 32 or 64 keys at a time with a running maximum (FlashAttention-2, arXiv
// 2307.08691). Devices of compute capability 9.0 have a kernel of their own for heads of 128
// dimensions whose keys are not rotated when read (attention_prefill_wgmma.cu). Which one runs does
// not depend on T.
void attention_prefill(const TensorView& q, const KvView& kv, const RopeView& rope,
                       const TensorView& out, cudaStream_t stream);

void score_chunks(const TensorView& q, const KvView& kv, int chunk, std::int64_t n_chunks,
                  const TensorView& scores, ChunkRule rule, cudaStream_t stream);

// Sorts in `workspace`: device memory, top_chunks_bytes of the scores' columns.
std::int64_t top_chunks_bytes(int kv_heads, std::int64_t n_chunks);
void top_chunks(const TensorView& scores, const TensorView& ids, void* workspace,
                cudaStream_t stream);

// What one launch of Backend::to_probs makes: it travels with the launch, in half of the 4 KB that
// its parameters may take. As many rows are a block for each multiprocessor of today's devices.
inline constexpr int kMaxProbsRows = 128;
struct ProbsRows {
  struct Row {
    const float* logits = nullptr;
    float* probs = nullptr;
  };
  Row rows[kMaxProbsRows];
  int count = 0, vocab = 0;
};
// launch(rows) for each of the launches that all requests take, in their order.
template <class Launch>
void for_each_probs_rows(std::span<const ProbsRequest> requests, const Launch& launch) {
  ProbsRows some;
  some.vocab = static_cast<int>(requests.front().logits.shape[1]);
  for (const ProbsRequest& r : requests) {
    for (std::int64_t t = 0; t < r.logits.shape[0]; ++t) {
      if (some.count == kMaxProbsRows) {
        launch(some);
        some.count = 0;
      }
      some.rows[some.count++] = {r.logits.as<const float>() + t * r.logits.stride[0],
                                 r.probs.as<float>() + t * r.probs.stride[0]};
    }
  }
  launch(some);
}
// One block a row. Ids rank by falling logit, lower id first among equals; the cuts of top-k and
// top-p are found by radix selection and are those that sorting would find: weights are summed as
// whole multiples of 2^-52 V, so that every order of summation gives the same.
void to_probs(const ProbsRows& rows, const SamplingParams& params, cudaStream_t stream);

// Backend::sample and Backend::verify: what sampling.h does, with the same numbers from Philox, by
// one block a request. `jobs` are kJobBytes of page-locked host memory. Several requests lie there
// until the call has run; one travels with the launch. Results go to `out`, device memory or
// page-locked host memory. Sums over the vocabulary are in double and in an order of their own, so
// a draw within some 1e-13 of the boundary between two tokens may differ from the host's.
inline constexpr std::int64_t kJobBytes = static_cast<std::int64_t>(kMaxSequences) * 1024;
void sample(std::span<const SampleRequest> requests, Acceptance acceptance, void* jobs, Token* out,
            cudaStream_t stream);
// to_probs() of at most kMaxSequences rows and sample() of one token from each, to the same bits.
void to_probs_and_sample(const ProbsRows& rows, const SamplingParams& params,
                         std::span<const SampleRequest> requests, Acceptance acceptance, void* jobs,
                         Token* out, cudaStream_t stream);
void verify(std::span<const VerifyRequest> requests, const VerifyRule& rule, void* jobs,
            VerifyResult* out, cudaStream_t stream);

void random_values(const TensorView& out, const DrawKey& key, std::int64_t first, double scale,
                   cudaStream_t stream);

// What the device can do (probe.cu).

// What this build holds for the current device: nothing that runs there, PTX that its driver
// compiles when a kernel is first used, or machine code.
enum class DeviceCode : std::uint8_t { kNone, kPtx, kMachine };
DeviceCode device_code();

// Launches ask a device once for what it can do (launch.cpp); after this they ask again.
void forget_devices();

// Reads bytes [0, bytes) at `data` (16-byte aligned, bytes a multiple of 16) once and may write one
// checksum word to `sink`, so that the reads are not optimised away; `blocks` blocks of 512
// threads.
void read_all(const void* data, std::int64_t bytes, int blocks, std::uint32_t* sink,
              cudaStream_t stream);

}  // namespace triforce::kernels
