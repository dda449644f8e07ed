#include "app/selftest.h"

#include <algorithm>

#include "app/selftest_support.h"
#include "decode/lossless.h"
#include "reference/reference_backend.h"

namespace triforce {
namespace {

void run_operations(Backend& backend, const selftest::Emit& emit) {
  const selftest::Sizes s;
  Backend::ScratchShape shape;
  shape.rows = s.context;
  shape.context = s.positions;
  shape.heads = s.heads;
  shape.kv_heads = s.kv_heads;
  shape.head_dim = s.head_dim;
  shape.widest = std::max<std::int64_t>(s.qkv(), 2 * 203);
  shape.vocab = s.vocab;
  shape.chunk_size = s.chunk;
  backend.reserve(shape);
  const std::unique_ptr<Backend> oracle = make_reference_backend(backend.kv_granule());
  oracle->reserve(shape);
  selftest::check_row_wise_ops(backend, *oracle, emit);
  selftest::check_law_ops(backend, *oracle, emit);
  selftest::check_cache_ops(backend, *oracle, emit);
  selftest::check_row_invariance(backend, emit);
}

void run_losslessness(Backend& backend, const SelftestOptions& options,
                      const selftest::Emit& emit) {
  const char* expectation[] = {"", ", a mutant that must be caught"};
  // Memory and clocks only, on the host; the choices are enumerated, not drawn.
  const std::unique_ptr<Backend> host = make_reference_backend();
  for (const EnumerationResult& r : enumerate_joint_laws(*host)) {
    emit({"exact enumeration", r.name,
          fmt::format("total variation {:.2e}, {} paths{}", r.total_variation, r.paths,
                      expectation[r.mutant ? 1 : 0]),
          r.as_expected()});
  }
  if (options.chi_square_runs == 0) return;
  for (const ChiSquareResult& r :
       chi_square_joint_laws(backend, options.chi_square_runs, options.seed)) {
    emit({"chi-square", r.name,
          fmt::format("statistic {:.1f}, {} degrees, p = {:.2e}, {} runs{}", r.statistic, r.degrees,
                      r.p_value, r.runs, expectation[r.mutant ? 1 : 0]),
          r.as_expected()});
  }
}

}  // namespace

bool SelftestReport::passed() const {
  return !checks.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const SelftestCheck& c) { return c.passed; });
}

SelftestReport run_selftest(Backend& backend, const SelftestOptions& options,
                            const SelftestSink& sink) {
  SelftestReport report;
  const selftest::Emit emit = [&](const SelftestCheck& check) {
    report.checks.push_back(check);
    if (sink) sink(check);
  };
  if (options.operations) run_operations(backend, emit);
  if (options.losslessness) run_losslessness(backend, options, emit);
  return report;
}

std::string selftest_line(const SelftestCheck& check) {
  return fmt::format("{}  {}: {}: {}\n", check.passed ? "ok    " : "FAILED", check.group,
                     check.name, check.figure);
}

std::string selftest_verdict(const SelftestReport& report) {
  const auto failed = std::count_if(report.checks.begin(), report.checks.end(),
                                    [](const SelftestCheck& c) { return !c.passed; });
  if (report.passed()) return fmt::format("selftest passed: {} checks\n", report.checks.size());
  return fmt::format("selftest failed: {} of {} checks\n", failed, report.checks.size());
}

}  // namespace triforce
