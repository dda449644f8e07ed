// Rows in the order of a CUDA device, copied a tile at a time into the order of kv_layout.h.
//
// That order is the one of kernels/kv_layout.cuh: [row][head_dim] of 16-bit elements, inside a row
// the 16-byte part c at c ^ (row mod 8). head_dim is a multiple of 64, so that 8 parts fill a line
// of their own.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cpu/context.h"
#include "triforce/tensor.h"

namespace triforce::cpu {

inline constexpr int kElementBytes = 2;
inline constexpr int kPartBytes = 16;
inline constexpr int kLineParts = 8;
inline constexpr int kLineBytes = kLineParts * kPartBytes;

// First byte of part `part` of row `row`, where both are counted from multiples of 8.
constexpr std::int64_t part_offset(std::int64_t row_bytes, int row, int part) {
  return row * row_bytes + (part ^ row % kLineParts) * kPartBytes;
}

// Memory must not idle while a tile is copied: V comes while K is copied, and the next tile's K
// while attention reads the copies (TileArgs). More would drive the copies out of the first-level
// cache. What was driven out of it in the meantime comes back a kilobyte ahead of the copying.
inline constexpr int kImportAhead = 1024;

template <int kBytes>
inline __attribute__((always_inline)) void prefetch_bytes(const std::byte* p) {
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(p + i);
}

// Each copies the K or V of one tile, kTileKeys rows of d elements that begin at a multiple of 8
// rows, to the 64-byte aligned `out`. keys prefetches the tile's V from `values` on.
struct ImportKernels {
  void (*keys)(const std::byte* rows, const std::byte* values, int d, std::byte* out);
  void (*values)(const std::byte* rows, int d, std::byte* out);
};

// type: f16 or bf16.
const ImportKernels& import_kernels(Isa isa, DType type);

// Of one level each.
const ImportKernels& import_kernels_scalar(DType type);
const ImportKernels& import_kernels_avx2(DType type);
const ImportKernels& import_kernels_avx512(DType type);

}  // namespace triforce::cpu
