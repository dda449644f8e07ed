// Imports without instruction-set extensions: the reference for the others.
#include <cstring>

#include "cpu/attention_kernels.h"
#include "cpu/kv_import.h"
#include "cpu/kv_layout.h"

namespace triforce::cpu {
namespace {

// kElement: k_element or v_element.
template <int kPair, auto kElement>
void import_rows(const std::byte* rows, int d, std::byte* out) {
  constexpr int kPartElements = kPartBytes / kElementBytes;
  for (int row = 0; row < kTileKeys; ++row) {
    for (int dim = 0; dim < d; ++dim) {
      const std::byte* part = rows + part_offset(d * kElementBytes, row, dim / kPartElements);
      std::memcpy(out + kElement(kPair, d, row, dim) * kElementBytes,
                  part + dim % kPartElements * kElementBytes, kElementBytes);
    }
  }
}

template <int kPair>
void import_keys(const std::byte* rows, const std::byte* /*values*/, int d, std::byte* out) {
  import_rows<kPair, k_element>(rows, d, out);
}

template <int kPair>
constexpr ImportKernels kImport = {import_keys<kPair>, import_rows<kPair, v_element>};

}  // namespace

const ImportKernels& import_kernels_scalar(DType type) {
  return pairing(type) == 2 ? kImport<2> : kImport<1>;
}

}  // namespace triforce::cpu
