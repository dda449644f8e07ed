// The driver's functions that programs ask for by name: cuTensorMapEncodeTiled.
#include <cstring>

#include "api.h"
#include "cuda.h"
#include "tf_tensor_map.h"

namespace tf_emulator::detail {
namespace {

constexpr unsigned kSince = 12000;  // of the driver

// What the driver refuses, and what is not emulated.
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* every, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  constexpr std::uint64_t kAlignment = 16, kMaxBox = 256, kMaxDim = std::uint64_t{1} << 32;
  constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40;
  if (map == nullptr || reinterpret_cast<std::uintptr_t>(map) % alignof(CUtensorMap) != 0 ||
      reinterpret_cast<std::uintptr_t>(address) % kAlignment != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool half =
      type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if (rank != TensorMap::kRank || !half || swizzle != CU_TENSOR_MAP_SWIZZLE_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  TensorMap made{};
  made.mark = TensorMap::kMark;
  made.address = reinterpret_cast<std::uintptr_t>(address);
  made.strides[0] = 2;
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 1 || dims[i] > kMaxDim || box[i] < 1 || box[i] > kMaxBox || every[i] != 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    made.dims[i] = dims[i];
    made.box[i] = box[i];
    if (i == 0) continue;
    made.strides[i] = strides[i - 1];
    if (strides[i - 1] % kAlignment != 0 || strides[i - 1] >= kMaxStride) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (made.row_bytes() % kAlignment != 0) return CUDA_ERROR_INVALID_VALUE;
  static_assert(sizeof(made) <= sizeof(CUtensorMap));
  *map = {};
  std::memcpy(map, &made, sizeof(made));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tf_emulator::detail

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* answer) {
  const tf_emulator::detail::Call call;
  TF_EMULATOR_TRY(call->ready());
  if (symbol == nullptr || function == nullptr) return call->fail(cudaErrorInvalidValue);
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  const bool there = known && version >= tf_emulator::detail::kSince;
  *function = there ? reinterpret_cast<void*>(&tf_emulator::detail::encode) : nullptr;
  if (answer != nullptr) {
    *answer = there   ? cudaDriverEntryPointSuccess
              : known ? cudaDriverEntryPointVersionNotSufficent
                      : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}
