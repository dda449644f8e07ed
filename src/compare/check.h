// check_consistent() (triforce/case_rules.h) is made of these.
#pragma once
#include <utility>

#include "triforce/case_rules.h"
#include "triforce/error.h"
#include "triforce/format.h"

namespace triforce {

// A case and where it stands, for messages.
struct CheckedCase {
  const ResultFile& file;
  const RunResult& run;
  const CaseResult& result;

  template <class... Args>
  [[noreturn]] void contradicts(fmt::format_string<Args...> f, Args&&... args) const {
    throw_input("InvalidResult", "{}: case {}: {}", file.name, result.name,
                fmt::format(f, std::forward<Args>(args)...));
  }
};

// Times, intervals, speedup and noise against the samples, and that no interval is upside down.
void check_statistics(const CheckedCase& c);

}  // namespace triforce
