// Allocation and copies.
#include <cstring>
#include <memory>
#include <vector>

#include "api.h"
#include "block.h"

namespace tf_emulator::detail {
namespace {

enum class Place : std::uint8_t { kDevice, kPinned, kPageable, kInvalid };

Place place_of(const void* address, std::size_t bytes) {
  const Memory& m = memory();
  if (m.device.contains(address)) {
    return m.device.holds(address, bytes) ? Place::kDevice : Place::kInvalid;
  }
  if (m.pinned.contains(address)) {
    return m.pinned.holds(address, bytes) ? Place::kPinned : Place::kInvalid;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (m.registered.touches(begin, bytes)) {
    return m.registered.holds(begin, bytes) && is_mapped(address, bytes) ? Place::kPinned
                                                                         : Place::kInvalid;
  }
  return address == nullptr ? Place::kInvalid : Place::kPageable;
}

struct Rectangle {
  std::size_t pitch_to, pitch_from, width, height;
  std::size_t span(std::size_t pitch) const { return pitch * (height - 1) + width; }
};

bool kind_fits(cudaMemcpyKind kind, Place to, Place from) {
  const bool to_device = to == Place::kDevice, from_device = from == Place::kDevice;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// Copies one row with what is known of it. The host gets ones in place of bytes never written.
void copy_row(char* to, const char* from, std::size_t bytes) {
  Memory& m = memory();
  const bool from_device = m.device.contains(from), to_device = m.device.contains(to);
  std::uint8_t* const to_states =
      to_device ? m.device.states(m.device.offset(reinterpret_cast<std::uintptr_t>(to))) : nullptr;
  std::memmove(to, from, bytes);
  if (to_device) m.device.note_writer(to, bytes, m.work);
  if (from_device && !to_device) m.bus.copied_to_host += bytes;
  if (!from_device) {
    if (to_device) m.bus.copied_to_device += bytes;
    if (to_device) std::memset(to_states, kInitialised, bytes);
    return;
  }
  const std::uint8_t* const from_states =
      m.device.states(m.device.offset(reinterpret_cast<std::uintptr_t>(from)));
  if (to_device) {
    std::memmove(to_states, from_states, bytes);
    return;
  }
  if (!instrumented()) return;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (from_states[i] != kInitialised) to[i] = static_cast<char>(0xff);
  }
}

// The places are those at the time of the call: pinned memory may have become pageable.
void copy_now(void* to, Place to_place, const void* from, Place from_place, const Rectangle& r) {
  if (place_of(to, r.span(r.pitch_to)) != to_place ||
      place_of(from, r.span(r.pitch_from)) != from_place) {
    runtime().set_trap({Trap::kOutOfBounds, "a copy came to memory that had been freed meanwhile"});
    return;
  }
  for (std::size_t row = 0; row < r.height; ++row) {
    copy_row(static_cast<char*>(to) + row * r.pitch_to,
             static_cast<const char*>(from) + row * r.pitch_from, r.width);
  }
}

// Pageable host memory is read before the call returns, and written before it returns. What was
// read may be on its way to the device for longer, even if the call blocks.
cudaError_t copy(void* to, const void* from, const Rectangle& r, cudaMemcpyKind kind,
                 CUstream_st* stream, bool blocking) {
  const Call call;
  TF_EMULATOR_TRY(blocking ? call->ready_outside_capture() : call->ready());
  if (!call->known(stream)) return call->fail(cudaErrorInvalidResourceHandle);
  if (r.width > r.pitch_to || r.width > r.pitch_from) return call->fail(cudaErrorInvalidPitchValue);
  if (r.width == 0 || r.height == 0) return cudaSuccess;
  const Place to_place = place_of(to, r.span(r.pitch_to));
  const Place from_place = place_of(from, r.span(r.pitch_from));
  if (to_place == Place::kInvalid || from_place == Place::kInvalid) {
    return call->fail(cudaErrorInvalidValue);
  }
  if (!kind_fits(kind, to_place, from_place)) return call->fail(cudaErrorInvalidMemcpyDirection);
  const bool capturing = stream != nullptr && stream->capture != nullptr;
  if (from_place == Place::kPageable && !capturing) {
    auto kept = std::make_shared<std::vector<char>>(r.width * r.height);
    for (std::size_t row = 0; row < r.height; ++row) {
      std::memcpy(kept->data() + row * r.width, static_cast<const char*>(from) + row * r.pitch_from,
                  r.width);
    }
    const Rectangle packed{r.pitch_to, r.width, r.width, r.height};
    TF_EMULATOR_TRY(call->enqueue(stream, [to, to_place, kept, packed] {
      copy_now(to, to_place, kept->data(), Place::kPageable, packed);
    }));
  } else {
    TF_EMULATOR_TRY(call->enqueue(stream, [to, to_place, from, from_place, r] {
      copy_now(to, to_place, from, from_place, r);
    }));
  }
  const bool within_device = to_place == Place::kDevice && from_place == Place::kDevice;
  const bool waits = blocking && !within_device && from_place != Place::kPageable;
  if (waits || (!capturing && to_place == Place::kPageable)) {
    call->finish_stream(call->queue_of(stream));
  }
  return call->ready();
}

void set_now(void* to, int value, std::size_t bytes) {
  Memory& m = memory();
  if (place_of(to, bytes) != Place::kDevice) {
    runtime().set_trap(
        {Trap::kOutOfBounds, "a memset came to memory that had been freed meanwhile"});
    return;
  }
  std::memset(to, value, bytes);
  m.device.note_writer(to, bytes, m.work);
  std::memset(m.device.states(m.device.offset(reinterpret_cast<std::uintptr_t>(to))), kInitialised,
              bytes);
}

cudaError_t set(void* to, int value, std::size_t bytes, CUstream_st* stream, bool blocking) {
  const Call call;
  TF_EMULATOR_TRY(blocking ? call->ready_outside_capture() : call->ready());
  if (bytes == 0) return cudaSuccess;
  if (place_of(to, bytes) != Place::kDevice) return call->fail(cudaErrorInvalidValue);
  return call->enqueue(stream, [to, value, bytes] { set_now(to, value, bytes); });
}

cudaError_t allocate(Region& region, void** pointer, std::size_t bytes) {
  const Call call;
  TF_EMULATOR_TRY(call->ready_outside_capture());
  if (pointer == nullptr) return call->fail(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  const std::size_t most =
      &region == &memory().device ? call->limits.memory_bytes : call->limits.pinned_bytes;
  if (bytes > most || region.live_bytes() > most - bytes) {
    return call->fail(cudaErrorMemoryAllocation);
  }
  *pointer = region.allocate(bytes);
  return call->fail(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t release(Region& region, void* pointer) {
  const Call call;
  TF_EMULATOR_TRY(call->ready_outside_capture());
  if (pointer == nullptr) return cudaSuccess;
  call->finish_all();  // as the real one does
  if (!region.release(pointer)) return call->fail(cudaErrorInvalidValue);
  return call->ready();
}

cudaError_t register_host(void* pointer, std::size_t bytes, unsigned flags) {
  const Call call;
  TF_EMULATOR_TRY(call->ready_outside_capture());
  Memory& m = memory();
  const unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (pointer == nullptr || bytes == 0 || (flags & ~known) != 0 || m.device.contains(pointer) ||
      !is_mapped(pointer, bytes)) {
    return call->fail(cudaErrorInvalidValue);
  }
  if (m.pinned.contains(pointer) || !m.registered.is_free(pointer, bytes)) {
    return call->fail(cudaErrorHostMemoryAlreadyRegistered);
  }
  if (bytes > call->limits.register_bytes - m.registered.bytes()) {
    return call->fail(static_cast<cudaError_t>(call->limits.register_error));
  }
  m.registered.add(pointer, bytes);
  return cudaSuccess;
}

// Waits for nothing: work that still uses the memory then finds that the device cannot reach it.
cudaError_t unregister_host(void* pointer) {
  const Call call;
  TF_EMULATOR_TRY(call->ready_outside_capture());
  if (pointer == nullptr) return call->fail(cudaErrorInvalidValue);
  Registered& registered = memory().registered;
  const Registered::Range* const found = registered.find(reinterpret_cast<std::uintptr_t>(pointer));
  const bool freed = found != nullptr && !is_mapped(pointer, found->bytes);
  if (!registered.remove(pointer)) return call->fail(cudaErrorHostMemoryNotRegistered);
  if (freed) {
    call->set_trap({Trap::kOutOfBounds, "host memory was freed while it was registered"});
  }
  return call->ready();
}

}  // namespace
}  // namespace tf_emulator::detail

using namespace tf_emulator::detail;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return allocate(memory().device, pointer, bytes);
}
cudaError_t cudaFree(void* pointer) { return release(memory().device, pointer); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned) {
  return allocate(memory().pinned, pointer, bytes);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return allocate(memory().pinned, pointer, bytes);
}
cudaError_t cudaFreeHost(void* pointer) { return release(memory().pinned, pointer); }
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return register_host(pointer, bytes, flags);
}
cudaError_t cudaHostUnregister(void* pointer) { return unregister_host(pointer); }

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  *total_bytes = call->limits.memory_bytes;
  const std::size_t taken = memory().device.live_bytes() + call->limits.page_cache_bytes;
  *free_bytes = call->limits.memory_bytes - std::min(call->limits.memory_bytes, taken);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (attributes == nullptr) return call->fail(cudaErrorInvalidValue);
  const Place place = place_of(pointer, 1);
  void* const same = const_cast<void*>(pointer);
  *attributes = {};
  attributes->type = place == Place::kDevice   ? cudaMemoryTypeDevice
                     : place == Place::kPinned ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered;
  if (place == Place::kDevice || place == Place::kPinned) attributes->devicePointer = same;
  if (place != Place::kDevice) attributes->hostPointer = same;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, {bytes, bytes, bytes, 1}, kind, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, {bytes, bytes, bytes, 1}, kind, stream, false);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return copy(to, from, {to_pitch, from_pitch, width, height}, kind, nullptr, true);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return copy(to, from, {to_pitch, from_pitch, width, height}, kind, stream, false);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return set(to, value, bytes, nullptr, true);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return set(to, value, bytes, stream, false);
}
