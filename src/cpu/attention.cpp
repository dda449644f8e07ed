// The exact path: up to kMaxBatchInvariantRows queries, parallel over (kv head, split of the keys).
#include <algorithm>
#include <limits>

#include "cpu/attention_exp2.h"
#include "cpu/attention_pass.h"
#include "cpu/kv_ops.h"

namespace triforce::cpu {
namespace {

// Scratch of one pass; head means kv head, rows = queries * group.
struct ExactScratch {
  std::byte* q = nullptr;      // [head, rows, d] prepared queries
  float* o = nullptr;          // [head, split, rows, d]
  float* m = nullptr;          // [head, split, rows]
  float* l = nullptr;          // [head, split, rows, kLanes]
  float* row_m = nullptr;      // [head, rows] maximum over all splits
  float* row_inv = nullptr;    // [head, rows] 1 / sum at that maximum
  float* mass_sums = nullptr;  // [head, tile, rows, kTileKeys / unit]
  float* mass_m = nullptr;     // [head, tile, rows]
  std::byte* threads = nullptr;
  std::int64_t thread_bytes = 0;

  TileBuffers of_thread(int thread, int d, std::int64_t rows) const {
    Scratch mine({threads + thread * thread_bytes, static_cast<std::size_t>(thread_bytes)});
    return take_tile_buffers(mine, d, rows);
  }
};

int mass_unit(int chunk) { return chunk % 8 == 0 ? 8 : 1; }

ExactScratch take_scratch(Scratch& scratch, std::int64_t rows, int kv_heads, int d,
                          std::int64_t length, int chunk, int threads) {
  const std::int64_t head_rows = kv_heads * rows;
  const std::int64_t states = head_rows * ceil_div(length, kSplitKeys);
  const std::int64_t tiles = chunk > 0 ? head_rows * ceil_div(length, kTileKeys) : 0;
  ExactScratch s;
  s.q = scratch.take<std::byte>(head_rows * d * 4);
  s.o = scratch.take<float>(states * d);
  s.m = scratch.take<float>(states);
  s.l = scratch.take<float>(states * kLanes);
  s.row_m = scratch.take<float>(head_rows);
  s.row_inv = scratch.take<float>(head_rows);
  s.mass_sums = scratch.take<float>(chunk > 0 ? tiles * (kTileKeys / mass_unit(chunk)) : 0);
  s.mass_m = scratch.take<float>(tiles);
  Scratch one = Scratch::counting();
  take_tile_buffers(one, d, rows);
  s.thread_bytes = one.used();
  s.threads = scratch.take<std::byte>(s.thread_bytes * threads);
  return s;
}

class Exact {
 public:
  Exact(const Workers& workers, const AttentionPass& pass, TensorView mass, int chunk)
      : p_(pass),
        rows_(pass.head_rows()),
        splits_(ceil_div(pass.length, kSplitKeys)),
        tiles_(ceil_div(pass.length, kTileKeys)),
        chunk_(mass.data == nullptr ? 0 : chunk),
        mass_(mass) {
    const std::int64_t row_bytes = p_.kv->format.bytes(p_.d);
    c_ = with_threads_for(workers, 2 * p_.kv->kv_heads * p_.length * row_bytes);
    Scratch scratch(workers);
    s_ = take_scratch(scratch, rows_, p_.kv->kv_heads, p_.d, p_.length, chunk_, c_.threads);
  }

  void run() {
    const std::int64_t head_rows = p_.kv->kv_heads * rows_;
    const std::int64_t q_bytes = p_.query_bytes();
    parallel_for(with_threads_for(c_, head_rows * p_.d * 4), head_rows, [&](std::int64_t i, int) {
      prepare_query(p_, i / rows_, i % rows_, s_.q + i * q_bytes);
    });
    const std::int64_t units = p_.kv->kv_heads * splits_;
    shares_ = std::min<std::int64_t>(c_.threads, units);
    parallel_for(c_, shares_, [&](std::int64_t share, int thread) {
      const std::int64_t end = first_unit(share + 1);
      for (std::int64_t unit = first_unit(share); unit < end; ++unit) {
        run_split(unit / splits_, unit % splits_, thread);
      }
    });
    parallel_for(with_threads_for(c_, head_rows * splits_ * p_.d * 4), head_rows,
                 [&](std::int64_t i, int) { combine(i / rows_, i % rows_); });
    if (chunk_ > 0) write_mass();
  }

 private:
  // Of those that a thread takes: a unit is a split of a head. Shares have as equal numbers of keys
  // as whole units allow, for the last split of a head is shorter. A boundary that falls into a
  // unit goes to the nearer end of it.
  std::int64_t first_unit(std::int64_t share) const {
    if (shares_ == p_.kv->kv_heads * splits_) return share;
    const std::int64_t key = share * p_.kv->kv_heads * p_.length / shares_;
    const std::int64_t split = key % p_.length / kSplitKeys;
    const std::int64_t begin = split * kSplitKeys, end = std::min(begin + kSplitKeys, p_.length);
    const bool later = 2 * (key % p_.length) >= begin + end;
    return key / p_.length * splits_ + split + (later ? 1 : 0);
  }

  void run_split(std::int64_t head, std::int64_t split, int thread) {
    const std::int64_t state = (head * splits_ + split) * rows_;
    const AttentionState rows{0,
                              rows_,
                              s_.q + head * rows_ * p_.query_bytes(),
                              s_.o + state * p_.d,
                              s_.m + state,
                              s_.l + state * kLanes};
    reset(rows, p_.d);
    MassOutput mass;
    if (chunk_ > 0) {
      mass.unit = mass_unit(chunk_);
      mass.sums = s_.mass_sums + head * tiles_ * rows_ * (kTileKeys / mass.unit);
      mass.scale = s_.mass_m + head * tiles_ * rows_;
    }
    const std::int64_t begin = split * kSplitKeys, end = std::min(begin + kSplitKeys, p_.length);
    const std::int64_t common = std::min(end, p_.common_keys());
    const TileBuffers buffers = s_.of_thread(thread, p_.d, rows_);
    if (begin < common) run_tiles(p_, head, begin, common, rows, buffers, mass);
    for (std::int64_t i = 0; common < end && i < p_.queries; ++i) {
      run_own_tiles(head, i, std::max(begin, common), end, rows, buffers);
    }
  }

  // Of the keys that are not common to all queries, those in [begin, end) that query i sees.
  void run_own_tiles(std::int64_t head, std::int64_t i, std::int64_t begin, std::int64_t end,
                     AttentionState state, const TileBuffers& buffers) {
    const SeenRows seen = p_.seen_by(i);
    const std::int64_t first = i * p_.group;
    state.first_row = first;
    state.rows = p_.group;
    state.q += first * p_.query_bytes();
    state.o += first * p_.d;
    state.m += first;
    state.l += first * kLanes;
    run_seen_tiles(p_, head, seen, begin - p_.older, std::min(end - p_.older, seen.count()), state,
                   buffers);
  }

  // out = sum over the splits the row sees, in rising order.
  void combine(std::int64_t head, std::int64_t row) {
    const std::int64_t seen = ceil_div(p_.older + p_.seen_by(row / p_.group).count(), kSplitKeys);
    const auto state = [&](std::int64_t split) { return (head * splits_ + split) * rows_ + row; };
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t s = 0; s < seen; ++s) largest = std::max(largest, s_.m[state(s)]);
    const std::int64_t query_head = head * p_.group + row % p_.group;
    float* out = p_.out + row / p_.group * p_.out_stride + query_head * p_.d;
    std::fill_n(out, p_.d, 0.0F);
    float sum = 0.0F;
    for (std::int64_t s = 0; s < seen; ++s) {
      const float weight = exp2_scalar(s_.m[state(s)] - largest);
      const float* o = s_.o + state(s) * p_.d;
      sum += weight * sum_lanes(s_.l + state(s) * kLanes);
      for (int i = 0; i < p_.d; ++i) out[i] += weight * o[i];
    }
    const float inverse = 1.0F / sum;
    for (int i = 0; i < p_.d; ++i) out[i] *= inverse;
    s_.row_m[head * rows_ + row] = largest;
    s_.row_inv[head * rows_ + row] = inverse;
  }

  void collapse_tile(std::int64_t head, std::int64_t tile) {
    const int units = kTileKeys / mass_unit(chunk_);
    const std::int64_t first = (head * tiles_ + tile) * rows_;
    p_.kernels->collapse(s_.mass_m + first, s_.row_m + head * rows_, s_.row_inv + head * rows_,
                         rows_, units, s_.mass_sums + first * units);
  }

  void write_mass() {
    const std::int64_t kv_heads = p_.kv->kv_heads, unit = mass_unit(chunk_);
    const std::int64_t units = kTileKeys / unit, chunks = p_.kv->capacity / chunk_;
    auto* out = mass_.as<float>();
    const Workers c = with_threads_for(c_, kv_heads * tiles_ * rows_ * units * 4);
    parallel_for(c, kv_heads * tiles_,
                 [&](std::int64_t i, int) { collapse_tile(i / tiles_, i % tiles_); });
    parallel_for(c, kv_heads, [&](std::int64_t head, int) {
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t end = std::min((chunk + 1) * chunk_, tiles_ * kTileKeys);
        float sum = 0.0F;
        for (std::int64_t key = chunk * chunk_; key < end; key += unit) {
          const std::int64_t tile = (head * tiles_ + key / kTileKeys) * rows_;
          sum += s_.mass_sums[tile * units + key % kTileKeys / unit];
        }
        out[head * mass_.stride[0] + chunk] = sum;
      }
    });
  }

  const AttentionPass& p_;
  Workers c_;
  std::int64_t rows_, splits_, tiles_, shares_ = 1;
  int chunk_;
  TensorView mass_;
  ExactScratch s_;
};

}  // namespace

std::int64_t exact_scratch_bytes(std::int64_t queries, int heads, int kv_heads, int d,
                                 std::int64_t length, int mass_chunk, int threads) {
  Scratch all = Scratch::counting();
  take_scratch(all, queries * ceil_div(heads, kv_heads), kv_heads, d, length, mass_chunk, threads);
  return all.used();
}

void attention_exact(const Workers& workers, const AttentionPass& pass, TensorView mass,
                     int chunk) {
  Exact(workers, pass, mass, chunk).run();
}

}  // namespace triforce::cpu
