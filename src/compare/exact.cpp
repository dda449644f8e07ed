#include <algorithm>
#include <array>
#include <map>

#include "compare/metrics.h"
#include "core/fields.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

// A value is one of the whole numbers and words of a sample.
struct Counter {
  std::string name;    // "levels.outer.accepted"
  std::string member;  // as ResultFile::absent has it
  std::string value;   // JSON
};

// ExactFields collects the values of a described struct; times and energy are not among them.
class ExactFields {
 public:
  explicit ExactFields(std::vector<Counter>& out) : out_(out) {}
  template <class T>
  void operator()(std::string_view name, T& member, const char* /*description*/) {
    if constexpr (!std::same_as<T, double> && !std::same_as<T, std::optional<double>> &&
                  !std::same_as<T, std::optional<ByDomain>>) {
      out_.push_back({name_ + std::string(name), member_ + std::string(name),
                      to_json_text(member, JsonStyle::kCompact)});
    }
  }
  template <class T>
  void named(std::string_view name, std::vector<T>& list, std::string T::*member,
             const auto& /*names*/, const char* /*description*/) {
    const std::string name_before = name_, member_before = member_;
    for (T& element : list) {
      name_ += fmt::format("{}.{}.", name, element.*member);
      member_ += fmt::format("{}[].", name);
      fields(*this, element);
      name_ = name_before;
      member_ = member_before;
    }
  }
  template <class T>
  void derived(std::string_view /*name*/, const T& /*value*/, const char* /*description*/) {}

 private:
  std::vector<Counter>& out_;
  std::string name_, member_ = "timing.samples[].";
};

// Two members of a sample are no counters. Its tokens are compared by themselves; the other says
// whose run it is.
constexpr std::array<std::string_view, 2> kNoCounters = {"tokens_sha256", "generated_in"};

// Returns all values but those that a file lacks.
std::vector<Counter> counters_of(const Sample& sample, const std::set<std::string>& absent) {
  std::vector<Counter> counters;
  ExactFields visitor(counters);
  fields(visitor, const_cast<Sample&>(sample));  // only read, as in write_value()
  std::erase_if(counters, [&](const Counter& c) {
    return std::ranges::find(kNoCounters, c.name) != kNoCounters.end() || absent.contains(c.member);
  });
  return counters;
}

// "levels.outer.accepted: 10, now 9"; empty if all are equal.
std::string first_difference(const Sample& a, const Sample& b,
                             const std::set<std::string>& absent) {
  const std::vector<Counter> before = counters_of(a, absent), now = counters_of(b, absent);
  for (std::size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    if (i >= before.size()) {
      return fmt::format("{}: not there, now {}", now[i].name, now[i].value);
    }
    if (i >= now.size() || before[i].name != now[i].name) {
      return fmt::format("{}: {}, now not there", before[i].name, before[i].value);
    }
    if (before[i].value == now[i].value) continue;
    return fmt::format("{}: {}, now {}", before[i].name, before[i].value, now[i].value);
  }
  return "";
}

const PromptOutput* find_output(const CaseResult& c, const Sample& s) {
  const auto it = std::ranges::find_if(c.output, [&](const PromptOutput& o) {
    return o.prompt == s.prompt && o.repetition == s.repetition;
  });
  return it == c.output.end() ? nullptr : &*it;
}

// Where the tokens first differ, as far as they were recorded.
std::string where(const CaseResult& a, const CaseResult& b, const Sample& s) {
  const PromptOutput *before = find_output(a, s), *now = find_output(b, s);
  if (before == nullptr || now == nullptr) {
    return "the hashes of the tokens differ (--record tokens keeps those of every repetition)";
  }
  const auto shown = [](const std::vector<Token>& tokens, std::size_t i) {
    return i < tokens.size() ? fmt::format("token {}", tokens[i]) : std::string("the end");
  };
  const auto at = std::ranges::mismatch(before->tokens, now->tokens).in1 - before->tokens.begin();
  const auto i = static_cast<std::size_t>(at);
  return fmt::format("position {}: {}, now {}", i, shown(before->tokens, i), shown(now->tokens, i));
}

std::string place(const Sample& s) {
  return fmt::format("prompt {}, repetition {}", s.prompt, s.repetition);
}

// Whether --max-noise may have made a repetition that the other run did not need.
bool is_extra(const Sample& s, const CaseResult& other) {
  return may_have_more_repetitions(other) && s.repetition >= asked_repetitions(other).value_or(0);
}

// The first difference of two measurements in tokens and in counters.
struct Difference {
  std::string tokens, counters;
  bool missing = false;  // a generation of `a` is not in `b`
};
Difference difference_of(const CaseResult& a, const CaseResult& b,
                         const std::set<std::string>& absent) {
  std::map<std::pair<int, int>, const Sample*> of_b;
  for (const Sample* s : timed_samples(b)) of_b[{s->prompt, s->repetition}] = s;
  Difference d;
  for (const Sample* s : timed_samples(a)) {
    const auto found = of_b.find({s->prompt, s->repetition});
    if (found == of_b.end() && is_extra(*s, b)) continue;
    if (found == of_b.end()) {
      d.missing = true;
      if (d.tokens.empty()) d.tokens = place(*s) + " is not there";
      if (d.counters.empty()) d.counters = place(*s) + " is not there";
      return d;
    }
    if (d.tokens.empty() && s->tokens_sha256 != found->second->tokens_sha256) {
      d.tokens = fmt::format("{}, {}", place(*s), where(a, b, *s));
    }
    if (!d.counters.empty()) continue;
    const std::string counters = first_difference(*s, *found->second, absent);
    if (!counters.empty()) d.counters = fmt::format("{}, {}", place(*s), counters);
  }
  return d;
}

void add_difference(MetricComparison& m, const std::string& what, Outcome outcome,
                    const std::string& prefix) {
  if (what.empty() || !m.reason.empty()) return;
  m.decide(Verdict::kDifferent, outcome, prefix + what);
}

}  // namespace

bool is_exact_member(const std::string& member) {
  Sample sample;
  sample.levels.emplace_back();
  const std::vector<Counter> all = counters_of(sample, {});
  return std::ranges::any_of(all, [&](const Counter& c) { return c.member == member; });
}

std::vector<MetricComparison> compare_exactly(const MatchedCase& c, bool gated,
                                              const std::set<std::string>& absent) {
  MetricComparison tokens, counters;
  tokens.metric = "tokens";
  counters.metric = "counters";
  const CaseResult& first = *c.base.front().result;
  const auto n = [](const std::vector<Measured>& side) {
    std::int64_t sum = 0;
    for (const Measured& m : side) sum += std::ssize(timed_samples(*m.result));
    return sum;
  };
  for (MetricComparison* m : {&tokens, &counters}) {
    m->n_base = n(c.base);
    m->n_other = n(c.other);
  }
  const auto add = [&](const CaseResult& other, Outcome outcome, const std::string& prefix) {
    const Difference d = difference_of(first, other, absent);
    if (d.missing) outcome = Outcome::kInconclusive;
    if (!gated) outcome = Outcome::kNotGated;
    add_difference(tokens, d.tokens, outcome, prefix);
    add_difference(counters, d.counters, outcome, prefix);
  };
  for (std::size_t i = 1; i < c.base.size(); ++i) {
    add(*c.base[i].result, Outcome::kInconclusive, "two runs of base: ");
  }
  for (const Measured& m : c.other) add(*m.result, Outcome::kRegressed, "");
  if (gated) return {tokens, counters};
  return {tokens};
}

std::vector<MetricComparison> compare_lossless(const MatchedCase& c) {
  const auto worst = [](const std::vector<Measured>& side) -> std::optional<bool> {
    std::optional<bool> equal;
    for (const Measured& m : side) {
      const std::optional<bool>& one = m.result->lossless.equal_to_baseline;
      if (one) equal = equal.value_or(true) && *one;
    }
    return equal;
  };
  const std::optional<bool> before = worst(c.base), now = worst(c.other);
  MetricComparison m;
  m.metric = "lossless";
  if (now == false) {
    const bool base_too = before == false;
    m.decide(Verdict::kDifferent, base_too ? Outcome::kInconclusive : Outcome::kRegressed,
             "new is not lossless: its tokens differ from those of its own baseline");
    if (base_too) m.reason += ", as those of base did";
    return {m};
  }
  if (!before || now) return {};
  m.decide(Verdict::kMissing, Outcome::kInconclusive,
           "base was compared with its baseline token by token, new was not");
  return {m};
}

}  // namespace triforce
