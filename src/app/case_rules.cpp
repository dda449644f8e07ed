#include "app/case_rules.h"

#include "measure/measure_parts.h"
#include "options/identity.h"
#include "options/options.h"
#include "triforce/method.h"

namespace triforce {
namespace {

// These options of a case say how its output is compared with the baseline's.
SpeculationOptions speculation_of(const CaseResult& c) {
  RunConfig config;
  for (const char* name : {"temp", "acceptance", "inner_rule", "synthetic_acceptance"}) {
    if (!is_given(c.params, name)) continue;
    find_option(kRun, name)->value.set(config, to_text(*find_param(c.params, name)));
  }
  return config.speculation;
}

std::optional<ExpectedCase> expected_case(const CaseResult& c) {
  const std::optional<Method> method = parse_method(c.method);
  if (!method) return std::nullopt;
  const MethodSpec& spec = spec_of(*method);
  const SpeculationOptions options = speculation_of(c);
  return ExpectedCase{spec.levels(), spec.has_drafter(), lossless_mode(options, spec),
                      exact_rule(options, spec)};
}

}  // namespace

const CaseRules& case_rules() {
  static const CaseRules kRules = {
      [](std::string_view param, const CaseResult& c) { return decides_tokens(param, c); },
      is_default, [](std::string_view param) { return find_option(kRun, param) != nullptr; },
      case_key_of, expected_case};
  return kRules;
}

}  // namespace triforce
