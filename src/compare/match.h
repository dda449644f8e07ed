// Matching finds the measurements of two files that are of the same case, and what forbids to
// compare them.
#pragma once
#include "triforce/compare.h"

namespace triforce {

// A Measured is one run's measurement of a case; it points into a ResultFile.
struct Measured {
  const RunResult* run = nullptr;
  const CaseResult* result = nullptr;
};

struct MatchedCase {
  std::string case_id, label, method;
  std::vector<Measured> base, other;  // options.runs each, unless there is a problem
  std::string problem;                // why nothing of it can be compared, one line; empty: nothing
};

// The cases of base in its order. Cases are the same by case_id, or where same_but_for_defaults()
// says so. A run that is there several times counts once. `notes` gets a line for each case that
// only `other` has, and for runs that counted once. Throws as compare_results().
std::vector<MatchedCase> match_cases(const ResultFile& base, const ResultFile& other, int runs,
                                     const CaseRules& rules, std::vector<std::string>& notes);

// Timed repetitions of a prompt that were asked for; with --max-noise it may have had more.
// nullopt: the result does not say.
std::optional<std::int64_t> asked_repetitions(const CaseResult& c);
bool may_have_more_repetitions(const CaseResult& c);

}  // namespace triforce
