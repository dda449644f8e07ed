// The loops of kv_import.h over the parts of a tile. Included by one source per instruction level,
// which defines TF_ISA (the target attribute) first.
//
// Level has key_part<kPair>(line, row_bytes, part, out), part `part` of a line of all rows of a key
// block, and value_line<kPair>(line, row_bytes, row, out), the line of rows row to row + kPair - 1
// of 8. kPair is pairing() of the format.
#ifndef TF_ISA
#error "define TF_ISA before including this file"
#endif
#include "cpu/attention_kernels.h"
#include "cpu/kv_import.h"
#include "cpu/kv_layout.h"

#define TF_ISA_INLINE TF_ISA inline __attribute__((always_inline))

namespace triforce::cpu {
namespace {

template <class Level, int kPair>
struct ImportTile {
  TF_ISA static void keys(const std::byte* rows, const std::byte* values, int d, std::byte* out) {
    const std::int64_t row_bytes = std::int64_t{d} * kElementBytes;
    constexpr int kBlockPartBytes = kKeyBlock * kPartBytes;
    const std::byte* tile = rows;
    std::int64_t at = 0;
    for (int block = 0; block < kTileKeys / kKeyBlock; ++block, rows += kKeyBlock * row_bytes) {
      for (std::int64_t line = 0; line < row_bytes; line += kLineBytes) {
#pragma GCC unroll 8
        for (int part = 0; part < kLineParts; ++part) {
          prefetch_bytes<kBlockPartBytes>(tile + at + kImportAhead);
          prefetch_bytes<kBlockPartBytes>(values + at);
          Level::template key_part<kPair>(rows + line, row_bytes, part, out + at);
          at += kBlockPartBytes;
        }
      }
    }
  }

  TF_ISA static void values(const std::byte* rows, int d, std::byte* out) {
    const std::int64_t row_bytes = std::int64_t{d} * kElementBytes;
    const std::byte* tile = rows;
    std::int64_t at = 0;
    for (int block = 0; block < kTileKeys; block += kLineParts, rows += kLineParts * row_bytes) {
#pragma GCC unroll 8
      for (int row = 0; row < kLineParts; row += kPair) {
        for (std::int64_t line = 0; line < row_bytes; line += kLineBytes) {
          prefetch_bytes<kPair * kLineBytes>(tile + at + kImportAhead);
          Level::template value_line<kPair>(rows + line, row_bytes, row, out + at);
          at += kPair * kLineBytes;
        }
      }
    }
  }
};

template <class Level>
const ImportKernels& import_kernels_of(DType type) {
  static constexpr ImportKernels kPairs = {ImportTile<Level, 2>::keys,
                                           ImportTile<Level, 2>::values};
  static constexpr ImportKernels kSingle = {ImportTile<Level, 1>::keys,
                                            ImportTile<Level, 1>::values};
  return pairing(type) == 2 ? kPairs : kSingle;
}

}  // namespace
}  // namespace triforce::cpu
