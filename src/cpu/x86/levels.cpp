// x86-64's instruction levels: which this processor has, and what each computes with.
// __builtin_cpu_supports also asks the operating system (XGETBV) whether the wide registers are
// saved, so a level it grants is safe to run.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/probs_kernels.h"
#include "cpu/x86/kernels.h"

namespace triforce::cpu {
namespace {

// AMX has to be asked for: Linux enlarges a thread's saved state only on request. The grant holds
// for every thread of the process.
bool amx_granted() {
  constexpr unsigned kAmxBf16 = 1U << 22U, kAmxTile = 1U << 24U;
  constexpr unsigned long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// clang 14 does not know the name "f16c".
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// AMX is a level above AVX-512-BF16: on the processors at hand vdpbf16ps runs at a sixth of the
// rate that it has elsewhere. Only AMX tiles keep a verification of 7 rows close to the time of
// one.
Isa detect() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0 || !has_f16c()) {
    return Isa::kScalar;
  }
  if (__builtin_cpu_supports("avx512f") == 0 || __builtin_cpu_supports("avx512bw") == 0 ||
      __builtin_cpu_supports("avx512vl") == 0 || __builtin_cpu_supports("avx512dq") == 0) {
    return Isa::kAvx2;
  }
  if (__builtin_cpu_supports("avx512bf16") == 0) return Isa::kAvx512;
  return amx_granted() ? Isa::kAmx : Isa::kAvx512Bf16;
}

}  // namespace

std::span<const Isa> usable_isas() {
  static constexpr std::array kLevels{Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                      Isa::kAmx};
  static const auto kCount = std::ranges::upper_bound(kLevels, detect()) - kLevels.begin();
  return std::span(kLevels).first(static_cast<std::size_t>(kCount));
}

// Without tiles, vdpbf16ps is worth taking where it multiplies faster than f32: twice as fast on
// AMD's cores. Intel's reach .6 of the rate of f32 on a Sapphire Rapids and .5 on an Emerald Rapids
// (triforce-op-bench, gemm_bf16 over gemm_f32), and read one row as fast by either level.
Isa best_isa() {
  const Isa last = usable_isas().back();
  return last == Isa::kAvx512Bf16 && __builtin_cpu_is("intel") != 0 ? Isa::kAvx512 : last;
}

const LinearKernels& linear_kernels(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return amx_kernels();
    case Isa::kAvx512Bf16:
      return avx512_bf16_kernels();
    case Isa::kAvx512:
      return avx512_kernels();
    case Isa::kAvx2:
      return avx2_kernels();
    default:
      return scalar_kernels();
  }
}

const AttentionKernels& attention_kernels(Isa isa, DType type) {
  if (isa >= Isa::kAmx && type == DType::kBF16) return attention_kernels_amx();
  if (isa >= Isa::kAvx512Bf16 && type == DType::kBF16) return attention_kernels_avx512_bf16();
  if (isa >= Isa::kAvx512) return attention_kernels_avx512(type);
  if (isa == Isa::kAvx2) return attention_kernels_avx2(type);
  return attention_kernels_scalar(type);
}

ProbsKernels probs_kernels(Isa isa) {
  ProbsKernels kernels = vector_probs_kernels(isa);
  if (isa >= Isa::kAvx512) kernels.collect = collect_avx512;
  return kernels;
}

}  // namespace triforce::cpu
