// Attention of a call's sequences, and its exact path, parallel over (sequence, kv head, split of
// the keys): up to kMaxBatchInvariantRows queries of several, or any number of one.
#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "core/sequences.h"
#include "cpu/attention_exp2.h"
#include "cpu/attention_pass.h"
#include "cpu/kv_ops.h"

namespace triforce::cpu {
namespace {

// Scratch of one sequence; head means kv head, rows = queries * group.
struct ExactScratch {
  std::byte* q = nullptr;      // [head, rows, d] prepared queries
  float* o = nullptr;          // [head, split, rows, d]
  float* m = nullptr;          // [head, split, rows]
  float* l = nullptr;          // [head, split, rows, kLanes]
  float* row_m = nullptr;      // [head, rows] maximum over all splits
  float* row_inv = nullptr;    // [head, rows] 1 / sum at that maximum
  float* mass_sums = nullptr;  // [head, tile, rows, kTileKeys / unit]
  float* mass_m = nullptr;     // [head, tile, rows]
};

int mass_unit(int chunk) { return chunk % 8 == 0 ? 8 : 1; }

ExactScratch take_scratch(Scratch& scratch, std::int64_t head_rows, int d, std::int64_t length,
                          int chunk) {
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
  return s;
}

// More than rounding adds to the arrays of a sequence: their size where each has one line.
std::int64_t sequence_bytes() {
  Scratch one = Scratch::counting();
  take_scratch(one, 1, 1, 1, 8);
  return one.used();
}

std::int64_t thread_buffer_bytes(int d, std::int64_t rows) {
  Scratch one = Scratch::counting();
  take_tile_buffers(one, d, rows);
  return one.used();
}

// One sequence of a call.
class ExactSequence {
 public:
  ExactSequence() = default;
  ExactSequence(const AttentionPass& pass, TensorView mass, int chunk)
      : p_(pass),
        rows_(pass.head_rows()),
        splits_(ceil_div(pass.length, kSplitKeys)),
        tiles_(ceil_div(pass.length, kTileKeys)),
        chunk_(mass.data == nullptr ? 0 : chunk),
        mass_(mass) {}

  std::int64_t rows() const { return rows_; }
  std::int64_t head_rows() const { return p_.kv->kv_heads * rows_; }
  std::int64_t units() const { return p_.kv->kv_heads * splits_; }  // splits of a head
  std::int64_t states() const { return head_rows() * splits_; }
  int head_dim() const { return p_.d; }
  std::int64_t kv_bytes() const {
    return 2 * p_.kv->kv_heads * p_.length * p_.kv->format.bytes(p_.d);
  }

  void take(Scratch& scratch) { s_ = take_scratch(scratch, head_rows(), p_.d, p_.length, chunk_); }

  void prepare(std::int64_t head_row) const {
    prepare_query(p_, head_row / rows_, head_row % rows_, s_.q + head_row * p_.query_bytes());
  }

  void run_unit(std::int64_t unit, const TileBuffers& buffers) const {
    const std::int64_t head = unit / splits_, split = unit % splits_, state = unit * rows_;
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
    if (begin < common) run_tiles(p_, head, begin, common, rows, buffers, mass);
    for (std::int64_t i = 0; common < end && i < p_.queries; ++i) {
      run_own_tiles(head, i, std::max(begin, common), end, rows, buffers);
    }
  }

  // out = sum over the splits the row sees, in rising order.
  void combine(std::int64_t head_row) const {
    const std::int64_t head = head_row / rows_, row = head_row % rows_;
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

  void write_mass(const Workers& workers) const {
    if (chunk_ == 0) return;
    const std::int64_t kv_heads = p_.kv->kv_heads, unit = mass_unit(chunk_);
    const std::int64_t units = kTileKeys / unit, chunks = p_.kv->capacity / chunk_;
    auto* out = mass_.as<float>();
    const Workers c = with_threads_for(workers, kv_heads * tiles_ * rows_ * units * 4);
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

 private:
  // Of the keys that are not common to all queries, those in [begin, end) that query i sees.
  void run_own_tiles(std::int64_t head, std::int64_t i, std::int64_t begin, std::int64_t end,
                     AttentionState state, const TileBuffers& buffers) const {
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

  void collapse_tile(std::int64_t head, std::int64_t tile) const {
    const int units = kTileKeys / mass_unit(chunk_);
    const std::int64_t first = (head * tiles_ + tile) * rows_;
    p_.kernels->collapse(s_.mass_m + first, s_.row_m + head * rows_, s_.row_inv + head * rows_,
                         rows_, units, s_.mass_sums + first * units);
  }

  AttentionPass p_;
  std::int64_t rows_ = 0, splits_ = 0, tiles_ = 0;
  int chunk_ = 0;
  TensorView mass_;
  ExactScratch s_;
};

// Sequences that one loop over all their splits reads. With a loop for each, a pass of SmolLM2-135M
// over 8 sequences of 256 tokens took 1.1 times as long.
class ExactCall {
 public:
  ExactCall(const Workers& workers, int chunk) : workers_(workers), chunk_(chunk) {}

  // Runs those before it if there is no room for it beside them.
  void add(const AttentionPass& pass, TensorView mass) {
    if (queries_ + pass.queries > kMaxBatchInvariantRows) run();
    queries_ += pass.queries;
    sequences_[count_++] = ExactSequence(pass, mass, chunk_);
  }

  void run() {
    if (count_ == 0) return;
    const std::span<ExactSequence> all = std::span(sequences_).first(count_);
    std::int64_t bytes = 0, work = 0, most_rows = 0, states = 0;
    Scratch scratch(workers_);
    for (ExactSequence& e : all) {
      e.take(scratch);
      bytes += e.head_rows() * e.head_dim() * 4;
      work += e.kv_bytes();
      states += e.states() * e.head_dim() * 4;
      most_rows = std::max(most_rows, e.rows());
    }
    const Workers c = with_threads_for(workers_, work);
    const int d = all.front().head_dim();
    const std::int64_t thread_bytes = thread_buffer_bytes(d, most_rows);
    auto* const buffers = scratch.take<std::byte>(thread_bytes * c.threads);

    for_all(with_threads_for(c, bytes), &ExactSequence::head_rows,
            [](const ExactSequence& e, std::int64_t row, int) { e.prepare(row); });
    for_all(c, &ExactSequence::units, [&](const ExactSequence& e, std::int64_t unit, int thread) {
      Scratch mine({buffers + thread * thread_bytes, static_cast<std::size_t>(thread_bytes)});
      e.run_unit(unit, take_tile_buffers(mine, d, e.rows()));
    });
    for_all(with_threads_for(c, states), &ExactSequence::head_rows,
            [](const ExactSequence& e, std::int64_t row, int) { e.combine(row); });
    for (const ExactSequence& e : all) e.write_mass(c);
    count_ = 0;
    queries_ = 0;
  }

 private:
  // body(sequence, i, thread) for each i below what `count_of` says of the sequence, in one loop.
  template <class CountOf, class Body>
  void for_all(const Workers& workers, CountOf count_of, const Body& body) const {
    std::array<std::int64_t, kMaxBatchInvariantRows> ends;
    std::int64_t total = 0;
    for (std::size_t s = 0; s < count_; ++s) ends[s] = total += (sequences_[s].*count_of)();
    parallel_for(workers, total, [&](std::int64_t i, int thread) {
      const auto s = static_cast<std::size_t>(
          std::upper_bound(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(count_), i) -
          ends.begin());
      body(sequences_[s], s == 0 ? i : i - ends[s - 1], thread);
    });
  }

  const Workers& workers_;
  int chunk_;
  std::array<ExactSequence, kMaxBatchInvariantRows> sequences_;  // the first count_
  std::size_t count_ = 0;
  std::int64_t queries_ = 0;
};

}  // namespace

std::int64_t exact_scratch_bytes(std::int64_t queries, int heads, int kv_heads, int d,
                                 std::int64_t length, int mass_chunk, int threads) {
  const std::int64_t rows = queries * ceil_div(heads, kv_heads);
  Scratch all = Scratch::counting();
  take_scratch(all, rows * kv_heads, d, length, mass_chunk);
  return all.used() + queries * sequence_bytes() +
         round_up(thread_buffer_bytes(d, rows) * threads, 64);
}

void attention(const Workers& workers, TensorView q, std::span<const KvView> sequences,
               const RopeView& rope, TensorView out, std::span<const TensorView> mass, int chunk,
               RowPath path) {
  ExactCall exact(workers, chunk);
  for_each_sequence(q.shape[0], sequences, [&](std::size_t s, std::int64_t first, std::int64_t n) {
    const AttentionPass pass =
        make_pass(workers.isa, q.rows(first, n), sequences[s], rope, out.rows(first, n));
    if (path == RowPath::kInvariant || n <= kMaxBatchInvariantRows) {
      exact.add(pass, mass.empty() ? TensorView{} : mass[s]);
    } else {
      attention_prefill(workers, pass);
    }
  });
  exact.run();
}

}  // namespace triforce::cpu
