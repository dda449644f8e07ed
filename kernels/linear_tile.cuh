// Products of few rows with a packed matrix (kernels.h): one kernel, which differs in where its
// rows come from and in what becomes of its sums.
//
// A block makes 16 columns of one strip of the matrix for all rows, or of two strips whose columns
// belong together. Eight warps take every eighth unit of k, a tile or a group of codes, and their
// sums are added in order: the bits of a sum depend neither on the number of rows nor on what is
// done with it.
#pragma once
#include <algorithm>
#include <iterator>

#include "kernels/element.cuh"
#include "kernels/kernels.h"
#include "kernels/launch.cuh"
#include "kernels/packing.cuh"
#include "kernels/ptx.cuh"
#include "kernels/weights.cuh"

namespace triforce::kernels {

constexpr int kLinearWarps = 8, kLinearThreads = kLinearWarps * 32;
constexpr int kTokens = 8;  // columns of operand B
// Kernels of up to so many groups of kTokens rows are apart; of more there are those of
// kManyGroups.
constexpr int kGroupsAtOnce = 4;
constexpr int kManyGroups[] = {8, 10, 12, kMaxLinearRows / kTokens};
// Groups whose operands, and whose sums of all warps, are held at a time.
template <int kGroups>
constexpr int kAtOnce = kGroups % 5 == 0 ? 5 : std::min(kGroups, kGroupsAtOnce);

// Eight elements of x, of which the first `there` are there; zeros for the others.
template <class T>
TF_DEVICE uint4 load_part(const T* x, int there) {
  std::uint32_t words[4] = {0, 0, 0, 0};
  TF_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (i >= there) break;
    std::uint16_t bits;
    memcpy(&bits, x + i, 2);
    words[i / 2] |= std::uint32_t{bits} << (16 * (i % 2));
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

// The same with a loop, for kernels that have many places where rows may end.
template <class T>
TF_DEVICE uint4 load_part_in_turn(const T* x, int there) {
  std::uint32_t words[4] = {0, 0, 0, 0};
  TF_UNROLL_N(1)
  for (int i = min(there, 8) - 1; i >= 0; --i) {  // the last goes up by 16 bits for each before it
    TF_UNROLL
    for (int w = 3; w > 0; --w) words[w] = words[w] << 16 | words[w - 1] >> 16;
    words[0] = words[0] << 16 | *reinterpret_cast<const std::uint16_t*>(x + i);
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

// Rows of T as they lie.
template <class T>
struct Rows {
  const T* x;
  std::int64_t stride;
  int rows, cols;
};

// One lane's rows of operand B, one in each group of 8. Rows that are not there are those of
// others, whose sums go nowhere: so nothing has to be asked before they are read.
template <class T, int kGroups>
class RowReader {
 public:
  int cols, whole_tiles;  // whole: a lane's 16 bytes of it are one load

  TF_DEVICE RowReader(const Rows<T>& of, int group)
      : cols(of.cols), whole_tiles(of.stride % 8 == 0 ? of.cols / kTileCols : 0), of_(of) {
    if constexpr (kGroups <= kGroupsAtOnce) {
      TF_UNROLL
      for (int j = 0; j < kGroups; ++j) row_[j] = row(j, group);
    }
  }
  // Those of the groups from `first` on.
  template <bool kWhole>
  TF_DEVICE void load(int tile, int pair, int first, uint4 (&b)[kAtOnce<kGroups>]) const {
    const int k = tile * kTileCols + pair * 8;
    // Places of more rows take more registers than there are beside their sums.
    [[maybe_unused]] const int group = static_cast<int>(ptx::opaque(threadIdx.x) % 32) / 4;
    TF_UNROLL
    for (int j = 0; j < kAtOnce<kGroups>; ++j) {
      const T* from;
      if constexpr (kGroups <= kGroupsAtOnce) {
        from = row_[j] + k;
      } else {
        from = row(first + j, group) + k;
      }
      b[j] = kWhole || tile < whole_tiles ? *reinterpret_cast<const uint4*>(from)
                                          : load_part(from, cols - k);
    }
  }

  // All groups' of a unit of several tiles, of which there are no more than kGroupsAtOnce groups.
  template <bool kWhole, int kTiles>
  TF_DEVICE void load_tiles(int unit, int pair, uint4 (&b)[kTiles][kGroups]) const {
    const int k = unit * kTiles * kTileCols + pair * 8;
    const bool is_whole = kWhole || unit < whole_tiles / kTiles;
    TF_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      TF_UNROLL
      for (int j = 0; j < kGroups; ++j) {
        const T* const from = row_[j] + k + t * kTileCols;
        b[t][j] = is_whole ? *reinterpret_cast<const uint4*>(from)
                           : load_part_in_turn(from, cols - k - t * kTileCols);
      }
    }
  }

 private:
  TF_DEVICE const T* row(int j, int group) const {
    return of_.x + min(j * kTokens + group, of_.rows - 1) * of_.stride;
  }

  const Rows<T>& of_;
  const T* row_[kAtOnce<kGroups>];
};

// Of a strip, a warp and the groups whose sums are held at a time.
template <int kGroups>
constexpr int kSumsOf = kAtOnce<kGroups>* kTokens* kTileRows;

// A lane's sums of a strip, of the groups from `first` on, to shared memory:
// partial[warp][row][column].
template <int kGroups>
TF_DEVICE void keep_sums(const float (&sum)[kGroups][4], int first, int warp, int lane,
                         float* partial) {
  const int group = lane / 4, pair = lane % 4;
  TF_UNROLL
  for (int j = 0; j < kAtOnce<kGroups>; ++j) {
    float* const mine = partial + (warp * kAtOnce<kGroups> + j) * kTokens * kTileRows;
    TF_UNROLL
    for (int i = 0; i < 4; ++i) {
      mine[(pair * 2 + i % 2) * kTileRows + group + i / 2 * 8] = sum[first + j][i];
    }
  }
}

// What is added to finished sums. A thread has one column of a block (add_warps()).
struct Bias {
  const float* of_columns;  // of the matrix, null: none
  int columns;

  template <int kStrips, class Epilogue>
  TF_DEVICE void load(const Epilogue& epilogue, int block, float (&into)[kStrips]) const {
    TF_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      const int column =
          epilogue.strip(block, s) * kTileRows + static_cast<int>(threadIdx.x) % kTileRows;
      into[s] = -0.0F;  // which changes no sum
      if (of_columns != nullptr) into[s] = of_columns[min(column, columns - 1)];
    }
  }
};

// The sums of all warps of partial[strip][warp][row][column], in order, with the bias of this
// thread's column, to the epilogue; row 0 is that of token `first`.
template <int kGroups, class Epilogue>
TF_DEVICE void add_warps(const float* partial, int first, int rows, int block,
                         const float (&bias)[Epilogue::kStrips], const Epilogue& epilogue) {
  static_assert(kLinearThreads % kTileRows == 0);
  constexpr int kStrips = Epilogue::kStrips, kSums = kSumsOf<kGroups>;
  for (int o = static_cast<int>(threadIdx.x); o < kSums; o += kLinearThreads) {
    const int token = first + o / kTileRows, column = o % kTileRows;
    if (token >= rows) continue;
    float total[kStrips];
    TF_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      const float* const of_strip = partial + s * kLinearWarps * kSums + o;
      total[s] = of_strip[0];
      TF_UNROLL
      for (int w = 1; w < kLinearWarps; ++w) total[s] += of_strip[w * kSums];
      total[s] += bias[s];
    }
    epilogue(token, block, column, total);
  }
}

// The weights of one round of a warp: kUnits units of each strip, kLinearWarps apart in k.
template <class W, int kUnits, int kStrips>
struct Round {
  using Of = Weights<W>;
  typename Of::Unit held[kUnits][kStrips] = {};

  // kWhole: all units are there, and whole.
  template <bool kWhole>
  TF_DEVICE void request(const typename Of::Strip (&strip)[kStrips], int first, int units) {
    TF_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int unit = first + i * kLinearWarps;
      if (!kWhole && unit >= units) break;
      TF_UNROLL
      for (int s = 0; s < kStrips; ++s) held[i][s] = strip[s].request(unit);
    }
  }
  template <bool kWhole, class T, int kGroups>
  TF_DEVICE void multiply(const RowReader<T, kGroups>& rows, int first, int units, int pair,
                          float (&sum)[kStrips][kGroups][4]) const {
    TF_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int unit = first + i * kLinearWarps;
      if (!kWhole && unit >= units) break;  // the same for all lanes
      multiply_unit<kWhole>(rows, i, unit, pair, sum);
    }
  }
  // multiply() of a round that is whole. The place of each unit gets that of the next round, if
  // there is one.
  template <class T, int kGroups>
  TF_DEVICE void multiply_and_request(const RowReader<T, kGroups>& rows,
                                      const typename Of::Strip (&strip)[kStrips], int first,
                                      int units, int pair, float (&sum)[kStrips][kGroups][4]) {
    TF_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int unit = first + i * kLinearWarps, next = unit + kUnits * kLinearWarps;
      multiply_unit<true>(rows, i, unit, pair, sum);
      if (next >= units) continue;
      TF_UNROLL
      for (int s = 0; s < kStrips; ++s) held[i][s] = strip[s].request(next);
    }
  }

 private:
  template <bool kWhole, class T, int kGroups>
  TF_DEVICE void multiply_unit(const RowReader<T, kGroups>& rows, int i, int unit, int pair,
                               float (&sum)[kStrips][kGroups][4]) const {
    TF_UNROLL
    for (int group = 0; group < kGroups; group += kAtOnce<kGroups>) {
      if constexpr (Of::kTiles == 1) {
        uint4 b[kAtOnce<kGroups>];
        rows.template load<kWhole>(unit, pair, group, b);
        multiply_strips(b, i, group, sum);
      } else {
        uint4 b[Of::kTiles][kGroups];
        rows.template load_tiles<kWhole>(unit, pair, b);
        multiply_strips(b, i, group, sum);
      }
    }
  }
  template <class B, int kGroups>
  TF_DEVICE void multiply_strips(const B& b, int i, int group,
                                 float (&sum)[kStrips][kGroups][4]) const {
    TF_UNROLL
    for (int s = 0; s < kStrips; ++s) held[i][s].multiply(b, &sum[s][group]);
  }
};

// Epilogue::kStrips: strips of the matrix that a block takes; is_for<W>(groups): whether it
// is launched with weights of W for so many groups of rows; strip(block, s): which strips;
// operator()(token, block, column, sums): what becomes of the sums of one column of each.
template <class W, class Epilogue, int kGroups>
__global__ void __launch_bounds__(kLinearThreads, kGroups > kGroupsAtOnce ? 1 : 2)
    linear_kernel(Rows<typename Weights<W>::Element> x, const uint4* weights, int units, Bias bias,
                  Epilogue epilogue) {
  using Of = Weights<W>;
  constexpr int kStrips = Epilogue::kStrips, kUnits = Of::units_ahead(kGroups, kStrips);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int block = static_cast<int>(blockIdx.x);
  typename Of::Strip strip[kStrips];
  TF_UNROLL
  for (int s = 0; s < kStrips; ++s) {
    strip[s] = Of::strip(weights, epilogue.strip(block, s), units, lane);
  }
  Round<W, kUnits, kStrips> round;
  round.template request<false>(strip, warp, units);
  ptx::wait_for_earlier_grids();  // weights are older than any of them
  ptx::let_next_grid_start();
  TF_SHARED(float, partial);
  const RowReader<typename Of::Element, kGroups> rows(x, lane / 4);
  float sum[kStrips][kGroups][4] = {};
  constexpr int kStep = kLinearWarps * kUnits, kLast = kLinearWarps * (kUnits - 1);
  int first = warp;
  if constexpr (Of::kTiles == 1) {
    // Rounds that are whole, and followed by one that is: their loads are one block of code.
    // Registers hold the weights of two rounds beside one group of rows, and not beside more.
    TF_UNROLL_N((kGroups == 1 ? 2 : 1))
    for (; first + kStep + kLast < rows.whole_tiles; first += kStep) {
      round.template multiply<true>(rows, first, units, lane % 4, sum);
      round.template request<true>(strip, first + kStep, units);
    }
  } else {  // of which a warp has few
    TF_UNROLL_N(1)
    for (; first + kLast < rows.whole_tiles / Of::kTiles; first += kStep) {
      round.multiply_and_request(rows, strip, first, units, lane % 4, sum);
    }
  }
  TF_UNROLL_N(1)
  for (; first < units; first += kStep) {
    round.template multiply<false>(rows, first, units, lane % 4, sum);
    round.template request<false>(strip, first + kStep, units);
  }
  float of_columns[kStrips];
  bias.load(epilogue, block, of_columns);
  TF_UNROLL
  for (int group = 0; group < kGroups; group += kAtOnce<kGroups>) {
    if (group > 0) __syncthreads();  // those before have been added
    TF_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      keep_sums(sum[s], group, warp, lane, partial + s * kLinearWarps * kSumsOf<kGroups>);
    }
    __syncthreads();
    add_warps<kGroups>(partial, group * kTokens, x.rows, block, of_columns, epilogue);
  }
}

// body(std::integral_constant<int, groups>{}) with the first of kManyGroups from kIndex on that
// takes them.
template <std::size_t kIndex, class Body>
void with_many_groups(std::int64_t groups, const Body& body) {
  if constexpr (kIndex + 1 < std::size(kManyGroups)) {
    if (groups > kManyGroups[kIndex]) return with_many_groups<kIndex + 1>(groups, body);
  }
  body(std::integral_constant<int, kManyGroups[kIndex]>{});
}

// body(std::integral_constant<int, groups>{}) with the groups of the kernel for so many rows.
template <class Body>
void with_groups(std::int64_t rows, const Body& body) {
  const std::int64_t groups = ceil_div(rows, kTokens);
  if (groups <= kGroupsAtOnce) return with_count<kGroupsAtOnce>(groups, body);
  with_many_groups<0>(groups, body);
}

// x of at most Weights<W>::kMaxRows rows.
template <class W, class Epilogue>
void run_linear(const TensorView& x, const PackedMatrix& w, std::int64_t blocks,
                const Epilogue& epilogue, cudaStream_t stream) {
  using Of = Weights<W>;
  using T = typename Of::Element;
  const Rows<T> rows{static_cast<const T*>(x.data), x.stride[0], static_cast<int>(x.shape[0]),
                     static_cast<int>(w.cols)};
  with_groups(rows.rows, [&](auto groups) {
    if constexpr (Epilogue::template is_for<W>(groups) && groups * kTokens <= Of::kMaxRows) {
      constexpr std::size_t kPartial =
          sizeof(float) * Epilogue::kStrips * kLinearWarps * kSumsOf<groups>;
      launch_early(linear_kernel<W, Epilogue, groups>, dims(blocks), dims(kLinearThreads), kPartial,
                   stream, rows, static_cast<const uint4*>(w.data),
                   static_cast<int>(ceil_div(w.cols, Of::kTiles * kTileCols)),
                   Bias{w.bias, static_cast<int>(w.rows)}, epilogue);
    }
  });
}

}  // namespace triforce::kernels
