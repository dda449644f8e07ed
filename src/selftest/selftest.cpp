#include "selftest/selftest.h"

#include <algorithm>

namespace triforce {
namespace {

void run_losslessness(Backend& backend, const SelftestOptions& options,
                      const selftest::Emit& emit) {
  const char* expectation[] = {"", ", a mutant that must be caught"};
  for (const EnumerationResult& r : enumerate_joint_probs()) {
    emit({"exact enumeration", r.name,
          fmt::format("total variation {:.2e}, {} paths{}", r.total_variation, r.paths,
                      expectation[r.mutant ? 1 : 0]),
          r.as_expected()});
  }
  if (options.chi_square_runs == 0) return;
  for (const ChiSquareResult& r :
       chi_square_joint_probs(backend, options.chi_square_runs, options.seed)) {
    emit({"chi-square", r.name,
          fmt::format("statistic {:.1f}, {} degrees, p = {:.2e}, {} runs{}", r.statistic, r.degrees,
                      r.p_value, r.runs, expectation[r.mutant ? 1 : 0]),
          r.as_expected(), r.too_few_runs()});
  }
}

template <class Wanted>
std::ptrdiff_t count(const SelftestReport& report, const Wanted& wanted) {
  return std::ranges::count_if(report.checks, wanted);
}

}  // namespace

ExitCode SelftestReport::exit_code() const {
  if (passed()) return ExitCode::kOk;
  const bool failed = checks.empty() || count(*this, [](const SelftestCheck& c) {
                                          return !c.passed && !c.inconclusive;
                                        }) > 0;
  return failed ? ExitCode::kNumeric : ExitCode::kInconclusive;
}

bool SelftestReport::passed() const {
  return !checks.empty() &&
         std::ranges::all_of(checks, [](const SelftestCheck& c) { return c.passed; });
}

SelftestReport run_selftest(Backend& backend, const SelftestOptions& options,
                            const selftest::Emit& on_check) {
  SelftestReport report;
  const selftest::Emit emit = [&](const SelftestCheck& check) {
    report.checks.push_back(check);
    if (on_check) on_check(check);
  };
  if (options.operations) selftest::run_conformance(backend, {}, emit);
  if (options.losslessness) run_losslessness(backend, options, emit);
  return report;
}

std::string selftest_line(const SelftestCheck& check) {
  const char* outcome = check.passed ? "ok" : check.inconclusive ? "UNSURE" : "FAILED";
  return fmt::format("{:<8}{}: {}: {}\n", outcome, check.group, check.name, check.figure);
}

std::string selftest_verdict(const SelftestReport& report) {
  const std::size_t n = report.checks.size();
  const auto unsure = count(report, [](const SelftestCheck& c) { return c.inconclusive; });
  const auto failed =
      count(report, [](const SelftestCheck& c) { return !c.passed && !c.inconclusive; });
  if (report.passed()) return fmt::format("selftest passed: {} checks\n", n);
  if (report.exit_code() == ExitCode::kNumeric)
    return fmt::format("selftest failed: {} of {} checks\n", failed, n);
  return fmt::format(
      "selftest inconclusive: {} of {} checks had too few runs; --chi-square-runs {} are enough\n",
      unsure, n, ChiSquareResult::kEnoughRuns);
}

}  // namespace triforce
