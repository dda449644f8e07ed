// Where KV rows lie on a CUDA device.
//
// [kv_head][row][head_dim], head_stride elements between heads. Inside a row the 16-byte part c
// lies at c ^ (row mod 8): a tile of rows that is copied to shared memory as it is can be read by
// ldmatrix without bank conflicts. The pattern repeats every 8 rows, half a granule, so moves of
// whole granules are plain copies. Rows on the host are in the order of host_kv_order.h.
//
// A group of keys, and one of values, is its codes and then its scales (KvGroup). Codes lie as
// plain rows do, without the pattern: those of the 8 dimensions of a part are 4 or 8 bytes. Codes
// of 8 bits are in the order of dimensions, of 4 bits those of dimensions 2 i and 2 i + 1 are from
// bits 4 i and 4 i + 16 on. They are stored without a sign, 8 or 128 more than they are. Of scales
// there is a word each, scale and zero, in the order of dimensions or of rows.
#pragma once
#include "kernels/kernels.h"
#include "kernels/platform.cuh"
#include "triforce/backend.h"
#include "triforce/host_kv_order.h"
#include "triforce/quantisation.h"

namespace triforce::kernels {

inline constexpr int kPartElements = 8;  // of 16 bytes

// Element at which part `part` of row `row` begins, from the head's first element.
TF_HOST_DEVICE inline std::int64_t kv_part(std::int64_t row, int part, int head_dim) {
  return row * head_dim + (part ^ static_cast<int>(row % 8)) * kPartElements;
}
// Element (row, dim) from the head's first element.
TF_HOST_DEVICE inline std::int64_t kv_element(std::int64_t row, int dim, int head_dim) {
  return kv_part(row, dim / kPartElements, head_dim) + dim % kPartElements;
}

// Element (row, dim) of K or V of a head of `kv`, wherever it is.
TF_HOST_DEVICE inline std::int64_t element_of(const KvView& kv, bool is_k, std::int64_t row,
                                              int dim) {
  const int d = kv.head_dim;
  if (!kv.on_host) return kv_element(row, dim, d);
  const int pair = pairing(kv.format.type);
  return is_k ? k_element(pair, d, row, dim) : v_element(pair, d, row, dim);
}

// A group of rows of kDim dimensions in codes of kBits.
template <int kDim, int kBits>
struct KvGroup {
  static constexpr Quantisation kQuantisation =
      kBits == 8 ? Quantisation::kInt8 : Quantisation::kInt4;
  static constexpr int kZero = 1 << (kBits - 1);      // the code 0 as it is stored
  static constexpr int kPartWords = kBits / 4;        // of a part's codes
  static constexpr int kRowBytes = kDim * kBits / 8;  // of a row's codes
  static constexpr int kCodeBytes = kKvGroup * kRowBytes;
  // Of code i of a part: its bit, from those of the part's words on.
  TF_HOST_DEVICE static constexpr int code_bit(int i) {
    return kBits == 8 ? i * 8 : i / 2 * 4 + i % 2 * 16;
  }
  static constexpr int kKeyBytes = static_cast<int>(kv_group_k_bytes(kDim, kQuantisation));
  static constexpr int kValueBytes = static_cast<int>(kv_group_v_bytes(kDim, kQuantisation));
  static_assert(kCodeBytes == kv_code_bytes(kDim, kQuantisation));
};

// The view of one lane; rows are not appended to groups, which stay as they are.
TF_DEVICE KvView lane_of(const KvLanes& lanes, unsigned lane) {
  KvView kv = lanes.kv;
  kv.k = static_cast<std::uint16_t*>(kv.k) + lane * lanes.step;
  kv.v = static_cast<std::uint16_t*>(kv.v) + lane * lanes.step;
  kv.length += lane;
  return kv;
}

// What keys are rotated by.
struct Angles {
  const float *cos, *sin;
  std::int64_t stride;  // elements between rows
};
inline Angles angles_of(const RopeView& rope) {
  return {static_cast<const float*>(rope.cos.data), static_cast<const float*>(rope.sin.data),
          rope.cos.rank > 0 ? rope.cos.stride[0] : std::int64_t{0}};
}

}  // namespace triforce::kernels
