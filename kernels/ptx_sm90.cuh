// The instructions of compute capability 9.0 alone (target sm_90a). They are matrix products of a
// warpgroup, bulk copies of tensors, and the barriers that say when these have come. What the
// emulated build does in their place is in tf_emulator.h. Source: "Parallel Thread Execution ISA",
// "Asynchronous Warpgroup Level Matrix Instructions" and "Tensors".
#pragma once
#include <cuda.h>

#include "kernels/ptx.cuh"

namespace triforce::kernels::ptx {

// Where p lies in shared memory, as these instructions name it.
TF_DEVICE std::uint32_t shared_address(const void* p) {
#ifdef TF_CUDA_EMULATED
  return ::tf_emulator::shared_address(p);
#else
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
#endif
}

// Barriers of 8 bytes in shared memory. A phase is over when `arrivals` threads have come, and all
// bytes that they announced. Phases are counted from 0 on; the parity of the first is 0.
TF_DEVICE void init_barrier(std::uint32_t barrier, int arrivals) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::mbarrier_init(barrier, arrivals);
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(barrier), "r"(arrivals)
               : "memory");
#endif
}
// After init_barrier(), before the barrier of the block that makes it known to other threads.
TF_DEVICE void publish_barriers() {
#ifndef TF_CUDA_EMULATED
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#endif
}
TF_DEVICE void arrive(std::uint32_t barrier) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::mbarrier_arrive(barrier, 0);
#else
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
#endif
}
// The same; `bytes` more will come in this phase.
TF_DEVICE void arrive_expecting(std::uint32_t barrier, int bytes) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::mbarrier_arrive(barrier, bytes);
#else
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(barrier), "r"(bytes)
               : "memory");
#endif
}
// Until the current phase is not the one of that parity any more.
TF_DEVICE void wait(std::uint32_t barrier, int parity) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::mbarrier_wait(barrier, parity);
#else
  std::uint32_t over = 0;
  while (over == 0) {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
#endif
}

// Copies the box at (x, y, z, w) of a tensor of rank 4 to shared memory, at a multiple of 128
// bytes. The barrier is told how many bytes have come. Zeros for what lies outside of the tensor.
TF_DEVICE void copy_box(std::uint32_t to, const CUtensorMap& tensor, int x, int y, int z, int w,
                        std::uint32_t barrier) {
#ifdef TF_CUDA_EMULATED
  const int at[4] = {x, y, z, w};
  ::tf_emulator::copy_box(to, tensor, at, barrier);
#else
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];"
      :
      : "r"(to), "l"(&tensor), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
      : "memory");
#endif
}
// What the thread has written to shared memory by other instructions can be seen by those of this
// file; for other threads, after a barrier.
TF_DEVICE void fence_async_proxy() {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::fence_async_proxy();
#else
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

// Operand of products of a warpgroup, which is four warps, the first of them a multiple of 4.
//
// A matrix in shared memory whose rows of 128 bytes are swizzled: 16-byte part p of row r is at
// p ^ (r mod 8). Groups of 8 rows are `stride` bytes apart and 1024-byte aligned. `leading`: bytes
// between columns of 64 elements where the rows are those of the depth, else of no effect.
TF_DEVICE std::uint64_t swizzled_matrix(std::uint32_t address, int leading, int stride) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return (address & 0x3ffffU) >> 4 | static_cast<std::uint64_t>(leading >> 4) << 16 |
         static_cast<std::uint64_t>(stride >> 4) << 32 | kSwizzle128;
}

// Before products of registers that have been written, and before the first ones.
TF_DEVICE void products_fence(TF_SITE_ALONE) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::wgmma_fence(site);
#else
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#endif
}
// Those since the last call are a group.
TF_DEVICE void products_commit(TF_SITE_ALONE) {
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::wgmma_commit(site);
#else
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#endif
}

// The sums of 64 x 128 elements. Warp i of the four has rows 16 i to 16 i + 15, as 16 tiles of 8
// columns, each as mma() has it.
using Sums = float[16][4];

// All groups but the newest kPending have ended. `sums` are theirs: until then they must not be
// touched, nor operands in registers.
template <int kPending>
TF_DEVICE void products_wait(Sums& sums TF_SITE_PARAMETER) {
#ifdef TF_CUDA_EMULATED
  static_cast<void>(sums);
  ::tf_emulator::wgmma_wait(kPending, site);
#else
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
  // The compiler knows no other way that they have changed here.
  TF_UNROLL
  for (int n = 0; n < 16; ++n) {
    TF_UNROLL
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(sums[n][i]) : : "memory");
  }
#endif
}

#define TF_SUM_NAMES                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, "        \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63}"
#define TF_TILE_OF_SUMS(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define TF_SUMS(d)                                                                                \
  TF_TILE_OF_SUMS(d, 0), TF_TILE_OF_SUMS(d, 1), TF_TILE_OF_SUMS(d, 2), TF_TILE_OF_SUMS(d, 3),     \
      TF_TILE_OF_SUMS(d, 4), TF_TILE_OF_SUMS(d, 5), TF_TILE_OF_SUMS(d, 6), TF_TILE_OF_SUMS(d, 7), \
      TF_TILE_OF_SUMS(d, 8), TF_TILE_OF_SUMS(d, 9), TF_TILE_OF_SUMS(d, 10),                       \
      TF_TILE_OF_SUMS(d, 11), TF_TILE_OF_SUMS(d, 12), TF_TILE_OF_SUMS(d, 13),                     \
      TF_TILE_OF_SUMS(d, 14), TF_TILE_OF_SUMS(d, 15)

// d[64 x 128] = a[64 x 16] b[16 x 128], added to d where `add`; T of __half or __nv_bfloat16. Rows
// of both matrices are of 16 elements of the depth: b's are its columns.
template <class T>
TF_DEVICE void products(Sums& d, std::uint64_t a, std::uint64_t b, bool add TF_SITE_PARAMETER) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  static_assert(kHalf || std::is_same_v<T, __nv_bfloat16>);
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::wgmma_m64n128k16(kHalf, &d[0][0], a, b, add, site);
#else
#define TF_PRODUCTS(type)                                                           \
  asm volatile(                                                                     \
      "{\n"                                                                         \
      ".reg .pred add;\n"                                                           \
      "setp.ne.s32 add, %66, 0;\n"                                                  \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " TF_SUM_NAMES \
      ", %64, %65, add, 1, 1, 0, 0;\n"                                              \
      "}\n"                                                                         \
      : TF_SUMS(d)                                                                  \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))
  if constexpr (kHalf) {
    TF_PRODUCTS("f16");
  } else {
    TF_PRODUCTS("bf16");
  }
#undef TF_PRODUCTS
#endif
}

// d[64 x 128] += a[64 x 16] b[16 x 128]; a as mma() has it, the warp's 16 rows. The rows of the
// matrix in shared memory are those of b: it is transposed on its way.
template <class T>
TF_DEVICE void products(Sums& d, const std::uint32_t (&a)[4], std::uint64_t b TF_SITE_PARAMETER) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  static_assert(kHalf || std::is_same_v<T, __nv_bfloat16>);
#ifdef TF_CUDA_EMULATED
  ::tf_emulator::wgmma_m64n128k16(kHalf, &d[0][0], a, b, site);
#else
#define TF_PRODUCTS(type)                                                                    \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " TF_SUM_NAMES \
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                                    \
               : TF_SUMS(d)                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (kHalf) {
    TF_PRODUCTS("f16");
  } else {
    TF_PRODUCTS("bf16");
  }
#undef TF_PRODUCTS
#endif
}
#undef TF_SUMS
#undef TF_TILE_OF_SUMS
#undef TF_SUM_NAMES

// The warpgroup's threads have kRegisters each from here on: fewer than before are left to others,
// more are waited for.
template <int kRegisters>
TF_DEVICE void leave_registers() {
#ifndef TF_CUDA_EMULATED
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
#endif
}
template <int kRegisters>
TF_DEVICE void take_registers() {
#ifndef TF_CUDA_EMULATED
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
#endif
}

}  // namespace triforce::kernels::ptx
