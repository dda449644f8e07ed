// Acceptance that is given in place of verification, as vLLM and SGLang simulate it.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "triforce/method.h"

namespace triforce {

struct SyntheticAcceptance {
  // What `outer` holds.
  enum class Form : std::uint8_t {
    kRate,      // one: of every proposal that is tested
    kLength,    // one: tokens of a verification on average, bonus included, in [1, gamma + 1]
    kMarginal,  // [i]: share of the verifications that keep proposal i, none above the one before
    kConditional,  // [i]: likewise of those that keep all before it
  };

  // As a rate: of what the target proposes over a small cache. Else of what the full cache
  // verifies.
  std::vector<double> outer;
  // Per-token rate. Beside an outer rate: of what a drafter or a lookup proposes, whichever cache
  // verifies it. Else: of all levels below the full cache; nullopt: there is none.
  std::optional<double> inner;
  Form form = Form::kRate;

  // Rates of proposals of a level that is asked for `asked` at a time, each of those tested: [i] of
  // the i-th, the last also of all after it.
  std::vector<double> of(const MethodSpec& method, int level, int asked) const;
  // The per-token rate that gives as many tokens a verification.
  double rate_of(const MethodSpec& method, int level, int asked) const;
};

}  // namespace triforce
