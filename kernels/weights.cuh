// Weights of products as a warp takes them: units that follow each other in k, of 16 rows each.
//
// Weights<W> says of a type W (packing.cuh): Element, that of x; kTiles, the tiles that are a unit;
// kMaxRows of one kernel, and kFewGroups of rows that meet one strip at a time; units_ahead(groups,
// strips), those of a strip that a warp has under way with so many groups of rows and strips;
// strip(), a lane's part of a strip; Strip::request(unit), which begins to load; and
// Unit::multiply(b, sum), with operand B of the tiles for each group, onto the groups' sums.
#pragma once
#include "kernels/element.cuh"
#include "kernels/kernels.h"
#include "kernels/packing.cuh"
#include "kernels/ptx.cuh"

namespace triforce::kernels {

// Tiles of weights of 16 bits a warp has under way: 8 warps x 4 x 1 KiB, and two or more blocks on
// a multiprocessor, cover the latency of an H200's memory.
constexpr int kTilesAhead = 4;

// Weights of 16 bits: a unit is a tile.
template <class T>
struct Weights {
  using Element = T;
  static constexpr int kTiles = 1, kFewGroups = 2;
  static constexpr std::int64_t kMaxRows = kMaxLinearRows;
  // Beside the sums of 128 rows there are registers for half of them, and products take longer.
  static constexpr int units_ahead(int groups, int strips) {
    return (groups > 12 ? kTilesAhead / 2 : kTilesAhead) / strips;
  }

  struct Unit {
    uint4 operands[2] = {};

    template <int kGroups>
    TF_DEVICE void multiply(const uint4 (&b)[kGroups], float (*sum)[4]) const {
      const uint4 &lo = operands[0], &hi = operands[1];
      const std::uint32_t a0[4] = {lo.x, lo.y, lo.z, lo.w};
      const std::uint32_t a1[4] = {hi.x, hi.y, hi.z, hi.w};
      TF_UNROLL
      for (int j = 0; j < kGroups; ++j) {
        const std::uint32_t b0[2] = {b[j].x, b[j].y}, b1[2] = {b[j].z, b[j].w};
        ptx::mma<T>(sum[j], a0, b0);
        ptx::mma<T>(sum[j], a1, b1);
      }
    }
  };
  struct Strip {
    const uint4* tiles;  // from the lane's first operand on

    TF_DEVICE Unit request(int unit) const {
      Unit out;
      out.operands[0] = ptx::load_stream(tiles + std::int64_t{unit} * 64);
      out.operands[1] = ptx::load_stream(tiles + std::int64_t{unit} * 64 + 32);
      return out;
    }
  };
  TF_DEVICE static Strip strip(const uint4* weights, int index, int units, int lane) {
    return {weights + std::int64_t{index} * units * 64 + lane};
  }
};

// The codes in both halves of `stored` from bit kAt on as a pair of T, exactly. Or-ed into the
// fraction of a power of two they are added to it, and it is taken off again.
template <class T, int kBits, int kAt>
TF_DEVICE std::uint32_t codes_of(std::uint32_t stored) {
  constexpr std::uint32_t kMask = (kBits == 4 ? 0x000f000fU : 0x00ff00ffU) << kAt;
  if constexpr (std::is_same_v<T, __half>) {
    static_assert(kAt + kBits <= 8);
    // 1024 or 64 and the code as it is stored, less that power and what codes are stored with.
    constexpr std::uint32_t kPower = kAt == 0 ? 0x64006400U : 0x54005400U;
    constexpr std::uint32_t kLess = kAt > 0 ? 0xd480d480U : kBits == 4 ? 0xe408e408U : 0xe480e480U;
    return ptx::fma_pairs<T>(ptx::and_or(stored, kMask, kPower), 0x3c003c00U, kLess);
  } else if constexpr (kBits == 4) {  // 128 and the code as it is stored, less 136
    static_assert(kAt == 0);
    return ptx::fma_pairs<T>(ptx::and_or(stored, kMask, 0x43004300U), 0x3f803f80U, 0xc308c308U);
  } else {  // 128 and its lower 7 bits, less 128 or, where the highest is not set, 256
    const std::uint32_t low = ptx::and_or(stored, 0x007f007fU, 0x43004300U);
    const std::uint32_t base = ptx::and_not_or(0x00800080U, stored, 0x43004300U);
    return ptx::fma_pairs<T>(base, 0xbf80bf80U, low);
  }
}

// Codes of kBits: a unit is a group, whose products are summed before the scale is applied.
template <class T, int kBits>
struct Weights<Codes<T, kBits>> {
  using Element = T;
  using Group = PackedGroup<kBits>;
  static constexpr int kTiles = kWeightGroup / kTileCols, kFewGroups = 1, kLoads = kBits / 4;
  static constexpr std::int64_t kMaxRows = kMaxQuantisedRows;
  // Each place is filled again as soon as its unit has been multiplied: fewer bytes are enough, and
  // all that registers hold beside the rows of two groups.
  static constexpr int units_ahead(int groups, int strips) {
    if (strips > 1) return kBits == 8 && groups > 1 ? 1 : 2;
    return kBits == 8 ? 4 : 3;
  }

  struct Unit {
    uint4 codes[kLoads] = {};
    std::uint32_t scales = 0;  // f16: of the rows of sums 0 and 1, of those of 2 and 3

    // Operand A of half of a tile.
    TF_DEVICE void unpack(int tile, int half, std::uint32_t (&a)[4]) const {
      const uint4& in = codes[kBits == 4 ? 0 : tile];
      const std::uint32_t words[4] = {in.x, in.y, in.z, in.w};
      // Registers 0 and 2 are of a row and 1 and 3 of the one 8 after it.
      TF_UNROLL
      for (int row = 0; row < 2; ++row) {
        if constexpr (kBits == 4) {
          const std::uint32_t both = words[tile * 2 + half] >> (row * 8);
          a[row] = codes_of<T, 4, 0>(both);
          if constexpr (std::is_same_v<T, __half>) {
            a[2 + row] = codes_of<T, 4, 4>(both);
          } else {
            a[2 + row] = codes_of<T, 4, 0>(both >> 4);
          }
        } else {
          a[row] = codes_of<T, 8, 0>(words[half * 2] >> (row * 8));
          a[2 + row] = codes_of<T, 8, 0>(words[half * 2 + 1] >> (row * 8));
        }
      }
    }
    template <int kGroups>
    TF_DEVICE void multiply(const uint4 (&b)[kTiles][kGroups], float (*sum)[4]) const {
      float part[kGroups][4] = {};
      TF_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        std::uint32_t a0[4], a1[4];
        unpack(t, 0, a0);
        unpack(t, 1, a1);
        TF_UNROLL
        for (int j = 0; j < kGroups; ++j) {
          const std::uint32_t b0[2] = {b[t][j].x, b[t][j].y}, b1[2] = {b[t][j].z, b[t][j].w};
          ptx::mma<T>(part[j], a0, b0);
          ptx::mma<T>(part[j], a1, b1);
        }
      }
      __half of_rows[2];
      memcpy(of_rows, &scales, sizeof scales);
      const float scale[2] = {__half2float(of_rows[0]), __half2float(of_rows[1])};
      TF_UNROLL
      for (int j = 0; j < kGroups; ++j) {
        TF_UNROLL
        for (int i = 0; i < 4; ++i) sum[j][i] = fmaf(scale[i / 2], part[j][i], sum[j][i]);
      }
    }
  };
  struct Strip {
    const uint4* codes;  // from the lane's first on
    int to_scales;       // words from there to those of the lane's rows

    TF_DEVICE Unit request(int unit) const {
      const uint4* const from = codes + unit * (Group::kBytes / 16);  // of less than 2^31 words
      Unit out;
      TF_UNROLL
      for (int i = 0; i < kLoads; ++i) out.codes[i] = ptx::load_stream(from + i * 32);
      out.scales = ptx::load_stream(reinterpret_cast<const std::uint32_t*>(from) + to_scales);
      return out;
    }
  };
  TF_DEVICE static Strip strip(const uint4* weights, int index, int units, int lane) {
    return {weights + std::int64_t{index} * units * (Group::kBytes / 16) + lane,
            Group::kCodeBytes / 4 + lane / 4 - lane * 4};
  }
};

}  // namespace triforce::kernels
