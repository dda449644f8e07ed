// A result with something in every field, for the tests of the printers. In a library of its own:
// it takes a compiler seconds.
#pragma once
#include "triforce/sweep.h"

namespace triforce {

ResultContext sample_context();
// Rounds that ask for six tokens, by the number accepted in each.
LevelCounters sample_level(const char* name, std::vector<std::int64_t> rounds_of_six);
LevelIntervals sample_intervals();
CaseResult sample_baseline();
CaseResult sample_triforce();
CaseResult sample_failure();  // of a method that ran out of memory
RunResult sample_result();    // these three cases

// The metric that is the time of a pass; the other way round it is pass_of().
constexpr CaseMetric ms_of(Pass pass) {
  return static_cast<CaseMetric>(static_cast<int>(CaseMetric::kPassMs) + static_cast<int>(pass));
}

}  // namespace triforce
