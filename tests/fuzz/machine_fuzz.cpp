// A machine file: whatever is accepted has values that predictions can be computed from.
#include "forecast/machine_spec.h"
#include "fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace triforce;
  MachineSpec m;
  const std::string kind =
      fuzz::outcome([&] { m = parse_machine(fuzz::as_text(data, size), "machine.json"); });
  if (!kind.empty()) return 0;
  fuzz::require(m.id.empty() && !m.name.empty() && m.name.size() <= 40, "name");
  fuzz::require(m.gpus >= 1 && m.gpus <= 64, "gpus");
  for (const std::int64_t bytes : {m.gpu_memory_bytes, m.host_memory_bytes}) {
    fuzz::require(bytes >= std::int64_t{1} << 32 && bytes <= std::int64_t{1} << 50, "memory");
  }
  for (const double gbs : {m.gpu_gbs, m.bus_gbs, m.bus_together_gbs, m.host_gbs}) {
    fuzz::require(gbs >= 0.1 && gbs <= 1e6, "bandwidth");
  }
  for (const double ms : {m.pass_overhead_ms, m.kernel_gap_ms, m.gather_ms}) {
    fuzz::require(ms >= 0 && ms <= 1e3, "overhead");
  }
  return 0;
}
