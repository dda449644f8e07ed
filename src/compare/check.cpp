#include "compare/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "report/printers.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

constexpr std::string_view kFollows = ", which follows from what stands beside";

void check_method(const CheckedCase& c, const ExpectedCase& expected) {
  const CaseResult& r = c.result;
  const auto levels = static_cast<std::size_t>(expected.levels);
  if (r.name != r.method) c.contradicts("name: expected \"{}\", its method", r.method);
  if (!r.acceptance.empty() && r.acceptance.size() != levels) {
    c.contradicts("acceptance: expected {} levels, as method {} has, found {}", levels, r.method,
                  r.acceptance.size());
  }
  for (std::size_t i = 0; i < r.timing.samples.size(); ++i) {
    const std::vector<LevelCounters>& found = r.timing.samples[i].levels;
    // A generation that was stopped before its first verification has none.
    if (found.size() != levels && (r.status == CaseStatus::kOk || found.size() > levels)) {
      c.contradicts("timing.samples[{}].levels: expected {}, as method {} has, found {}", i, levels,
                    r.method, found.size());
    }
    for (std::size_t l = 0; l < found.size() && levels <= kLevelNames.size(); ++l) {
      const std::string_view name = level_name(l, found.size());
      if (found[l].name == name) continue;
      c.contradicts("timing.samples[{}].levels: expected \"{}\", found \"{}\"", i, name,
                    found[l].name);
    }
  }
  if (r.draft && !expected.drafter) {
    c.contradicts("model.draft: expected null, as method {} has no drafter, found \"{}\"", r.method,
                  r.draft->name);
  }
}

void check_samples(const CheckedCase& c) {
  for (std::size_t i = 0; i < c.result.timing.samples.size(); ++i) {
    const Sample& s = c.result.timing.samples[i];
    if (!(s.decode_ms > 0) || !std::isfinite(s.decode_ms)) {
      c.contradicts("timing.samples[{}].decode_ms: expected a number above 0, found {}", i,
                    s.decode_ms);
    }
    if (s.tokens < 1) {
      c.contradicts("timing.samples[{}].tokens: expected at least 1, found {}", i, s.tokens);
    }
  }
}

std::vector<std::int64_t> without_trailing_zeros(std::vector<std::int64_t> list) {
  while (!list.empty() && list.back() == 0) list.pop_back();
  return list;
}

void check_draft_lengths(const CheckedCase& c, const LevelCounters& level, LevelCounters sum) {
  if (!level.by_draft_length || !sum.by_draft_length) return;
  sum.drop_unseen_lengths();
  LevelCounters found = level;
  found.drop_unseen_lengths();
  if (found.by_draft_length == sum.by_draft_length) return;
  c.contradicts(
      "acceptance.{}.histogram_by_draft_length: expected the sum over timing.samples, found "
      "another",
      level.name);
}

void check_length_per_request(const CheckedCase& c, const LevelResult& level, std::size_t index) {
  if (!level.mean_accepted_length_per_request) return;
  double sum = 0, n = 0;
  for (const Sample* s : timed_samples(c.result)) {
    if (index >= s->levels.size() || s->levels[index].rounds == 0) continue;
    sum += s->levels[index].mean_accepted_length();
    ++n;
  }
  const double expected = n > 0 ? sum / n : NAN, found = *level.mean_accepted_length_per_request;
  if (std::abs(found - expected) <= 1e-9 * expected) return;
  c.contradicts(
      "acceptance.{}.mean_accepted_length_per_request: expected {:g}, the mean over "
      "timing.samples, found {:g}",
      level.name, expected, found);
}

void check_counters(const CheckedCase& c) {
  for (std::size_t l = 0; l < c.result.acceptance.size(); ++l) {
    LevelCounters sum;
    for (const Sample* s : timed_samples(c.result)) {
      if (l < s->levels.size()) sum.merge(s->levels[l]);
    }
    const LevelResult& level = c.result.acceptance[l];
    const auto refuse = [&](std::string_view name, const std::string& expected,
                            const std::string& found) {
      c.contradicts("acceptance.{}.{}: expected {}, the sum over timing.samples, found {}",
                    level.name, name, expected, found);
    };
    const auto check = [&](std::string_view name, std::int64_t LevelCounters::*member) {
      if (level.*member == sum.*member) return;
      refuse(name, fmt::format("{}", sum.*member), fmt::format("{}", level.*member));
    };
    const auto check_list = [&](std::string_view name,
                                std::vector<std::int64_t> LevelCounters::*member) {
      // Results leave out positions that no round tested.
      if (without_trailing_zeros(level.*member) == without_trailing_zeros(sum.*member)) return;
      refuse(name, fmt::format("[{}]", fmt::join(sum.*member, ",")),
             fmt::format("[{}]", fmt::join(level.*member, ",")));
    };
    check("rounds", &LevelCounters::rounds);
    check("requested", &LevelCounters::requested);
    check("drafted", &LevelCounters::drafted);
    check("accepted", &LevelCounters::accepted);
    check("rejected", &LevelCounters::rejected);
    check("emitted", &LevelCounters::emitted);
    check_list("tested_per_position", &LevelCounters::tested_at);
    check_list("accepted_per_position", &LevelCounters::accepted_at);
    check_list("histogram", &LevelCounters::histogram);
    check_draft_lengths(c, level, sum);
    check_length_per_request(c, level, l);
    const std::size_t positions = level.tested_at.size();
    if (level.accepted_at.size() != positions || level.histogram.size() > positions + 1) {
      c.contradicts(
          "acceptance.{}: expected {} accepted_per_position and at most {} of histogram, as "
          "tested_per_position has, found {} and {}",
          level.name, positions, positions + 1, level.accepted_at.size(), level.histogram.size());
    }
  }
}

void check_output(const CheckedCase& c) {
  for (std::size_t i = 0; i < c.result.output.size(); ++i) {
    const PromptOutput& o = c.result.output[i];
    if (o.sha256 != tokens_sha256(o.tokens)) {
      c.contradicts("output.prompts[{}].sha256: expected that of its tokens, found \"{}\"", i,
                    o.sha256);
    }
    for (const Sample* s : timed_samples(c.result)) {
      if (s->prompt != o.prompt || s->repetition != o.repetition) continue;
      if (s->tokens_sha256 == o.sha256) continue;
      c.contradicts("output.prompts[{}].sha256: expected that of its sample, \"{}\", found \"{}\"",
                    i, s->tokens_sha256, o.sha256);
    }
  }
}

// Streams counts timed generations that the baseline has too, and says whether all have its tokens.
struct Streams {
  std::int64_t compared = 0;
  bool equal = true;
};
Streams compare_with(const CaseResult& baseline, const CaseResult& c) {
  std::map<std::pair<int, int>, const Sample*> expected;
  for (const Sample* s : timed_samples(baseline)) expected[{s->prompt, s->repetition}] = s;
  Streams streams;
  for (const Sample* s : timed_samples(c)) {
    const auto it = expected.find({s->prompt, s->repetition});
    if (it == expected.end()) continue;
    ++streams.compared;
    streams.equal = streams.equal && it->second->tokens_sha256 == s->tokens_sha256;
  }
  return streams;
}

void check_lossless(const CheckedCase& c, const ExpectedCase& expected) {
  const Lossless& l = c.result.lossless;
  if (l.mode != expected.mode) {
    c.contradicts("lossless.mode: expected {}{}, found {}", to_string(expected.mode), kFollows,
                  to_string(l.mode));
  }
  if (l.exact_rule != expected.exact_rule) {
    c.contradicts("lossless.exact_rule: expected {}{}, found {}", expected.exact_rule, kFollows,
                  l.exact_rule);
  }
  if (l.equal_tokens && !(*l.equal_tokens >= 0 && *l.equal_tokens <= 1)) {
    c.contradicts("lossless.equal_tokens: expected a share in 0..1, found {}", *l.equal_tokens);
  }
  const CaseResult* const baseline = baseline_of(c.run);
  Streams streams;
  if (l.mode == LosslessMode::kTokens && baseline != nullptr) {
    streams = compare_with(*baseline, c.result);
  }
  const auto generations = std::ssize(timed_samples(c.result));
  if (l.mode == LosslessMode::kTokens && baseline == nullptr) {  // only that it can be
    streams.compared = std::clamp<std::int64_t>(l.compared, l.equal_to_baseline ? 1 : 0,
                                                std::max<std::int64_t>(generations, 1));
    streams.equal = l.equal_to_baseline.value_or(true);
  }
  if (l.compared != streams.compared) {
    c.contradicts("lossless.compared: expected {}{}, found {}", streams.compared, kFollows,
                  l.compared);
  }
  if (!l.equal_to_baseline) return;
  if (streams.compared == 0) {
    c.contradicts("lossless.equal_to_baseline: expected null{}, found {}", kFollows,
                  *l.equal_to_baseline);
  }
  if (*l.equal_to_baseline != streams.equal) {
    c.contradicts("lossless.equal_to_baseline: expected {}{}, found {}", streams.equal, kFollows,
                  *l.equal_to_baseline);
  }
}

// An exit code that says of cases what none of them says.
void check_exit_code(const ResultFile& file, const RunResult& run) {
  const auto any = [&](const auto& has) { return std::ranges::any_of(run.cases, has); };
  const bool failed = any([](const CaseResult& c) { return c.status != CaseStatus::kOk; });
  const bool unequal =
      any([](const CaseResult& c) { return c.lossless.equal_to_baseline == false; });
  const auto refuse = [&](std::string_view expected) {
    throw_input("InvalidResult", "{}: run {}: exit_code: expected {}{}, found {}", file.name,
                quote_text(run.run_id), expected, kFollows, static_cast<int>(run.exit_code));
  };
  if (unequal && run.exit_code != ExitCode::kNumeric) refuse("7");
  if (failed || unequal) return;
  // A signal or the end of --timeout may have come when all was measured.
  constexpr std::array kOfWholeRuns = {ExitCode::kOk, ExitCode::kInconclusive,
                                       ExitCode::kInterrupted};
  if (std::ranges::find(kOfWholeRuns, run.exit_code) == kOfWholeRuns.end()) {
    refuse("0");
  }
}

}  // namespace

void check_consistent(const ResultFile& file, const CaseRules& rules) {
  for (const RunResult& run : file.results) {
    for (const CaseResult& r : run.cases) {
      const CheckedCase c{file, run, r};
      const std::optional<ExpectedCase> expected = rules.expected(r);
      if (!expected) {
        c.contradicts("method: expected one of this build (--help lists them), found {}",
                      quote_text(r.method));
      }
      check_method(c, *expected);
      if (r.status == CaseStatus::kOk) {
        check_samples(c);
        check_counters(c);
        check_output(c);
      }
      check_lossless(c, *expected);
      check_statistics(c);
    }
    check_exit_code(file, run);
  }
}

}  // namespace triforce
