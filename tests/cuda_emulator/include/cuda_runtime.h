// Device side of the emulated CUDA: built-in variables, barriers, shuffles, votes, atomics and
// math.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "tf_emulator.h"

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __grid_constant__
#ifndef __restrict__
#define __restrict__ __restrict
#endif

// Constant for a thread of a kernel: so they cost what a register does, and loads of them are not
// checked. The scheduler sets them, under their assembler names, whenever a fiber goes on.
struct TfEmulatorDim {
  unsigned x, y, z;
  operator dim3() const { return {x, y, z}; }
};
#define TF_EMULATOR_BUILT_IN(type, name)                        \
  extern __thread const type name __asm__("tf_emulator_" #name) \
      __attribute__((tls_model("initial-exec")))
TF_EMULATOR_BUILT_IN(uint3, threadIdx);
TF_EMULATOR_BUILT_IN(uint3, blockIdx);
TF_EMULATOR_BUILT_IN(TfEmulatorDim, blockDim);
TF_EMULATOR_BUILT_IN(TfEmulatorDim, gridDim);
#undef TF_EMULATOR_BUILT_IN
constexpr int warpSize = 32;

namespace tf_emulator::detail {
void sync_threads(Site site);
void sync_warp(unsigned mask, Site site);
enum class Shuffle : std::uint8_t { kIndex, kUp, kDown, kXor };
// `bits` of the lane that CUDA's rules name, for a mask that must be full.
std::uint64_t shuffle(Shuffle mode, unsigned mask, std::uint64_t bits, int argument, int width,
                      Site site);
unsigned ballot(unsigned mask, bool predicate, Site site);
template <class T>
T shuffle_value(Shuffle mode, unsigned mask, T value, int argument, int width, Site site) {
  static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mode, mask, bits, argument, width, site);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}
// Checks an atomic access: initialised, in bounds, and in shared memory not racing with plain ones.
void check_atomic(const void* address, std::size_t bytes);
void fence();
}  // namespace tf_emulator::detail

#define TF_EMULATOR_SITE ::tf_emulator::Site site = ::tf_emulator::Site::here()

inline void __syncthreads(TF_EMULATOR_SITE) { tf_emulator::detail::sync_threads(site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, TF_EMULATOR_SITE) {
  tf_emulator::detail::sync_warp(mask, site);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, TF_EMULATOR_SITE) {
  using namespace tf_emulator::detail;
  return shuffle_value(Shuffle::kIndex, mask, value, lane, width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, TF_EMULATOR_SITE) {
  using namespace tf_emulator::detail;
  return shuffle_value(Shuffle::kUp, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, TF_EMULATOR_SITE) {
  using namespace tf_emulator::detail;
  return shuffle_value(Shuffle::kDown, mask, value, static_cast<int>(delta), width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, TF_EMULATOR_SITE) {
  using namespace tf_emulator::detail;
  return shuffle_value(Shuffle::kXor, mask, value, lane_mask, width, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, TF_EMULATOR_SITE) {
  return tf_emulator::detail::ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate, TF_EMULATOR_SITE) {
  return tf_emulator::detail::ballot(mask, predicate != 0, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, TF_EMULATOR_SITE) {
  return tf_emulator::detail::ballot(mask, predicate != 0, site) == 0xffffffffu;
}
#undef TF_EMULATOR_SITE

// Blocks run one after another and only collectives let other threads run: a plain
// read-modify-write is atomic, and every store is visible to all at once. Fences are noted where
// blocks are checked (tf_emulator::set_blocks).
inline void __threadfence() { tf_emulator::detail::fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { tf_emulator::detail::fence(); }

// The check is check_atomic's; instrumentation would take the access for a plain one.
#define TF_EMULATOR_ATOMIC(name, result)                                                     \
  template <class T>                                                                         \
  __attribute__((no_sanitize("thread"))) T name(T* address, std::type_identity_t<T> value) { \
    tf_emulator::detail::check_atomic(address, sizeof(T));                                   \
    const T old = *address;                                                                  \
    *address = (result);                                                                     \
    return old;                                                                              \
  }
TF_EMULATOR_ATOMIC(atomicAdd, old + value)
TF_EMULATOR_ATOMIC(atomicSub, old - value)
TF_EMULATOR_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
TF_EMULATOR_ATOMIC(atomicExch, value)
TF_EMULATOR_ATOMIC(atomicMin, old < value ? old : value)
TF_EMULATOR_ATOMIC(atomicMax, old > value ? old : value)
TF_EMULATOR_ATOMIC(atomicAnd, old& value)
TF_EMULATOR_ATOMIC(atomicOr, old | value)
#undef TF_EMULATOR_ATOMIC
template <class T>
__attribute__((no_sanitize("thread"))) T atomicCAS(T* address, std::type_identity_t<T> expected,
                                                   std::type_identity_t<T> value) {
  tf_emulator::detail::check_atomic(address, sizeof(T));
  const T old = *address;
  if (old == expected) *address = value;
  return old;
}

template <class T>
T __ldg(const T* address) {
  return tf_emulator::checked_read(address);
}
template <class T>
T __ldcg(const T* address) {
  return tf_emulator::checked_read(address);
}
template <class T>
T __ldcs(const T* address) {
  return tf_emulator::checked_read(address);
}
template <class T>
void __stcs(T* address, T value) {
  tf_emulator::checked_write(address, value);
}
template <class T>
void __stcg(T* address, T value) {
  tf_emulator::checked_write(address, value);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
namespace tf_emulator::detail {
template <class To, class From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof(To));
  return to;
}
}  // namespace tf_emulator::detail
inline unsigned __float_as_uint(float x) { return tf_emulator::detail::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return tf_emulator::detail::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return tf_emulator::detail::bit_cast<float>(x); }
inline float __int_as_float(int x) { return tf_emulator::detail::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) {
  return tf_emulator::detail::bit_cast<long long>(x);
}

// Correctly rounded operations that nvcc neither fuses nor reorders.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline long long __double2ll_rn(double x) { return std::llrint(x); }

using std::max;
using std::min;
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
// Mixed operands, as CUDA allows them.
inline unsigned min(unsigned a, int b) { return std::min(a, static_cast<unsigned>(b)); }
inline unsigned min(int a, unsigned b) { return std::min(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return std::max(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return std::max(static_cast<unsigned>(a), b); }
inline long long min(long long a, int b) { return std::min(a, static_cast<long long>(b)); }
inline long long min(int a, long long b) { return std::min(static_cast<long long>(a), b); }
inline long long max(long long a, int b) { return std::max(a, static_cast<long long>(b)); }
inline long long max(int a, long long b) { return std::max(static_cast<long long>(a), b); }
