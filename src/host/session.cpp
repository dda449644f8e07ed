#include "host/session.h"

#include <algorithm>

#include "cpu/cpu_backend.h"
#include "cpu/team.h"
#include "host/devices.h"
#include "host/machine.h"

namespace triforce {

Session open_session(const RunConfig& config, const LocalRank& rank) {
  Session s;
  s.isa = config.cpu_isa.empty() ? cpu::best_isa() : cpu::parse_isa(config.cpu_isa);
  s.threads = config.threads > 0 ? config.threads
                                 : cpu::team_size(std::max(1, available_threads() / rank.on_cpus));
  std::shared_ptr<HostAttention> host;
  if (config.offload_attention != OffloadAttention::kStream) {
    host = make_host_attention({s.threads, s.isa});
  }
  if (std::optional<CudaSession> cuda =
          open_cuda(config.device, config.dtype, rank, std::move(host))) {
    s.backend = std::move(cuda->backend);
    s.gpu = std::move(cuda->gpu);
    s.notes = std::move(cuda->notes);
    // No error: a run that fits keeps its rows near, and another one is refused by its plan.
    if (s.backend->traits().shares_host_memory && (config.kv_offload || config.on_chip)) {
      s.notes.push_back(
          fmt::format("{}: host and device memory are one, so KV rows in host memory save none",
                      config.kv_offload ? "--kv-offload" : "--on-chip"));
    }
    s.dtype = s.backend->activation_dtype();
    return s;
  }
  // A pass of few rows reads memory, and converting is free beside it.
  s.dtype = config.dtype.value_or(s.isa != cpu::Isa::kScalar ? DType::kBF16 : DType::kF32);
  s.backend = make_cpu_backend({s.threads, s.isa});
  return s;
}

}  // namespace triforce
