#include "cpu/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "core/host_allocator.h"
#include "core/rounding.h"
#include "cpu/gemm.h"
#include "cpu/prefetch.h"
#include "cpu/vector.h"

namespace triforce::cpu {
namespace {

constexpr std::int64_t kReadBytes = std::int64_t{512} << 20;
constexpr std::int64_t kSliceBytes = std::int64_t{8} << 20;
constexpr int kSweeps = 4;

// The sum is returned so that no load can be left out.
TF_INLINE void sum_body(const std::byte* p, std::int64_t bytes, std::int32_t* out) {
  I32x16 a{}, b{}, c{}, d{};
  for (std::int64_t i = 0; i + 256 <= bytes; i += 256) {
    I32x16 v;
    prefetch_line(p + i + 4096);
    prefetch_line(p + i + 4096 + 64);
    prefetch_line(p + i + 4096 + 128);
    prefetch_line(p + i + 4096 + 192);
    std::memcpy(&v, p + i, 64);
    a += v;
    std::memcpy(&v, p + i + 64, 64);
    b += v;
    std::memcpy(&v, p + i + 128, 64);
    c += v;
    std::memcpy(&v, p + i + 192, 64);
    d += v;
  }
  a += b;
  c += d;
  a += c;
  std::int32_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += a[i];
  *out = sum;
}
TF_PER_LEVEL(sum, sum_body, (const std::byte* p, std::int64_t bytes, std::int32_t* out),
             (p, bytes, out))

}  // namespace

double measure_read_bandwidth_gbs(const Workers& workers) {
  HostAllocator allocator;
  const Buffer buffer(allocator, kReadBytes, Place::kHost, MemTag::kWorkspace);
  const auto* data = static_cast<const std::byte*>(buffer.data());
  const std::int64_t part = kSliceBytes / workers.threads / 256 * 256;
  const auto read = sum(workers.isa);
  std::atomic<std::int32_t> result{0};
  // Whole sweeps, so that a slice has left every cache before it is read again; timed by slices,
  // so that other work on the machine spoils some of them only. The first sweep warms up.
  std::vector<double> seconds;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::int64_t begin = 0; begin < kReadBytes; begin += kSliceBytes) {
      const auto start = std::chrono::steady_clock::now();
      parallel_for(workers, workers.threads, [&](std::int64_t t, int) {
        std::int32_t one = 0;
        read(data + begin + t * part, part, &one);
        result += one;
      });
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (sweep > 0) seconds.push_back(took.count());
    }
  }
  TF_CHECK(result == 0, "a zero-filled buffer sums to {}", result.load());
  const auto decile = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 10);
  std::nth_element(seconds.begin(), decile, seconds.end());
  return static_cast<double>(part * workers.threads) / *decile * 1e-9;
}

double measure_gemm_gflops(const Workers& workers, DType dtype, double seconds, int size) {
  const bool bf16 = dtype == DType::kBF16;
  const std::int64_t n = round_up(size, 64);
  const Gemm::Shape shape{.weights = bf16                          ? Gemm::Weights::kPanelsBf16
                                     : workers.isa >= Isa::kAvx512 ? Gemm::Weights::kPanelsF32
                                                                   : Gemm::Weights::kPlainF32,
                          .m = n,
                          .k = n,
                          .n = n,
                          .lda = n,
                          .ldb = n,
                          .ldc = n,
                          .accumulate = false};
  Gemm gemm;
  if ((bf16 && workers.isa < Isa::kAvx512Bf16) || !gemm.supports(workers, shape)) return 0;
  HostAllocator allocator;
  const std::int64_t bytes = n * n * (bf16 ? 2 : 4);
  const Buffer x(allocator, bytes, Place::kHost, MemTag::kWorkspace);
  const Buffer w(allocator, bytes, Place::kHost, MemTag::kWorkspace);
  const Buffer out(allocator, n * n * 4, Place::kHost, MemTag::kWorkspace);
  double best = 1e30, spent = 0;
  for (int calls = 0; calls < 2 || spent < seconds; ++calls) {
    const auto start = std::chrono::steady_clock::now();
    gemm.run(workers, shape, x.data(), w.data(), static_cast<float*>(out.data()));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
    spent += took.count();
  }
  return 2.0 * static_cast<double>(n * n * n) / best * 1e-9;
}

}  // namespace triforce::cpu
