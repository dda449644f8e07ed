// Sampling and acceptance.
#include "app/option_values.h"

namespace triforce {
namespace {

OptionInfo real_option(OptionText text, std::string expected, double low, double high, bool open,
                       float& (*ref)(RunConfig&)) {
  OptionInfo o = make_option(std::move(text), std::move(expected));
  o.set = [=](const OptionInfo& self, RunConfig& c, std::string_view v) {
    const std::optional<double> x = parse_real(v);
    if (!x || *x > high || (open ? *x <= low : *x < low)) fail_value(self, v);
    ref(c) = static_cast<float>(*x);
  };
  o.get = [=](const RunConfig& c) -> ParamValue {
    RunConfig copy = c;
    // 0.6 as it was written, not the nearest double of the nearest float.
    return *parse_real(fmt::format("{}", ref(copy)));
  };
  return o;
}

OptionInfo synthetic_acceptance_option() {
  OptionInfo o = make_option(
      {"synthetic-acceptance",
       {},
       "RATES",
       "",
       "none",
       "accept proposals at these per-token rates instead of judging them; the output is then "
       "meaningless and the result is marked not comparable (plan: the rates to predict with)",
       kRun | kPlan},
      "outer=A,inner=B with A and B in [0, 1]");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    std::optional<double> outer;
    std::optional<double> inner;
    for (const std::string_view part : split_list(v)) {
      std::optional<double>& rate = part.substr(0, 6) == "outer=" ? outer : inner;
      if (rate || (part.substr(0, 6) != "outer=" && part.substr(0, 6) != "inner=")) {
        fail_value(self, v);
      }
      rate = parse_real(part.substr(6));
      if (!rate || *rate < 0 || *rate > 1) fail_value(self, v);
    }
    if (!outer || !inner) fail_value(self, v);
    c.speculation.synthetic = SyntheticAcceptance{*outer, *inner};
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    if (!c.speculation.synthetic) return std::monostate{};
    return fmt::format("outer={},inner={}", c.speculation.synthetic->outer,
                       c.speculation.synthetic->inner);
  };
  return o;
}

}  // namespace

void add_sampling_options(std::vector<OptionInfo>& table) {
  table.push_back(real_option({"temp",
                               {"temperature"},
                               "T",
                               "",
                               "0.6",
                               "temperature; 0 takes the most probable token",
                               kRun},
                              "a number in [0, 100]", 0, 100, false, [](RunConfig& c) -> float& {
                                return c.speculation.law.temperature;
                              }));
  table.push_back(real_option(
      {"top-p", {}, "P", "", "0.9", "keep the most probable tokens up to this mass; 1: all", kRun},
      "a number in (0, 1]", 0, 1, true,
      [](RunConfig& c) -> float& { return c.speculation.law.top_p; }));
  table.push_back(integer_option(
      {"top-k", {}, "N", "tokens", "0", "keep the N most probable tokens; 0: all", kRun}, 0,
      1 << 20, [](auto& c) -> auto& { return c.speculation.law.top_k; }));
  table.push_back(integer_option(
      {"seed",
       {},
       "N",
       "",
       "42",
       "of sampling, synthetic documents and random weights",
       kRun | kPerplexity | kSelftest},
      0, std::int64_t{1} << 62, [](auto& c) -> auto& { return c.seed; }));
  table.push_back(integer_option(
      {"chi-square-runs",
       {},
       "N",
       "",
       "60000",
       "generations of each losslessness test by sampling; 0: none of these tests. Fewer than "
       "10000 may not catch the known-wrong rules",
       kSelftest},
      0, std::int64_t{1} << 30, [](auto& c) -> auto& { return c.chi_square_runs; }));
  table.push_back(choice_option<Acceptance>(
      {"acceptance",
       {},
       "RULE",
       "",
       "speculative",
       "speculative: accept with probability p/q and redraw from the residual; coupled: all levels "
       "share their noise, and every method generates the same tokens",
       kRun},
      {{"speculative", Acceptance::kSpeculative}, {"coupled", Acceptance::kCoupled}},
      [](auto& c) -> auto& { return c.speculation.acceptance; }));
  table.push_back(choice_option<Correction>(
      {"inner-rule",
       {},
       "RULE",
       "",
       "exact",
       "what the inner level draws after a rejection; published is the rule of the published code, "
       "which is not lossless and is labelled so",
       kRun},
      {{"exact", Correction::kResidual}, {"published", Correction::kTarget}},
      [](auto& c) -> auto& { return c.speculation.inner_correction; }));
  table.push_back(flag_option(
      {"ignore-eos",
       {},
       "",
       "",
       "off",
       "generate --gen-len tokens even past an end-of-text token",
       kRun},
      [](auto& c) -> auto& { return c.speculation.ignore_eos; }));
  table.push_back(synthetic_acceptance_option());
  for (OptionInfo& o : table) {
    if (o.group.empty()) o.group = "Sampling and acceptance";
  }
}

}  // namespace triforce
