#include "compare/match.h"

#include <algorithm>
#include <map>
#include <set>

#include "compare/differences.h"
#include "core/utf8.h"
#include "statistics/by_prompt.h"

namespace triforce {
namespace {

// Measurements are grouped by case_id, in the order of their first appearance.
struct Measurements {
  std::vector<std::string> ids;
  std::map<std::string, std::vector<Measured>> by_id;
  std::set<std::string> shared;  // ids of generations that several cases of a sweep show
};

// The runs that generated the samples of a measurement: its own, or another of the same sweep.
std::set<std::string> origins_of(const Measured& m) {
  std::set<std::string> origins;
  for (const Sample* s : timed_samples(*m.result)) {
    origins.insert(s->generated_in.value_or(m.run->run_id));
  }
  if (origins.empty()) origins.insert(m.run->run_id);
  return origins;
}

bool is_copy(const Sample& a, const Sample& b) {
  return a.prompt == b.prompt && a.repetition == b.repetition && a.decode_ms == b.decode_ms &&
         a.tokens_sha256 == b.tokens_sha256;
}

bool is_copy(const CaseResult& a, const CaseResult& b) {
  const std::vector<const Sample*> before = timed_samples(a), now = timed_samples(b);
  return a.status == b.status && std::ranges::equal(before, now, [](const auto* x, const auto* y) {
           return is_copy(*x, *y);
         });
}

// Generations that were counted already are no further run.
Measurements measurements_of(std::string_view side, const ResultFile& file,
                             std::vector<std::string>& notes) {
  Measurements m;
  std::map<std::string, std::size_t> copies;  // by run
  for (const RunResult& run : file.results) {
    for (const CaseResult& c : run.cases) {
      std::vector<Measured>& of_case = m.by_id[c.case_id];
      if (of_case.empty()) m.ids.push_back(c.case_id);
      const Measured one{&run, &c};
      const std::set<std::string> origins = origins_of(one);
      if (!origins.contains(run.run_id)) m.shared.insert(c.case_id);
      const auto known = std::ranges::find_if(
          of_case, [&](const Measured& other) { return origins_of(other) == origins; });
      if (known == of_case.end()) {
        of_case.push_back(one);
        continue;
      }
      if (!is_copy(*known->result, c)) {
        throw_input("InvalidResult",
                    "{}: case {}: run {}: expected a run_id once, or copies of one run, found it "
                    "twice with other samples",
                    file.name, c.name, quote_text(run.run_id));
      }
      ++copies[*origins.begin()];
    }
  }
  for (const auto& [run_id, n] : copies) {
    notes.push_back(
        fmt::format("{} has {} of run {} again: a copy is no further run, each counts once", side,
                    n == 1 ? "a case" : fmt::format("{} cases", n), run_id));
  }
  return m;
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
  const bool whole = std::ranges::all_of(
      of_prompt, [&](const auto& n) { return n.second == asked || (more && n.second > asked); });
  if (most == 0 || !whole || std::ssize(of_prompt) != c.data.n_prompts) {
    return fmt::format("is partial: {} generations of {} prompts with {} repetitions each",
                       seen.size(), c.data.n_prompts, asked);
  }
  return unidentified(c);
}

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

// Says in what measurements with one case_id differ although they should not; empty if in nothing.
std::string contradiction(const MatchedCase& m, const CaseRules& rules) {
  for (const auto& [name, side] : {std::pair{"base", &m.base}, std::pair{"new", &m.other}}) {
    const std::string called = side == &m.base ? "another run of base" : "new";
    for (const Measured& one : *side) {
      const std::string text = Differences(m.base.front(), one, rules, called).text();
      if (!text.empty()) return fmt::format("{} has its case_id but {}", name, text);
    }
  }
  return "";
}

}  // namespace

std::optional<std::int64_t> asked_repetitions(const CaseResult& c) {
  const ParamValue* const given = find_param(c.params, "repetitions");
  const auto* const n = given == nullptr ? nullptr : std::get_if<std::int64_t>(given);
  return n != nullptr && *n > 0 ? std::optional(*n) : std::nullopt;
}

bool may_have_more_repetitions(const CaseResult& c) { return is_given(c.params, "max_noise"); }

namespace {

// The id of the case of `now` that is like `base` but has another id; nullptr: there is none.
// `taken`: ids that cases of base have.
const std::string* counterpart(const Measured& base, const Measurements& now,
                               const std::set<std::string>& taken, const CaseRules& rules) {
  const auto found = std::ranges::find_if(now.ids, [&](const std::string& id) {
    return !taken.contains(id) && same_but_for_defaults(base, now.by_id.at(id).front(), rules);
  });
  return found == now.ids.end() ? nullptr : &*found;
}

// "; differs in: ...": of the case of the same name that differs least; empty: there is none.
std::string nearest_differs(const Measured& base, const Measurements& now,
                            const std::set<std::string>& taken, const CaseRules& rules) {
  std::optional<Differences> nearest;
  for (const std::string& id : now.ids) {
    const Measured& like = now.by_id.at(id).front();
    if (like.result->name != base.result->name || taken.contains(id)) continue;
    Differences found(base, like, rules, "new", true);
    if (!nearest || found.count() < nearest->count()) nearest = std::move(found);
  }
  const std::string text = nearest ? nearest->text() : "";
  return text.empty() ? text : "; " + text;
}

// How often a sweep generated what its cases share follows from how it was divided among processes.
void keep_as_many(MatchedCase& m, std::vector<std::string>& notes) {
  const std::size_t n = std::min(m.base.size(), m.other.size());
  if (m.base.size() == m.other.size()) return;
  notes.push_back(fmt::format(
      "{}: base has {} runs of what its sweep shares, new {}; the first {} of each count", m.label,
      m.base.size(), m.other.size(), n));
  m.base.resize(n);
  m.other.resize(n);
}

}  // namespace

std::vector<MatchedCase> match_cases(const ResultFile& base, const ResultFile& other, int runs,
                                     const CaseRules& rules, std::vector<std::string>& notes) {
  check_consistent(base, rules);
  check_consistent(other, rules);
  const Measurements before = measurements_of("base", base, notes),
                     now = measurements_of("new", other, notes);
  std::map<std::string, int> names;
  for (const std::string& id : before.ids) ++names[before.by_id.at(id).front().result->name];
  std::set<std::string> taken(before.ids.begin(), before.ids.end());
  std::vector<MatchedCase> matched;
  for (const std::string& id : before.ids) {
    MatchedCase& m = matched.emplace_back();
    m.base = before.by_id.at(id);
    const CaseResult& first = *m.base.front().result;
    m.case_id = id;
    m.method = first.method;
    m.label = names[first.name] == 1 ? first.name : first.name + "@" + id.substr(0, 8);
    const std::string* found = now.by_id.contains(id) ? &id : nullptr;
    if (found == nullptr) found = counterpart(m.base.front(), now, taken, rules);
    if (found != nullptr) {
      taken.insert(*found);
      m.other = now.by_id.at(*found);
      if (runs == 0 && (before.shared.contains(id) || now.shared.contains(*found)))
        keep_as_many(m, notes);
    }
    const auto expected = runs > 0 ? static_cast<std::size_t>(runs) : m.base.size();
    m.problem = problem_of("base", m.base, expected);
    if (!m.problem.empty()) continue;
    if (found == nullptr) {
      m.problem = "new has no such case" + nearest_differs(m.base.front(), now, taken, rules);
      continue;
    }
    m.problem = problem_of("new", m.other, expected);
    if (m.problem.empty()) m.problem = contradiction(m, rules);
  }
  for (const std::string& id : now.ids) {
    if (taken.contains(id)) continue;
    notes.push_back(fmt::format("only new has a case {} {}; it is compared with nothing",
                                now.by_id.at(id).front().result->name, id));
  }
  return matched;
}

}  // namespace triforce
