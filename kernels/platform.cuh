// The CUDA headers, or the emulated ones, and what device code needs to be the same under both.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define TF_PRAGMA(text) _Pragma(#text)
// TF_UNROLL_N(1) where nvcc would unroll for nothing but registers and code: for sm_100 and later
// it does so more often than before.
#ifdef TF_CUDA_EMULATED
#define TF_UNROLL TF_PRAGMA(GCC unroll 64)
#define TF_UNROLL_N(n)  // gcc takes none that depends on a template's arguments
// The block's dynamic shared memory as a pointer `name` to T; 128-byte aligned.
#define TF_SHARED(T, name) T* const name = static_cast<T*>(::tf_emulator::shared_arena())
#define TF_IN_DEVICE_MEMORY(p) static_cast<void>(p)
#else
#define TF_UNROLL TF_PRAGMA(unroll)
#define TF_UNROLL_N(n) TF_PRAGMA(unroll n)
#define TF_SHARED(T, name)                                          \
  extern __shared__ __align__(128) unsigned char tf_shared_arena[]; \
  T* const name = reinterpret_cast<T*>(tf_shared_arena)
// Tells the compiler, which knows it of parameters of kernels alone, where pointer p points.
#define TF_IN_DEVICE_MEMORY(p) __builtin_assume(__isGlobal(p))
#endif

// For small functions of device code.
#define TF_DEVICE __device__ __forceinline__
