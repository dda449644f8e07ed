// For the rule "early" of rules.py, for sm_90: kernels that begin before those before them have
// ended, with one mistake each. machine_code_test.py compiles them.
#include <cstdint>

__device__ __forceinline__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Eight loads of weights, as many as there are, as linear_kernel has them. Without the question
// whether they are there ptxas 13.0 moves all of them behind the wait.
struct Weights {
  uint4 a[8] = {};
  __device__ __forceinline__ void request(const uint4* from, int n) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= n) break;
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(a[i].x), "=r"(a[i].y), "=r"(a[i].z), "=r"(a[i].w)
                   : "l"(from + i * 32 + threadIdx.x));
    }
  }
  __device__ __forceinline__ unsigned sum() const {
    unsigned sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += a[i].x ^ a[i].y ^ a[i].z ^ a[i].w;
    return sum;
  }
};

__global__ void clean_kernel(const uint4* weights, int n, unsigned* x) {
  Weights w;
  w.request(weights, n);
  wait();
  let_next_start();
  x[threadIdx.x] += w.sum();
}

// The prefetch is behind the wait.
__global__ void late_kernel(const uint4* weights, int n, unsigned* x) {
  Weights w;
  wait();
  let_next_start();
  w.request(weights, n);
  x[threadIdx.x] += w.sum();
}

__global__ void load_kernel(const uint4* weights, int n, unsigned* x) {
  Weights w;
  w.request(weights, n);
  const unsigned before = x[threadIdx.x];
  wait();
  let_next_start();
  x[threadIdx.x] = before + w.sum();
}

__global__ void store_kernel(const uint4* weights, int n, unsigned* x) {
  Weights w;
  w.request(weights, n);
  x[threadIdx.x + 1024] = 0;
  wait();
  let_next_start();
  x[threadIdx.x] = w.sum();
}

__global__ void atomic_kernel(const uint4* weights, int n, unsigned* x) {
  Weights w;
  w.request(weights, n);
  atomicAdd(x + 1024, 1u);
  wait();
  let_next_start();
  x[threadIdx.x] = w.sum();
}

// From global to shared memory.
__global__ void copy_kernel(const uint4* from, unsigned* x) {
  __shared__ uint4 stage[256];
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(stage + threadIdx.x));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from + threadIdx.x));
  wait();
  let_next_start();
  asm volatile("cp.async.wait_all;" ::: "memory");
  x[threadIdx.x] = stage[threadIdx.x].x;
}

__global__ void trigger_kernel(const uint4* weights, int n, unsigned* x) {
  Weights w;
  w.request(weights, n);
  let_next_start();
  wait();
  x[threadIdx.x] = w.sum();
}

// Threads that have nothing to do.
__global__ void exit_kernel(unsigned* x, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  wait();
  let_next_start();
  x[threadIdx.x] = 1;
}

// One way past the wait.
__global__ void branch_kernel(unsigned* x, int n) {
  if (n > 3) wait();
  let_next_start();
  x[threadIdx.x] += 1;
}

__global__ void no_wait_kernel(unsigned* x) {
  let_next_start();
  x[threadIdx.x] = 1;
}

__global__ void no_trigger_kernel(unsigned* x) {
  wait();
  x[threadIdx.x] = 1;
}
