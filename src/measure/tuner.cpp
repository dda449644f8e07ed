// Tests: tests/measure/tuner_test.cpp, tests/measure/tuning_run_test.cpp
#include "measure/tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

namespace triforce {
namespace {

// Tokens of a generation that acceptances and times are taken from.
constexpr std::int64_t kLeastTokens = 32, kMostTokens = 1024;
// Of those so many for the baseline, whose every round is like the others.
constexpr std::int64_t kBaselinePart = 8;
// Generations at most that these tokens come from, where texts end early.
constexpr int kMostGenerations = 12;
// Gammas of those generations: about what is chosen, and deep enough for its rates; passes of other
// rows are between them. Trees have as many levels, and so many children at each.
constexpr std::array<Gammas, 2> kProbedGammas = {{{5, 1}, {12, 6}}};
constexpr std::array<int, 2> kProbedChildren = {2, 6};
// Rows between which step times are interpolated, and repetitions, the least of which counts: as
// many as take kSteps_ms together.
constexpr std::array<int, 8> kStepRows = {1, 2, 4, 8, 16, 32, 64, 128};
constexpr int kMostStepRepetitions = 40;
constexpr double kSteps_ms = 150;
// Tuning prompts draw other numbers than any prompt that is measured.
constexpr std::uint32_t kPromptIndex = std::uint32_t{1} << 30;

Gammas usual_gammas(const RunConfig& c) {
  Gammas usual = gamma_space(c).given;
  if (c.auto_gamma || c.auto_tree) usual.gamma = Gammas{}.gamma;
  if (c.auto_inner_gamma) usual.inner_gamma = Gammas{}.inner_gamma;
  return usual;
}

// The budgets that may be tried, those like the usual one first.
std::vector<std::int64_t> budgets_in_order(const RunConfig& c) {
  const SpeculationOptions& s = c.speculation;
  if (!c.auto_budget) return {s.budget};
  const std::int64_t usual = usual_budget(c);
  std::vector<std::int64_t> budgets = budgets_to_try(c.prefill, s.chunk_size, usual);
  std::erase_if(budgets, [&](std::int64_t b) { return b > s.budget; });
  const auto distance = [usual](std::int64_t b) {
    return std::abs(std::log(static_cast<double>(b) / static_cast<double>(usual)));
  };
  std::ranges::stable_sort(
      budgets, [&](std::int64_t a, std::int64_t b) { return distance(a) < distance(b); });
  return budgets;
}

std::vector<std::int64_t> too_large_budgets(const RunConfig& c) {
  std::vector<std::int64_t> budgets =
      budgets_to_try(c.prefill, c.speculation.chunk_size, usual_budget(c));
  std::erase_if(budgets, [&](std::int64_t b) { return b <= c.speculation.budget; });
  return budgets;
}

void add_rows(std::set<int>& rows, int most) {
  rows.insert(most);
  for (const int r : kStepRows) {
    if (r <= most) rows.insert(r);
  }
}

}  // namespace

void ask(Engine& engine, const RunConfig& config, const TunedSetting& setting) {
  engine.set_gammas(gammas_of(setting));
  if (config.auto_tree) engine.set_tree(draft_of(setting));
}

GammaSpace gamma_space(const RunConfig& c) {
  GammaSpace space{c.speculation.gammas(),
                   c.speculation.gammas(),
                   {c.auto_gamma || c.auto_tree, c.auto_inner_gamma}};
  if (c.auto_tree) {
    const DraftTree& largest = *c.speculation.tree;
    space.tree = {.nodes = largest.nodes(), .depth = largest.depth()};
    space.tree_tokens = c.tree_tokens;
  }
  return space;
}

Tuner::Tuner(const RunConfig& config, std::int64_t context, bool own_prompts, Hooks hooks,
             TuningLimits limits)
    : config_(config),
      context_(context),
      own_prompts_(own_prompts),
      hooks_(std::move(hooks)),
      limits_(limits),
      space_(gamma_space(config)),
      order_(budgets_in_order(config)) {
  const bool several = config.auto_gamma || config.auto_inner_gamma || config.auto_tree;
  for (std::size_t i = 0; i < (several ? kProbedGammas.size() : 1); ++i) {
    Gammas g = space_.given;
    if (space_.chosen.gamma) g.gamma = std::min(g.gamma, kProbedGammas[i].gamma);
    if (config.auto_inner_gamma) {
      g.inner_gamma = std::min(g.inner_gamma, kProbedGammas[i].inner_gamma);
    }
    TunedSetting& probe = probed_.emplace_back(TunedSetting{{}, g.gamma, g.inner_gamma});
    if (!config.auto_tree) continue;
    const DraftTree comb = DraftTree::comb(g.gamma, kProbedChildren[i]);
    probe.tree.emplace(comb.parents().begin(), comb.parents().end());
  }
  for (const Method m : config.methods) tunings_[m].reset();
}

bool Tuner::is_tuned(const MethodSpec& m) const {
  if (config_.auto_method && m.speculates()) return true;
  return (space_.chosen.gamma && m.speculates()) || (config_.auto_inner_gamma && m.levels() > 1) ||
         (config_.auto_budget && m.speculates() && m.has_budget());
}

std::optional<std::int64_t> Tuner::budget() const {
  if (!config_.auto_budget) return std::nullopt;
  return best_;
}

void Tuner::use_prompt(Engine& engine, double spent_s, bool last) {
  if (chosen_) return;
  begin_ = Clock::now();
  spent_s_ += spent_s;
  if (!explore(engine)) return;
  ++prompts_;
  const double here_s = std::chrono::duration<double>(Clock::now() - begin_).count();
  exploring_s_ += here_s;
  const bool again = seconds() + spent_s + here_s < limits_.enough_s;
  if (!last && again && !config_.speculation.synthetic) {
    order_ = better_half(order_.front(), ranked(models()));
  } else {
    choose();
    if (!compare_with_defaults(engine)) return;
    for (auto& [method, tuning] : tunings_) {
      if (tuning) tuning->seconds = seconds();
    }
    chosen_ = true;
  }
  spent_s_ = seconds();
}

void Tuner::begin_parts(std::int64_t parts, std::int64_t generations) {
  part_ = 0;
  parts_ = parts;
  share_s_ = 2 * limits_.generating_s / static_cast<double>(std::max<std::int64_t>(1, generations));
}

bool Tuner::explore(Engine& engine) {
  const auto tuned =
      std::ranges::count_if(config_.methods, [this](Method m) { return is_tuned(spec_of(m)); });
  const std::int64_t generations = 1 + tuned * std::ssize(probed_);  // and the baseline
  begin_parts(std::ssize(order_) * (1 + generations), std::ssize(order_) * generations);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (stopped()) return false;
    const double here_s = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (i > 0 && exploring_s_ + here_s > limits_.enough_s) {
      if (prompts_ == 0) {
        cut_short_ = true;
        order_.resize(i);
      }
      break;
    }
    part_ = static_cast<std::int64_t>(i) * (1 + generations);
    begin_part();
    if (!set_budget(engine, order_[i]) || !explore(engine, candidates_[order_[i]])) return false;
  }
  return true;
}

bool Tuner::set_budget(Engine& engine, std::int64_t budget) {
  if (config_.auto_budget) engine.set_budget(budget);
  return !engine.prefill_methods(hooks_.prefill, hooks_.stop).interrupted;
}

// The full cache and the drafter do not depend on the budget.
void Tuner::measure_steps(Engine& engine, Candidate& candidate) {
  PerPass<std::set<int>> rows;
  rows[kFullPass].insert(1);
  for (const Method method : config_.methods) {
    const MethodSpec& m = spec_of(method);
    rows[m.proposer()].insert(1);
    for (int l = 0; l < m.levels(); ++l) {
      const bool trees = space_.tree && m.is_outermost(l);
      const int asked = trees ? space_.tree->nodes : m.step(l, space_.max);
      int most = asked + (l > 0 && !trees ? m.step(l - 1, space_.max) : 0) + 1;
      if (!trees) most = std::min(most, max_exact_rows(space_.max, config_.batch));
      // As many nodes of a level as there are in all, at most, are drafted from.
      if (trees && l == 0) add_rows(rows[m.proposer()], asked);
      std::set<int>& of = rows[m.verifier(l)];
      add_rows(of, most);
    }
  }
  for (const PassSpec& spec : kPassTable) {
    const Pass pass = spec.pass;
    const Candidate& first = candidates_.at(order_.front());
    if (!spec.has_budget && &first != &candidate) {
      candidate.steps[pass] = first.steps[pass];
      continue;
    }
    if (rows[pass].empty()) continue;
    const double about_ms = engine.pass_ms(pass, 1, 1);
    const int repetitions =
        std::clamp(static_cast<int>(kSteps_ms / std::max(about_ms, 1e-3)), 1, kMostStepRepetitions);
    for (const int r : rows[pass]) {
      if (stopped()) return;
      candidate.steps[pass].points.emplace_back(r, engine.pass_ms(pass, r, repetitions));
    }
  }
}

bool Tuner::explore(Engine& engine, Candidate& candidate) {
  if (candidate.steps[kFullPass].points.empty()) measure_steps(engine, candidate);
  if (stopped()) return false;
  const double step_s = candidate.steps[kFullPass].at(1) * 1e-3;
  const auto runs = static_cast<double>(order_.size() * config_.methods.size());
  probe_tokens_ = std::clamp(static_cast<std::int64_t>(limits_.generating_s / (runs * step_s)),
                             kLeastTokens, kMostTokens);
  const bool first = &candidate == &candidates_.at(order_.front());
  const auto probe = [&](const MethodSpec& m, std::size_t i, std::int64_t tokens) {
    std::vector<ProbeSums>& sums = candidate.probes[m.method];
    sums.resize(probed_.size());
    return generate(engine, m.method, probed_[i], tokens, [&](const RunMetrics& run) {
      sums[i].add(m, candidate.steps, run);
      candidate.outer[m.method].merge(run.levels.back());
      if (m.levels() > 1) candidate.inner[m.method].merge(run.levels.front());
    });
  };
  const MethodSpec& baseline = spec_of(kBaselineMethod);
  if (!generate(engine, kBaselineMethod, probed_.front(),
                std::max(kLeastTokens / 2, probe_tokens_ / kBaselinePart),
                [&](const RunMetrics& run) { baseline_.add(baseline, candidate.steps, run); })) {
    return false;
  }
  for (const Method method : config_.methods) {
    const MethodSpec& m = spec_of(method);
    if (!is_tuned(m) || (!first && !m.has_budget())) continue;
    for (std::size_t i = 0; i < probed_.size(); ++i) {
      if (!probe(m, i, probe_tokens_ / std::ssize(probed_))) return false;
    }
  }
  return true;
}

bool Tuner::generate(Engine& engine, Method method, const TunedSetting& setting,
                     std::int64_t tokens, const std::function<void(const RunMetrics&)>& use) {
  ask(engine, config_, setting);
  begin_part();
  const auto index = kPromptIndex + static_cast<std::uint32_t>(prompts_);
  const auto begin = Clock::now();
  bool late = false;
  for (int i = 0; tokens > 0 && i < kMostGenerations && !late; ++i) {
    bool some = false;  // a round is the least that tells anything
    const std::vector<RunMetrics> lanes = engine.generate(
        method, std::min(tokens, config_.gen_len), config_.seed + static_cast<std::uint64_t>(i),
        index, [&](auto&&...) { some = true; },
        [&] {
          late = some && std::chrono::duration<double>(Clock::now() - begin).count() > share_s_;
          return late || stopped();
        });
    if (stopped()) return false;
    for (const RunMetrics& run : lanes) {
      if (run.failed_at) throw_numeric("{}", not_finite(*run.failed_at));
      use(run);
    }
    tokens -= std::ssize(lanes.front().tokens);
  }
  return true;
}

MethodModel Tuner::model_of(const MethodSpec& m) const {
  MethodModel model{&m, {}, {.lanes = config_.batch}};
  std::vector<LevelCounters> outer;
  for (const auto& [budget, c] : candidates_) {
    if (c.outer.contains(m.method) && is_left(budget)) outer.push_back(c.outer.at(m.method));
  }
  pool_violators(outer);  // of those that have seen the same prompts
  auto pooled = outer.begin();
  for (const auto& [budget, c] : candidates_) {
    if (!c.outer.contains(m.method)) continue;
    BudgetModel b;
    if (m.has_budget()) b.budget = budget;
    b.steps = c.steps;
    b.probes = c.probes.at(m.method);
    const LevelCounters& its = is_left(budget) ? *pooled++ : c.outer.at(m.method);
    if (const auto& synthetic = config_.speculation.synthetic) {
      for (int l = 0; l < m.levels(); ++l) {
        const int asked = m.step(l, config_.speculation.gammas());
        b.acceptance.push_back({synthetic->of(m, l, asked)});
      }
      const double first = b.acceptance.back().rates.front();  // trees are of first children
      if (space_.tree && first > 0) b.children = ChildRates{{{first}}};
    } else {
      if (m.levels() > 1) b.acceptance.push_back(measured_acceptance(c.inner.at(m.method)));
      if (its.acceptance_vector) {
        b.children = measured_child_rates(config_.tree_vector ? *config_.tree_vector
                                                              : *its.acceptance_vector);
        AcceptanceCurve& first = b.acceptance.emplace_back();
        for (const auto& of_depth : b.children->by_depth) first.rates.push_back(of_depth.front());
      } else {
        b.acceptance.push_back(measured_acceptance(its));
      }
    }
    model.budgets.push_back(std::move(b));
  }
  model.calibrate(baseline_);
  return model;
}

std::vector<MethodModel> Tuner::models() const {
  std::vector<MethodModel> models;
  for (const Method method : config_.methods) {
    if (is_tuned(spec_of(method))) models.push_back(model_of(spec_of(method)));
  }
  return models;
}

// Of order_, best first.
std::vector<std::int64_t> Tuner::ranked(std::span<const MethodModel> models) const {
  std::vector<std::int64_t> budgets;
  const auto by = config_.auto_method ? RankedBy::kFastest : RankedBy::kAll;
  for (const std::size_t i : rank_budgets(models, space_, by)) {
    const auto candidate = std::next(candidates_.begin(), static_cast<std::ptrdiff_t>(i));
    if (is_left(candidate->first)) budgets.push_back(candidate->first);
  }
  return budgets;
}

bool Tuner::is_left(std::int64_t budget) const {
  return std::ranges::find(order_, budget) != order_.end();
}

void Tuner::choose() {
  const std::vector<MethodModel> all = models();
  best_ = ranked(all).front();
  const auto best =
      static_cast<std::size_t>(std::distance(candidates_.begin(), candidates_.find(best_)));
  double baseline_ms = 0;
  for (const double ms : baseline_.phase_ms) baseline_ms += ms;
  for (const MethodModel& model : all) {
    const MethodSpec& m = *model.method;
    std::optional<std::int64_t> budget;
    if (m.has_budget()) budget = config_.auto_budget ? usual_budget(config_) : order_.front();
    CaseTuning t = describe_choice(model, m.has_budget() ? best : 0, space_,
                                   setting_of(m, budget, usual_gammas(config_)), context_);
    if (!config_.auto_budget && !space_.chosen.gamma && !space_.chosen.inner_gamma) {
      t.defaults.reset();  // nothing is in the place of one
    }
    t.autoregressive_ms_per_token = baseline_ms / static_cast<double>(baseline_.tokens);
    t.prompts = prompts_;
    for (const BudgetModel& b : model.budgets) {
      for (const ProbeSums& probe : b.probes) t.tokens += probe.tokens;
    }
    if (config_.record.acceptance_vector && model.budgets[m.has_budget() ? best : 0].children) {
      const Candidate& from =
          m.has_budget() ? candidates_.at(best_) : candidates_.at(order_.front());
      t.acceptance_vector = {*from.outer.at(m.method).acceptance_vector};
    }
    t.own_prompts = own_prompts_;
    t.cut_short = cut_short_;
    if (config_.auto_budget && m.has_budget()) t.too_large = too_large_budgets(config_);
    tunings_[m.method] = std::move(t);
  }
  if (config_.auto_method) choose_method();
}

// Leaves the fastest alone, which says what the others would take.
void Tuner::choose_method() {
  std::vector<TriedMethod> tried;
  for (const auto& [method, t] : tunings_) {
    if (t) tried.push_back({to_string(method), t->chosen, t->predicted_ms_per_token});
  }
  std::ranges::stable_sort(tried, {}, &TriedMethod::ms_per_token);
  for (auto& [method, t] : tunings_) {
    if (!t) continue;
    if (to_string(method) == tried.front().method) {
      t->methods = tried;
    } else {
      t.reset();
    }
  }
}

// In turns, best, usual, usual, best, so that drift of the machine hits both.
bool Tuner::compare_with_defaults(Engine& engine) {
  constexpr std::array<bool, 4> kUsual = {false, true, true, false};
  std::map<Method, std::array<std::pair<double, double>, 2>> spent;  // ms and tokens
  const auto compared = std::ssize(kUsual) * std::ssize(tunings_);
  begin_parts(compared, compared);
  for (std::size_t i = 0; i < kUsual.size(); ++i) {
    for (const auto& [method, tuning] : tunings_) {
      if (!tuning || !tuning->defaults) continue;
      if (tuning->defaults->setting == tuning->chosen) continue;
      const TunedSetting& s = kUsual[i] ? tuning->defaults->setting : tuning->chosen;
      if (stopped() || !set_budget(engine, s.budget.value_or(best_))) {
        return false;
      }
      std::pair<double, double>& of = spent[method][kUsual[i] ? 1 : 0];
      const auto add = [&of](const RunMetrics& run) {
        of.first += run.decode_ms;
        of.second += static_cast<double>(run.tokens.size());
      };
      if (!generate(engine, method, s, probe_tokens_, add)) return false;
    }
  }
  double log_gain = 0;
  for (const auto& [method, of] : spent) {
    TuningDefaults& d = *tunings_[method]->defaults;
    d.best_measured_ms_per_token = of[0].first / of[0].second;
    d.measured_ms_per_token = of[1].first / of[1].second;
    log_gain += std::log(*d.measured_ms_per_token / *d.best_measured_ms_per_token);
  }
  if (log_gain < 0) overrule();
  if (config_.auto_budget) engine.set_budget(best_);
  return true;
}

// Methods share a budget, so that all of them get the defaults.
void Tuner::overrule() {
  for (auto& [method, tuning] : tunings_) {
    if (!tuning || !tuning->defaults) continue;
    const TunedSetting best = std::exchange(tuning->chosen, tuning->defaults->setting);
    if (tuning->defaults->measured_ms_per_token) tuning->overruled = best;
    tuning->predicted_ms_per_token = tuning->defaults->predicted_ms_per_token;
  }
  if (config_.auto_budget && candidates_.contains(usual_budget(config_))) {
    best_ = usual_budget(config_);
  }
}

}  // namespace triforce
