// The instructions that CUDA C++ has no name for: with ptx_sm90.cuh all inline PTX of the project,
// and what the emulated build does in its place. Fragments and their lanes as the PTX manual
// numbers them ("Matrix Fragments for mma.m16n8k16", lane = 4 group + column pair).
#pragma once
#include <cfloat>
#include <type_traits>

#include "kernels/platform.cuh"

#ifdef TF_CUDA_EMULATED
#include "tf_emulator.h"
#define TF_SITE_ALONE ::tf_emulator::Site site = ::tf_emulator::Site::here()
#define TF_SITE_PARAMETER , TF_SITE_ALONE
#else
#define TF_SITE_ALONE
#define TF_SITE_PARAMETER
#endif

namespace triforce::kernels::ptx {

// d[16 x 8] += a[16 x 16] b[16 x 8] for T of __half or __nv_bfloat16, sums in f32.
// a[0], a[2]: row `group`, columns 2 pair and 2 pair + 8; a[1], a[3]: row group + 8.
// b[0], b[1]: rows 2 pair and 2 pair + 8 (two each) of column `group`.
// d[0], d[1]: row `group`, columns 2 pair and + 1; d[2], d[3]: row group + 8.
template <class T>
TF_DEVICE void mma(float (&d)[4], const std::uint32_t (&a)[4],
                   const std::uint32_t (&b)[2] TF_SITE_PARAMETER) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  static_assert(kHalf || std::is_same_v<T, __nv_bfloat16>);
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::MmaOperands lane{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  if constexpr (kHalf) {
    ::tf_emulator::mma_m16n8k16_f16(lane, site);
  } else {
    ::tf_emulator::mma_m16n8k16_bf16(lane, site);
  }
  for (int i = 0; i < 4; ++i) d[i] = lane.d[i];
#else
  if constexpr (kHalf) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// Four 8 x 8 matrices of 16-bit elements from shared memory: lane l names the row of 16 bytes l % 8
// of matrix l / 8, and receives elements (group, 2 pair) and + 1 of each; transposed: (2 pair,
// group) and (2 pair + 1, group).
template <bool kTransposed = false>
TF_DEVICE void ldmatrix_x4(std::uint32_t (&out)[4], const void* row TF_SITE_PARAMETER) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::ldmatrix(row, out, 4, kTransposed, site);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
  }
#endif
}

// The transpose of an 8 x 8 matrix held as ldmatrix gives it.
TF_DEVICE std::uint32_t movmatrix(std::uint32_t value TF_SITE_PARAMETER) {
#ifdef TF_CUDA_EMULATED
  return ::tf_emulator::movmatrix(value, site);
#else
  std::uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(value));
  return out;
#endif
}

// (a & b) | c and (a & ~b) | c, one instruction also where two of them are constants.
TF_DEVICE std::uint32_t and_or(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#ifdef TF_CUDA_EMULATED
  return (a & b) | c;
#else
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
#endif
}
TF_DEVICE std::uint32_t and_not_or(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#ifdef TF_CUDA_EMULATED
  return (a & ~b) | c;
#else
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xba;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
#endif
}

// a * b + c of both elements of pairs of T, each rounded once.
template <class T>
TF_DEVICE std::uint32_t fma_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  static_assert(kHalf || std::is_same_v<T, __nv_bfloat16>);
  std::uint32_t out;
#ifdef TF_CUDA_EMULATED
  std::conditional_t<kHalf, __half2, __nv_bfloat162> pairs[3];
  memcpy(&pairs[0], &a, sizeof a);
  memcpy(&pairs[1], &b, sizeof b);
  memcpy(&pairs[2], &c, sizeof c);
  pairs[0] = __hfma2(pairs[0], pairs[1], pairs[2]);
  memcpy(&out, &pairs[0], sizeof out);
#else
  if constexpr (kHalf) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  }
#endif
  return out;
}

// 2^x to 2 units in the last place, 0 where that is below 2^-126. exp2f() has what is below too,
// for three instructions more.
TF_DEVICE float exp2(float x) {
#ifdef TF_CUDA_EMULATED
  const float power = exp2f(x);
  return power < FLT_MIN ? 0.0F : power;
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#endif
}

// x, of which the compiler knows nothing: in a loop, what follows from it is computed each time
// and takes no registers between.
TF_DEVICE unsigned opaque(unsigned x) {
#ifndef TF_CUDA_EMULATED
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// blockIdx.z, read where this stands: it takes no register before.
TF_DEVICE unsigned block_z() {
#ifdef TF_CUDA_EMULATED
  return blockIdx.z;
#else
  unsigned z;
  asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(z));
  return z;
#endif
}

// Whether this is compiled for one of the architectures: 1200 is sm_120. For what one compiler
// needs and what costs time on another.
template <int... kArchitectures>
constexpr bool compiled_for() {
#ifdef __CUDA_ARCH__
  return ((__CUDA_ARCH__ == kArchitectures) || ...);
#else
  return false;
#endif
}

// 16 bytes from global to shared memory; !valid: zeros, and `from` is not read. They are there
// after a wait for their group and, for other threads, a barrier.
TF_DEVICE void cp_async16(void* to, const void* from, bool valid) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::cp_async(to, from, 16, valid ? 16 : 0);
#else
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
#endif
}
TF_DEVICE void cp_async_commit() {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::cp_async_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// All groups but the newest kPending have arrived.
template <int kPending>
TF_DEVICE void cp_async_wait() {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::cp_async_wait(kPending);
#else
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
}

// Programmatic dependent launch (launch_early() says what it asks of kernels): a thread goes on
// here when all kernels that were given to its stream before its own have ended and what they wrote
// can be seen. Where devices have no such launch kernels begin only then.
TF_DEVICE void wait_for_earlier_grids() {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::wait_for_earlier_grids();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel of the stream may begin, as far as there is room, when all blocks have come here
// or ended; what they have written need not be there for it.
TF_DEVICE void let_next_grid_start() {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::let_next_grid_start();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// 16 bytes that are read once: past the first-level cache. Memory that no kernel writes meanwhile.
TF_DEVICE uint4 load_stream(const uint4* from) {
#ifdef TF_CUDA_EMULATED
  return *from;
#else
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
#endif
}
// The same of 4 bytes.
TF_DEVICE std::uint32_t load_stream(const std::uint32_t* from) {
#ifdef TF_CUDA_EMULATED
  return *from;
#else
  std::uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
#endif
}

}  // namespace triforce::kernels::ptx
