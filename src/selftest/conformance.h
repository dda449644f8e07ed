// Does a backend do what triforce/backend.h says? Every operation against the reference, at sizes
// that divide nothing, outputs between sentinels and inputs between NaN, with tolerances that
// follow from the formats; and the bits of a row in any company of 1 to 32. Written over the
// interface alone, so that it is the same for every backend: `selftest` runs it, and so do the
// tests.
#pragma once
#include <functional>
#include <string>

#include "triforce/backend.h"

namespace triforce::selftest {

struct Check {
  std::string group;   // "operations", "row invariance, 1 to 128 rows", ...
  std::string name;    // "linear, f16 weights"
  std::string figure;  // "worst error 0.12 of tolerance, 4096 values"
  bool passed = false;
  bool inconclusive = false;  // not passed, for want of samples
};
// Called with every check as it ends.
using Emit = std::function<void(const Check&)>;

struct Conformance {
  // Roundings that no format decides. The defaults hold for any sensible f32 arithmetic; a test
  // states the tighter ones of its backend.
  int norm_sums = 1;        // partial sums in which rms_norm adds its squares
  double norm_steps = 8;    // roundings of the root and the products
  double probs_steps = 12;  // of exp, the sum and the quotient
  bool every_size = false;  // wide vocabularies too; seconds on a CPU
};

void run_conformance(Backend& tested, const Conformance& c, const Emit& emit);

}  // namespace triforce::selftest
