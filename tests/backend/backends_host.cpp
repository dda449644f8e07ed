#include "backend/backends.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"

namespace triforce {

std::vector<BackendCase> backends() {
  // Squares in 32 partial sums, exp within 2 units in the last place.
  const selftest::Conformance cpu{
      .norm_sums = 32, .norm_steps = 5, .probs_steps = 10, .every_size = true};
  std::vector<BackendCase> all = {{"reference", [] { return make_reference_backend(); }, {}}};
  // Best first: oneDNN's limit is set by the first backend of a process.
  const std::span<const cpu::Isa> levels = cpu::usable_isas();
  for (auto isa = levels.rbegin(); isa != levels.rend(); ++isa) {
    std::string name = to_string(*isa);
    std::erase(name, '-');
    all.push_back({name, [isa] { return make_cpu_backend({.threads = 2, .isa = *isa}); }, cpu});
  }
  // Threads decide who computes what, never the result.
  for (const int threads : {1, 3}) {
    all.push_back({fmt::format("best_level_{}_threads", threads),
                   [threads] { return make_cpu_backend({.threads = threads, .isa = {}}); }, cpu});
  }
  return all;
}

}  // namespace triforce
