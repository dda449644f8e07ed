#include "cpu/kv_groups.h"

#include <algorithm>

#include "core/elements.h"
#include "core/quantise.h"
#include "cpu/attention_pass.h"
#include "cpu/kv_ops.h"
#include "cpu/quantised_panel.h"

namespace triforce::cpu {
namespace {

// Codes of x[rows][columns], each column quantised by itself: all at a time, for vectors of the
// compiler.
template <Quantisation kBy>
class ColumnCodes {
 public:
  static constexpr int kBits = code_bits(kBy), kOfWord = 32 / kBits;

  // Writes the scales, and behind them the zeros.
  ColumnCodes(const float* x, int rows, int columns, std::byte* scales) : columns_(columns) {
    constexpr int kMost = std::max(kMaxHeadDim, kKvGroup);
    CodeRange ranges[kMost];
    float scale[kMost], zero[kMost];
    for (int c = 0; c < columns; ++c) ranges[c] = {x[c], x[c]};
    for (int r = 1; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) ranges[c].see(x[r * columns + c]);
    }
    auto* const out = reinterpret_cast<std::uint16_t*>(scales);
    for (int c = 0; c < columns; ++c) {
      const CodeScale s = code_scale(ranges[c], kBy);
      out[c] = s.scale;
      out[columns + c] = s.zero;
      scale[c] = f16_to_f32(s.scale);
      zero[c] = f16_to_f32(s.zero);
    }
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        codes_[r * columns + c] = code_of(x[r * columns + c], scale[c], zero[c], kBy);
      }
    }
  }
  // Of a row and the columns from `first` on (quantised_panel.h).
  std::uint32_t word(int row, int first) const {
    std::uint32_t word = 0;
    for (int i = 0; i < kOfWord; ++i) {
      constexpr std::uint32_t kMask = (1U << kBits) - 1U;
      const int column = first + depth_in_word<kBits>(i);
      word |= (static_cast<std::uint32_t>(codes_[row * columns_ + column]) & kMask) << (i * kBits);
    }
    return word;
  }

 private:
  int columns_;
  std::int8_t codes_[kKvGroup * kMaxHeadDim];
};

// One group of one head: keys [token][dim], values [dim][token].
template <Quantisation kBy>
void write_group(int d, const GroupBytes& to, const float* x_k, const float* x_v) {
  constexpr int kOfWord = ColumnCodes<kBy>::kOfWord;
  const std::int64_t scales = kv_code_bytes(d, kBy);
  auto* k = reinterpret_cast<std::uint32_t*>(to.k);
  auto* v = reinterpret_cast<std::uint32_t*>(to.v);
  const ColumnCodes<kBy> keys(x_k, kKvGroup, d, to.k + scales);
  for (int block = 0; block < kKvGroup; block += kKeyBlock) {
    for (int j = 0; j < d; j += kOfWord) {
      for (int t = 0; t < kKeyBlock; ++t) *k++ = keys.word(block + t, j);
    }
  }
  const ColumnCodes<kBy> values(x_v, d, kKvGroup, to.v + scales);
  for (int t = 0; t < kKvGroup; t += kOfWord) {
    for (int j = 0; j < d; ++j) *v++ = values.word(j, t);
  }
}

// Token `t` of a group, which is row `row` of a head, as write_group() takes it.
template <class F>
void read_row(const KvView& kv, std::int64_t head, std::int64_t row, int t, float* x_k,
              float* x_v) {
  constexpr int kPair = pairing(F::kType);
  const int d = kv.head_dim;
  const auto* keys = reinterpret_cast<const typename F::Stored*>(k_head(kv, head));
  const auto* values = reinterpret_cast<const typename F::Stored*>(v_head(kv, head));
  for (int j = 0; j < d; ++j) {
    x_k[t * d + j] = F::load(keys[k_element(kPair, d, row, j)]);
    x_v[j * kKvGroup + t] = F::load(values[v_element(kPair, d, row, j)]);
  }
}

}  // namespace

void quantise_rows(const Workers& workers, const KvView& src, std::int64_t src_row,
                   const KvView& dst, std::int64_t group, std::int64_t count) {
  const int d = src.head_dim;
  const Workers c =
      with_threads_for(workers, src.kv_heads * count * src.format.bytes(2 * kKvGroup * d));
  parallel_for(c, src.kv_heads * count, [&](std::int64_t i, int) {
    float k[kKvGroup * kMaxHeadDim], v[kKvGroup * kMaxHeadDim];
    const std::int64_t head = i / count, g = i % count;
    visit_float(src.format.type, [&](auto format) {
      for (int t = 0; t < kKvGroup; ++t) {
        read_row<decltype(format)>(src, head, src_row + g * kKvGroup + t, t, k, v);
      }
    });
    const GroupBytes to = group_bytes(dst, head, group + g);
    if (dst.older.quantisation == Quantisation::kInt4) {
      write_group<Quantisation::kInt4>(d, to, k, v);
    } else {
      write_group<Quantisation::kInt8>(d, to, k, v);
    }
  });
}

}  // namespace triforce::cpu
