#include "host/session.h"

#include <algorithm>

#include "cpu/cpu_backend.h"
#include "cpu/team.h"
#include "host/devices.h"
#include "host/machine.h"

namespace triforce {

Session open_session(const SessionOptions& options, const LocalRank& rank) {
  Session s;
  s.isa = options.cpu_isa.empty() ? cpu::best_isa() : cpu::parse_isa(options.cpu_isa);
  s.threads = options.threads > 0 ? options.threads
                                  : cpu::team_size(std::max(1, available_threads() / rank.on_cpus));
  std::shared_ptr<HostAttention> host;
  if (options.host_attends) {
    host = make_host_attention({s.threads, s.isa});
  }
  if (std::optional<CudaSession> cuda =
          open_cuda(options.device, options.dtype, rank, std::move(host))) {
    s.backend = std::move(cuda->backend);
    s.gpu = std::move(cuda->gpu);
    s.notes = std::move(cuda->notes);
    // No error: a run that fits keeps its rows near, and another one is refused by its plan.
    if (s.backend->traits().shares_host_memory && !options.far_rows_option.empty()) {
      s.notes.push_back(
          fmt::format("{}: host and device memory are one, so KV rows in host memory save none",
                      options.far_rows_option));
    }
    s.dtype = s.backend->activation_dtype();
    return s;
  }
  // A pass of few rows reads memory, and converting is free beside it.
  s.dtype = options.dtype.value_or(s.isa != cpu::Isa::kScalar ? DType::kBF16 : DType::kF32);
  s.backend = make_cpu_backend({s.threads, s.isa});
  return s;
}

}  // namespace triforce
