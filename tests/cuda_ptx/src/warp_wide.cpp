// Operations of a whole warp: shuffles, votes, matrices.
#include <cmath>

#include "operations.h"
#include "products.h"
#include "tf_half_bits.h"
#include "triforce/format.h"

namespace tf_ptx::detail {
namespace {

using tf_emulator::detail::float_of_bfloat;
using tf_emulator::detail::float_of_half;

// A sum as tensor cores make it: products and sum aligned to the largest exponent among them, cut
// off two bits below an f32's last, added, and cut off to f32.
float truncated_sum(const float* a, const float* b, std::size_t b_stride, int n, float sum) {
  constexpr int kNone = std::numeric_limits<int>::min();
  constexpr int kBits = 25;
  std::array<double, 16> products{};
  int largest = sum != 0 ? std::ilogb(sum) : kNone;
  bool finite = std::isfinite(sum);
  for (int k = 0; k < n; ++k) {
    const auto i = static_cast<std::size_t>(k);
    products[i] = static_cast<double>(a[i]) * static_cast<double>(b[i * b_stride]);
    finite = finite && std::isfinite(products[i]);
    if (products[i] != 0)
      largest = std::max(largest, std::ilogb(a[i]) + std::ilogb(b[i * b_stride]));
  }
  if (largest == kNone) return sum;
  double total = sum;
  if (!finite) {
    for (const double p : products) total += p;
    return static_cast<float>(total);
  }
  const double unit = std::ldexp(1.0, largest - kBits);
  total = std::trunc(total / unit);
  for (const double p : products) total += std::trunc(p / unit);
  total *= unit;
  const float near = static_cast<float>(total);
  return std::fabs(static_cast<double>(near)) > std::fabs(total) ? std::nextafter(near, 0.0F)
                                                                 : near;
}

// Fragments as the PTX manual draws them ("Matrix Fragments for mma.m16n8k16"): lane = 4 group +
// pair.
template <float (*kToFloat)(std::uint16_t)>
void mma(Warp& warp, const Instruction& in) {
  Matrices m;
  const auto two = [&](std::size_t operand, int lane, float& low, float& high) {
    const std::uint32_t v = get<std::uint32_t>(warp, in.operand[operand], lane);
    low = kToFloat(static_cast<std::uint16_t>(v));
    high = kToFloat(static_cast<std::uint16_t>(v >> 16));
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, pair = lane % 4;
    for (int r = 0; r < 4; ++r) {
      float* const row = m.a[group + r % 2 * 8];
      const int column = 2 * pair + r / 2 * 8;
      two(4 + static_cast<std::size_t>(r), lane, row[column], row[column + 1]);
      m.d[group + r / 2 * 8][2 * pair + r % 2] =
          get<float>(warp, in.operand[10 + static_cast<std::size_t>(r)], lane);
    }
    for (int r = 0; r < 2; ++r) {
      const int row = 2 * pair + 8 * r;
      two(8 + static_cast<std::size_t>(r), lane, m.b[row][group], m.b[row + 1][group]);
    }
  }
  add_products(m, warp.block->options.sums);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < 4; ++r) {
      set<float>(warp, in.operand[static_cast<std::size_t>(r)], lane,
                 m.d[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]);
    }
  }
}

using Tile = std::array<std::array<std::uint16_t, 8>, 8>;

// A lane's two elements of a tile.
std::uint32_t part(const Tile& tile, int lane, bool transposed) {
  const auto row = static_cast<std::size_t>(lane / 4),
             column = static_cast<std::size_t>(lane % 4 * 2);
  const std::uint32_t low = transposed ? tile[column][row] : tile[row][column];
  const std::uint32_t high = transposed ? tile[column + 1][row] : tile[row][column + 1];
  return low | high << 16;
}

}  // namespace

void add_products(Matrices& m, Sums sums) {
  if (sums == Sums::kInOrder) {
    for (int i = 0; i < 16; ++i) {
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < 8; ++n) m.d[i][n] += m.a[i][k] * m.b[k][n];
      }
    }
    return;
  }
  const int group = sums == Sums::kTruncated8 ? 8 : 16;
  for (int i = 0; i < 16; ++i) {
    for (int n = 0; n < 8; ++n) {
      for (int k = 0; k < 16; k += group) {
        m.d[i][n] = truncated_sum(&m.a[i][k], &m.b[k][n], 8, group, m.d[i][n]);
      }
    }
  }
}

void shuffle(Warp& warp, const Instruction& in, LaneMask lanes) {
  std::array<std::uint32_t, kLanes> values{};
  LaneMask inside = 0;
  for_each_lane(lanes, [&](int lane) {
    const std::uint32_t c = get<std::uint32_t>(warp, in.operand[4], lane);
    const int by = static_cast<int>(get<std::uint32_t>(warp, in.operand[3], lane) & 31u);
    const int segment = static_cast<int>(c >> 8 & 31u), clamp = static_cast<int>(c & 31u);
    const int first = lane & segment, last = first | (clamp & ~segment);
    int from = lane;
    bool ok = false;
    switch (Shuffle{in.mode}) {
      case Shuffle::kUp:
        from = lane - by, ok = from >= last;
        break;
      case Shuffle::kButterfly:
        from = lane ^ by, ok = from <= last;
        break;
      case Shuffle::kIndex:
        from = first | (by & ~segment), ok = from <= last;
        break;
    }
    if (!ok) from = lane;
    if ((lanes >> from & 1u) == 0) {
      fail(Fault::kDivergence,
           fmt::format("lane {} takes from lane {}, which takes no part: {}", lane, from, in.text));
    }
    values[static_cast<std::size_t>(lane)] = get<std::uint32_t>(warp, in.operand[2], from);
    inside |= static_cast<LaneMask>(ok) << lane;
  });
  for_each_lane(lanes, [&](int lane) {
    set<std::uint32_t>(warp, in.operand[0], lane, values[static_cast<std::size_t>(lane)]);
  });
  set_predicate(warp, in.operand[1], lanes, inside);
}

void vote(Warp& warp, const Instruction& in, LaneMask lanes) {
  const LaneMask source = get_predicate(warp, in.operand[1]);
  const LaneMask yes = (in.negated ? ~source : source) & lanes;
  if (Vote{in.mode} == Vote::kBallot) {
    for_each_lane(lanes, [&](int lane) { set<std::uint32_t>(warp, in.operand[0], lane, yes); });
    return;
  }
  set_predicate(warp, in.operand[0], lanes, yes != 0 ? kAllLanes : 0);
}

void mma_f16(Warp& warp, const Instruction& in, LaneMask) { mma<float_of_half>(warp, in); }
void mma_bf16(Warp& warp, const Instruction& in, LaneMask) { mma<float_of_bfloat>(warp, in); }

void load_matrix(Warp& warp, const Instruction& in, LaneMask) {
  std::array<Tile, 4> tiles{};
  for (std::size_t t = 0; t < in.operands; ++t) {
    for (std::size_t row = 0; row < 8; ++row) {
      const int lane = static_cast<int>(8 * t + row);
      std::memcpy(tiles[t][row].data(), reach(warp, in, in.address, lane, 16, false), 16);
    }
  }
  for (std::size_t t = 0; t < in.operands; ++t) {
    for (int lane = 0; lane < kLanes; ++lane) {
      set<std::uint32_t>(warp, in.operand[t], lane, part(tiles[t], lane, in.mode == 1));
    }
  }
}

void transpose_matrix(Warp& warp, const Instruction& in, LaneMask) {
  Tile tile{};
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t v = get<std::uint32_t>(warp, in.operand[1], lane);
    const auto row = static_cast<std::size_t>(lane / 4),
               column = static_cast<std::size_t>(lane % 4 * 2);
    tile[row][column] = static_cast<std::uint16_t>(v);
    tile[row][column + 1] = static_cast<std::uint16_t>(v >> 16);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    set<std::uint32_t>(warp, in.operand[0], lane, part(tile, lane, true));
  }
}

void nothing(Warp&, const Instruction&, LaneMask) {}

}  // namespace tf_ptx::detail
