// Weights in the order in which tensor cores take them.
//
// A matrix [N, K] is padded with zeros to N16 x K32 and cut in tiles of 16 x 32; the tiles of 16
// rows lie one after another in k. A tile is two operands A of mma.m16n8k16, each 32 lanes x 16
// bytes, so that a warp's loads of weights are consecutive and need no shared memory. Lane 4 g + p
// holds rows g and g + 8, columns 8 p .. 8 p + 7 of its tile: the first four in the first operand.
// Operand B then is 16 consecutive bytes of x for both. (The order of k within a tile is free as
// long as A and B agree.)
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "triforce/tensor.h"

namespace triforce::kernels {

inline constexpr int kTileRows = 16, kTileCols = 32;

struct PackedMatrix {
  void* data = nullptr;  // 16-byte aligned, packed_bytes()
  DType dtype = DType::kF16;
  std::int64_t rows = 0, cols = 0;  // N out features, K in features
};
std::int64_t packed_bytes(std::int64_t rows, std::int64_t cols);

// Rows [row_begin, row_begin + src.shape[0]) of m = src [n, K], f32, f16 or bf16 in device memory,
// rounded to m's type. The padding is not written: memory begins as zeros.
void pack_rows(const PackedMatrix& m, std::int64_t row_begin, const TensorView& src,
               cudaStream_t stream);
// dst [n, K] of m's type, row-major = rows [row_begin, row_begin + n) of m.
void unpack_rows(const PackedMatrix& m, std::int64_t row_begin, const TensorView& dst,
                 cudaStream_t stream);

}  // namespace triforce::kernels
