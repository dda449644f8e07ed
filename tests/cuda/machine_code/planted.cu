// One mistake a kernel, for the rules of rules.py; machine_code_test.py compiles them. "clean_"
// ones have none.
#include <cuda_fp16.h>

#include <cstdint>

// 96 values that live through the loop, and 32 registers for them.
__global__ void __launch_bounds__(1024, 2) spill_kernel(float* x, int n) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[i];
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 1) % 96] + x[j];
  }
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i] = v[i];
}

// Which memory it is turns out at run time.
__global__ void generic_kernel(float* x, int n) {
  __shared__ float mine[64];
  mine[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float* const to = n > 3 ? mine : x;
  to[threadIdx.x + 1] += 1.0F;
  __syncthreads();
  x[threadIdx.x] = mine[threadIdx.x];
}

// `out` may be x or w.
__global__ void serial_kernel(const float* x, const float* w, float* out) {
#pragma unroll
  for (int i = 0; i < 16; ++i) out[i * 32 + threadIdx.x] = x[i * 32 + threadIdx.x] * w[i];
}
__global__ void serial_loop_kernel(const float* x, float* out, int n) {
#pragma unroll 4
  for (int i = 0; i < n; ++i) out[i * 32 + threadIdx.x] = x[i * 32 + threadIdx.x] * 2.0F;
}

__global__ void narrow_kernel(const std::uint16_t* x, unsigned* out, int n) {
  unsigned sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) sum += x[i];
  out[threadIdx.x] = sum;
}

__global__ void f64_kernel(const float* x, double* out, int n) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) sum += static_cast<double>(x[i]);
  out[threadIdx.x] = sum;
}

__global__ void size_kernel(unsigned* x) {
  unsigned v = x[threadIdx.x];
#pragma unroll
  for (int i = 0; i < 4500; ++i) asm volatile("mad.lo.u32 %0, %0, %0, %0;" : "+r"(v));
  x[threadIdx.x] = v;
}

// A turn reads 16 bytes a lane, and multiplies kProducts times.
template <int kProducts>
__device__ void products(const uint4* x, float* out, int n) {
  float d[4] = {};
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) {
    uint4 a;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                 : "l"(x + i));
#pragma unroll
    for (int k = 0; k < kProducts; ++k) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
          "{%4,%5}, {%0,%1,%2,%3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w));
    }
  }
  for (int k = 0; k < 4; ++k) out[threadIdx.x * 4 + k] = d[k];
}
__global__ void clean_products_kernel(const uint4* x, float* out, int n) { products<1>(x, out, n); }
__global__ void slow_products_kernel(const uint4* x, float* out, int n) { products<64>(x, out, n); }

// Loads through the first-level cache, where they should not.
__global__ void cached_kernel(const uint4* __restrict__ x, uint4* out, int n) {
  uint4 sum{};
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) sum.x += x[i].x ^ x[i].w;
  out[threadIdx.x] = sum;
}
