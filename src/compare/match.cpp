#include "compare/match.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "statistics/by_prompt.h"

namespace triforce {
namespace {

// By case_id, in the order of their first appearance.
struct Measurements {
  std::vector<std::string> ids;
  std::map<std::string, std::vector<Measured>> by_id;
};

Measurements measurements_of(const ResultFile& file) {
  Measurements m;
  for (const RunResult& run : file.results) {
    for (const CaseResult& c : run.cases) {
      std::vector<Measured>& of_case = m.by_id[c.case_id];
      if (of_case.empty()) m.ids.push_back(c.case_id);
      of_case.push_back({&run, &c});
    }
  }
  return m;
}

template <class... Args>
[[noreturn]] void contradicts(const ResultFile& file, const CaseResult& c,
                              fmt::format_string<Args...> f, Args&&... args) {
  throw_input("InvalidResult", "{}: case {}: {}", file.name, c.name,
              fmt::format(f, std::forward<Args>(args)...));
}

void check_samples(const ResultFile& file, const CaseResult& c) {
  for (std::size_t i = 0; i < c.timing.samples.size(); ++i) {
    const Sample& s = c.timing.samples[i];
    if (!(s.decode_ms > 0) || !std::isfinite(s.decode_ms)) {
      contradicts(file, c, "timing.samples[{}].decode_ms: expected a number above 0, found {}", i,
                  s.decode_ms);
    }
    if (s.tokens < 1) {
      contradicts(file, c, "timing.samples[{}].tokens: expected at least 1, found {}", i, s.tokens);
    }
  }
}

void check_counters(const ResultFile& file, const CaseResult& c) {
  for (std::size_t l = 0; l < c.acceptance.size(); ++l) {
    LevelCounters sum;
    for (const Sample* s : timed_samples(c)) {
      if (l < s->levels.size()) sum.merge(s->levels[l]);
    }
    const LevelCounters& level = c.acceptance[l];
    const auto check = [&](std::string_view name, std::int64_t LevelCounters::*member) {
      if (level.*member == sum.*member) return;
      contradicts(file, c, "acceptance.{}.{}: expected {}, the sum over timing.samples, found {}",
                  level.name, name, sum.*member, level.*member);
    };
    check("rounds", &LevelCounters::rounds);
    check("requested", &LevelCounters::requested);
    check("drafted", &LevelCounters::drafted);
    check("accepted", &LevelCounters::accepted);
    check("rejected", &LevelCounters::rejected);
    check("emitted", &LevelCounters::emitted);
  }
}

void check_output(const ResultFile& file, const CaseResult& c) {
  for (std::size_t i = 0; i < c.output.size(); ++i) {
    const PromptOutput& o = c.output[i];
    if (o.sha256 != tokens_sha256(o.tokens)) {
      contradicts(file, c, "output.prompts[{}].sha256: expected that of its tokens, found \"{}\"",
                  i, o.sha256);
    }
    for (const Sample* s : timed_samples(c)) {
      if (s->prompt != o.prompt || s->repetition != o.repetition) continue;
      if (s->tokens_sha256 == o.sha256) continue;
      contradicts(file, c,
                  "output.prompts[{}].sha256: expected that of its sample, \"{}\", found \"{}\"", i,
                  s->tokens_sha256, o.sha256);
    }
  }
}

// Why it cannot be said of what a measurement is; empty if it can.
std::string unidentified(const CaseResult& c) {
  for (const auto& [role, model] : {std::pair{"target", &c.target}, std::pair{"draft", &c.draft}}) {
    if (*model && !(*model)->weights_digest && !(*model)->random_seed) {
      return fmt::format("does not say which weights its {} has", role);
    }
  }
  if (!c.target) return "does not say what its target is";
  return c.data.sha256 ? "" : "does not say which data it had";
}

// Why a measurement is not a whole one; empty if it is.
std::string incomplete(const CaseResult& c) {
  if (c.status != CaseStatus::kOk) {
    return fmt::format("has status {}{}{}", to_string(c.status), c.status_reason ? ": " : "",
                       c.status_reason.value_or(""));
  }
  std::set<std::pair<int, int>> seen;
  std::map<int, std::int64_t> of_prompt;
  std::int64_t most = 0;
  for (const Sample* s : timed_samples(c)) {
    if (!seen.emplace(s->prompt, s->repetition).second) {
      return fmt::format("has prompt {}, repetition {} twice", s->prompt, s->repetition);
    }
    most = std::max(most, ++of_prompt[s->prompt]);
  }
  const std::int64_t asked = asked_repetitions(c).value_or(most);
  const bool more = may_have_more_repetitions(c);
  const bool whole = std::all_of(of_prompt.begin(), of_prompt.end(), [&](const auto& n) {
    return n.second == asked || (more && n.second > asked);
  });
  if (most == 0 || !whole || std::ssize(of_prompt) != c.data.n_prompts) {
    return fmt::format("is partial: {} generations of {} prompts with {} repetitions each",
                       seen.size(), c.data.n_prompts, asked);
  }
  return unidentified(c);
}

// What two measurements of cases of one name differ in that makes them different cases.
class Differences {
 public:
  Differences(const Measured& base, const Measured& other, const DecidesTokens& decides) {
    const CaseResult &a = *base.result, &b = *other.result;
    if (b.status != CaseStatus::kOk) add("status", to_string(a.status), to_string(b.status));
    for (const auto& [name, value] : a.params) {
      const bool gamma = name == "gamma" || name == "inner_gamma";  // what auto came to counts
      if (!decides(name, a.method) || (gamma && a.gammas && b.gammas)) continue;
      const ParamValue* const now = find_param(b.params, name);
      add(name, to_text(value, "none"), now == nullptr ? "not there" : to_text(*now, "none"));
    }
    if (a.gammas && b.gammas) {
      add("gamma", a.gammas->gamma, b.gammas->gamma);
      add("inner gamma", a.gammas->inner_gamma, b.gammas->inner_gamma);
    }
    add_model("target", a.target, b.target);
    add_model("draft", a.draft, b.draft);
    add("sha256 of the data", a.data.sha256, b.data.sha256);
    add("prompts", a.data.n_prompts, b.data.n_prompts);
    const ResultContext &before = base.run->context, &now = other.run->context;
    add("sm", before.sm, now.sm);
    if (!before.sm && !now.sm) add("isa", before.isa, now.isa);
  }
  // ": temp 0.6, now 0.2"; empty if none was found.
  std::string text() const {
    constexpr std::size_t kShown = 3;
    if (found_.empty()) return "";
    const std::size_t n = std::min(found_.size(), kShown);
    return fmt::format(": {}{}",
                       fmt::join(found_.begin(), found_.begin() + std::ptrdiff_t(n), "; "),
                       found_.size() > n ? fmt::format("; and {} more", found_.size() - n) : "");
  }

 private:
  template <class T>
  void add(std::string_view what, const T& before, const T& now) {
    if (before != now) found_.push_back(fmt::format("{} {}, now {}", what, before, now));
  }
  template <class T>
  void add(std::string_view what, const std::optional<T>& before, const std::optional<T>& now) {
    const auto shown = [](const std::optional<T>& x) {
      return x ? fmt::format("{}", *x).substr(0, 12) : std::string("none");
    };
    if (before != now) add(what, shown(before), shown(now));
  }
  void add(std::string_view what, const char* before, const char* now) {
    add(what, std::string(before), std::string(now));
  }
  void add_model(const std::string& role, const std::optional<ModelInfo>& before,
                 const std::optional<ModelInfo>& now) {
    if (!before || !now) return;
    add(role + " type", before->dtype, now->dtype);
    add(role + " parameters", before->n_params, now->n_params);
    add("config of the " + role, before->config_sha256, now->config_sha256);
    add("weights of the " + role, before->weights_digest, now->weights_digest);
    add("tokenizer of the " + role, before->tokenizer_sha256, now->tokenizer_sha256);
    add("random seed of the " + role, before->random_seed, now->random_seed);
  }
  std::vector<std::string> found_;
};

std::string times(std::size_t n) { return n == 1 ? "once" : fmt::format("{} times", n); }

// Why the measurements of one side cannot be taken; empty if they can.
std::string problem_of(std::string_view side, const std::vector<Measured>& measured,
                       std::size_t runs) {
  if (measured.size() != runs) {
    return fmt::format("{}: expected {} (--runs), found {}", side, times(runs),
                       times(measured.size()));
  }
  for (const Measured& m : measured) {
    const std::string what = incomplete(*m.result);
    if (!what.empty()) return fmt::format("{} {}", side, what);
  }
  return "";
}

// What measurements with one case_id differ in although they should not; empty if in nothing.
std::string contradiction(const MatchedCase& m, const DecidesTokens& decides) {
  for (const auto& [name, side] : {std::pair{"base", &m.base}, std::pair{"new", &m.other}}) {
    for (const Measured& one : *side) {
      const std::string text = Differences(m.base.front(), one, decides).text();
      if (!text.empty()) return fmt::format("{} has its case_id but is another{}", name, text);
    }
  }
  return "";
}

void check_file(const ResultFile& file) {
  for (const RunResult& run : file.results) {
    for (const CaseResult& c : run.cases) {
      if (c.status != CaseStatus::kOk) continue;  // never compared
      check_samples(file, c);
      check_counters(file, c);
      check_output(file, c);
    }
  }
}

}  // namespace

std::optional<std::int64_t> asked_repetitions(const CaseResult& c) {
  const ParamValue* const given = find_param(c.params, "repetitions");
  const auto* const n = given == nullptr ? nullptr : std::get_if<std::int64_t>(given);
  return n != nullptr && *n > 0 ? std::optional(*n) : std::nullopt;
}

bool may_have_more_repetitions(const CaseResult& c) {
  const ParamValue* const given = find_param(c.params, "max_noise");
  return given != nullptr && !std::holds_alternative<std::monostate>(*given);
}

std::vector<MatchedCase> match_cases(const ResultFile& base, const ResultFile& other, int runs,
                                     const DecidesTokens& decides,
                                     std::vector<std::string>& notes) {
  check_file(base);
  check_file(other);
  const Measurements before = measurements_of(base), now = measurements_of(other);
  std::map<std::string, int> names;
  for (const std::string& id : before.ids) ++names[before.by_id.at(id).front().result->name];
  std::vector<MatchedCase> matched;
  for (const std::string& id : before.ids) {
    MatchedCase& m = matched.emplace_back();
    m.base = before.by_id.at(id);
    const CaseResult& first = *m.base.front().result;
    m.case_id = id;
    m.method = first.method;
    m.label = names[first.name] == 1 ? first.name : first.name + "@" + id.substr(0, 8);
    const auto expected = runs > 0 ? static_cast<std::size_t>(runs) : m.base.size();
    m.problem = problem_of("base", m.base, expected);
    const auto found = now.by_id.find(id);
    if (found != now.by_id.end()) {
      m.other = found->second;
      if (m.problem.empty()) m.problem = problem_of("new", m.other, expected);
      if (m.problem.empty()) m.problem = contradiction(m, decides);
      continue;
    }
    if (!m.problem.empty()) continue;
    m.problem = "new has no such case";
    for (const std::string& candidate : now.ids) {
      const Measured& like = now.by_id.at(candidate).front();
      if (like.result->name != first.name || before.by_id.contains(candidate)) continue;
      m.problem += Differences(m.base.front(), like, decides).text();
      break;
    }
  }
  for (const std::string& id : now.ids) {
    if (before.by_id.contains(id)) continue;
    notes.push_back(fmt::format("only new has a case {} {}; it is compared with nothing",
                                now.by_id.at(id).front().result->name, id));
  }
  return matched;
}

}  // namespace triforce
