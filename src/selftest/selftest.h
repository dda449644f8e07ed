// Is this build on this machine right? Every operation of a backend against the oracle, rows that
// do not depend on the rows beside them, and losslessness with known-wrong rules that must fail.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "selftest/conformance.h"
#include "selftest/lossless.h"
#include "triforce/error.h"

namespace triforce {

using SelftestCheck = selftest::Check;
struct SelftestReport {
  std::vector<SelftestCheck> checks;
  bool passed() const;
  // kOk; kNumeric if a check failed; kInconclusive if some had too few samples, and none failed.
  ExitCode exit_code() const;
};

struct SelftestOptions {
  std::uint64_t seed = 42;
  std::int64_t chi_square_runs = ChiSquareResult::kEnoughRuns;  // 0: none
  bool operations = true, losslessness = true;
};
// `on_check`, if any, is called with every check as it ends.
SelftestReport run_selftest(Backend& backend, const SelftestOptions& options,
                            const selftest::Emit& on_check);

// One line a check, and the verdict: "selftest passed: 64 checks", "selftest failed: 2 of 64
// checks" or "selftest inconclusive: 1 of 64 checks had too few runs ...".
std::string selftest_line(const SelftestCheck& check);
std::string selftest_verdict(const SelftestReport& report);

}  // namespace triforce
