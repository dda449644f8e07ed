// What the tables of options and of methods say of a case in a result file, for code that knows
// neither table.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "triforce/report.h"

namespace triforce {

// What a case must say of itself, by its method and options.
struct ExpectedCase {
  int levels = 0;        // of verification: 0, 1 (outer) or 2 (inner and outer)
  bool drafter = false;  // whether it has one
  LosslessMode mode = LosslessMode::kBaseline;
  bool exact_rule = true;
};

// Names of params of a case.
using ParamNames = std::set<std::string, std::less<>>;

struct CaseRules {
  DecidesTokens decides;
  IsDefault is_default;
  // Whether this build has an option of that name.
  std::function<bool(std::string_view param)> knows;
  // What decides tokens and counters of the case, as text; without the params in `left_out`.
  std::function<std::string(const CaseResult& c, const ResultContext& context,
                            const ParamNames& left_out)>
      key;
  // nullopt: this build has no method of that name.
  std::function<std::optional<ExpectedCase>(const CaseResult& c)> expected;
};

// That what a file says of itself follows from what stands beside it, as far as this can be told:
// - of each case its method, levels, losslessness by tokens and baseline, and statistics by samples
// - of cases with status ok its samples, counters and outputs
// - of each run its exit code
// What is null, as in files of older builds, is not looked at. Statistics may differ by 1e-6 of
// their value, for another build adds up in another order. Throws Error(kBadInput, "InvalidResult")
// with file, case and member, what was expected and what was found.
void check_consistent(const ResultFile& file, const CaseRules& rules);

}  // namespace triforce
