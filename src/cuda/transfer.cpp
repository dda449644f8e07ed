#include "cuda/transfer.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernels.h"

namespace triforce::cuda {
namespace {

// Elements [begin, begin + count) of a contiguous tensor as one row.
TensorView flat(const TensorView& v, std::int64_t begin, std::int64_t count) {
  return make_view(static_cast<std::byte*>(v.data) + begin * size_of(v.dtype), v.dtype, {1, count});
}

}  // namespace

bool is_on_device(const void* p) {
  cudaPointerAttributes attributes{};
  TF_CUDA(cudaPointerGetAttributes(&attributes, p));
  return attributes.type == cudaMemoryTypeDevice;
}

Transfer::Transfer(CudaAllocator& allocator, cudaStream_t stream, const HostWait& wait)
    : stream_(stream),
      wait_(wait),
      slots_(allocator, kSlots * kSlotBytes, Place::kPinned, MemTag::kStaging),
      device_(allocator, kSlotBytes, Place::kDevice, MemTag::kWorkspace) {
  for (EventHandle& taken : taken_) taken = make_event(false);
}

void Transfer::send(void* to, const TensorView& host_rows) {
  const std::int64_t rows = host_rows.shape[0], cols = host_rows.shape[1];
  const auto row_bytes = static_cast<std::size_t>(cols * size_of(host_rows.dtype));
  cudaEvent_t const taken = taken_[next_].get();
  wait_.for_event(taken);  // at once for a slot never used
  std::byte* const slot =
      static_cast<std::byte*>(slots_.data()) + static_cast<std::int64_t>(next_) * kSlotBytes;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(slot + static_cast<std::size_t>(r) * row_bytes, host_rows.rows(r, 1).data,
                row_bytes);
  }
  TF_CUDA(cudaMemcpyAsync(to, slot, static_cast<std::size_t>(rows) * row_bytes,
                          cudaMemcpyHostToDevice, stream_));
  TF_CUDA(cudaEventRecord(taken, stream_));
  next_ = (next_ + 1) % kSlots;
}

TensorView Transfer::stage(const TensorView& host_rows) {
  send(device_.data(), host_rows);
  return make_view(device_.data(), host_rows.dtype, {host_rows.shape[0], host_rows.shape[1]});
}

void Transfer::upload(const TensorView& dst, const TensorView& src) {
  const bool from_device = is_on_device(src.data);
  const std::int64_t n = src.numel(), max_count = kSlotBytes / size_of(DType::kF32);
  for (std::int64_t begin = 0; begin < n; begin += max_count) {
    const std::int64_t count = std::min(max_count, n - begin);
    const TensorView from = flat(src, begin, count), to = flat(dst, begin, count);
    if (dst.dtype != src.dtype || from_device) {
      kernels::convert(from_device ? from : stage(from), to, stream_);
    } else {
      send(to.data, from);
    }
  }
}

void Transfer::download(const TensorView& dst, const TensorView& src) {
  const std::int64_t n = src.numel(), max_count = kSlotBytes / size_of(DType::kF32);
  for (std::int64_t begin = 0; begin < n; begin += max_count) {
    const std::int64_t count = std::min(max_count, n - begin);
    TensorView from = flat(src, begin, count);
    const TensorView to = flat(dst, begin, count);
    if (dst.dtype != src.dtype) {
      const TensorView converted = make_view(device_.data(), dst.dtype, {1, count});
      kernels::convert(from, converted, stream_);
      from = converted;
    }
    TF_CUDA(cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(to.bytes()),
                            cudaMemcpyDeviceToHost, stream_));
    wait_.for_stream(stream_);
  }
}

}  // namespace triforce::cuda
