// Detection and naming of instruction levels. __builtin_cpu_supports also asks the operating system
// (XGETBV) whether the wide registers are saved, so a level it grants is safe to run.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/context.h"

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

Isa best_isa() {
  static const Isa kBest = detect();
  return kBest;
}

Isa parse_isa(std::string_view name) {
  for (std::size_t i = 0; i < names_of(Isa{}).size(); ++i) {
    const auto isa = static_cast<Isa>(i);
    if (name != to_string(isa)) continue;
    if (isa > best_isa()) {
      throw Error(ExitCode::kDevice, "UnsupportedIsa",
                  fmt::format("--cpu-isa {}: this processor supports {} at most", name,
                              to_string(best_isa())));
    }
    return isa;
  }
  throw_usage("--cpu-isa: expected scalar, avx2, avx512, avx512-bf16 or amx, found '{}'", name);
}

}  // namespace triforce::cpu
