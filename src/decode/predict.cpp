#include "triforce/predict.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/piecewise_linear.h"
#include "core/rounding.h"
#include "triforce/decode.h"
#include "triforce/error.h"

namespace triforce {
namespace {

// probability[n]: of n tokens.
using TokenCounts = std::vector<double>;

double mean(const TokenCounts& counts) {
  double sum = 0;
  for (std::size_t n = 0; n < counts.size(); ++n) sum += static_cast<double>(n) * counts[n];
  return sum;
}

// probability[n]: that the most of `lanes` lanes is n, each of which has `counts`.
TokenCounts most_of(TokenCounts counts, int lanes) {
  if (lanes == 1) return counts;
  double below = 0, upto = 0;
  for (double& c : counts) {
    upto += c;
    const double all = std::pow(std::min(upto, 1.0), lanes);
    c = all - below;
    below = all;
  }
  return counts;
}

struct Tokens {
  TokenCounts counts;  // of a lane
  double ms = 0;       // on average, of all lanes together
};

class Loop {
 public:
  Loop(const MethodSpec& method, const StepCurves& steps,
       std::span<const AcceptanceCurve> acceptance, const Gammas& gammas, const LoopCosts& costs)
      : method_(method), steps_(steps), acceptance_(acceptance), gammas_(gammas), costs_(costs) {}

  RoundForecast round() const {
    const Tokens root = method_.levels() == 0 ? proposed(0, 1) : yielded(method_.levels() - 1);
    const double tokens = mean(root.counts);
    return {root.ms + costs_.per_round_ms + tokens * costs_.per_token_ms, tokens};
  }

  double draft_ms(int n) const { return proposed(method_.levels() - 1, n).ms; }

 private:
  // One verification by `level`, and what comes of it.
  Tokens yielded(int level) const {
    const Tokens draft = proposed(level, method_.step(level, gammas_));
    const StepCurve& pass = steps_[method_.verifier(level)];
    Tokens t{TokenCounts(draft.counts.size() + 1, 0.0), draft.ms};
    const TokenCounts longest = most_of(draft.counts, costs_.lanes);
    for (std::size_t n = 0; n < draft.counts.size(); ++n) {
      const int proposals = static_cast<int>(n);
      if (longest[n] != 0) t.ms += longest[n] * pass_ms(pass, proposals + 1);
      if (draft.counts[n] == 0) continue;
      double reached = draft.counts[n];
      for (int i = 0; i < proposals; ++i) {
        const double rate = acceptance_[static_cast<std::size_t>(level)].at(i);
        t.counts[static_cast<std::size_t>(i) + 1] += reached * (1 - rate);
        reached *= rate;
      }
      t.counts[n + 1] += reached;
    }
    return t;
  }
  // What stands below `level` when it is asked for n tokens.
  Tokens proposed(int level, int n) const {
    Tokens t{TokenCounts(static_cast<std::size_t>(n) + 1, 0.0), 0};
    if (n == 0 || level == 0) {
      const double offered = n == 0 || acceptance_.empty() ? 1 : acceptance_.front().offered;
      t.counts.front() = 1 - offered;
      t.counts.back() += offered;
      t.ms = std::min(n, method_.looks_up() ? 1 : n) * pass_ms(steps_[method_.proposer()], 1);
      return t;
    }
    const Tokens round = yielded(level - 1);
    const auto asked = static_cast<std::size_t>(n);
    t.counts.resize(asked + round.counts.size() - 1, 0.0);
    if (costs_.lanes > 1) {
      t.ms = add_rounds_of_lanes(round.counts, asked, t.counts) * round.ms;
      return t;
    }
    // Of one lane it does not matter when a round is its last, which takes fewer steps.
    std::vector<double> visits(asked, 0.0);  // how often it has i tokens and goes on
    visits[0] = 1;
    double rounds = 0;
    for (std::size_t i = 0; i < asked; ++i) {
      rounds += visits[i];
      for (std::size_t y = 1; y < round.counts.size(); ++y) {
        (i + y < asked ? visits[i + y] : t.counts[i + y]) += visits[i] * round.counts[y];
      }
    }
    t.ms = rounds * round.ms;
    return t;
  }
  // Rounds until every lane has `asked` tokens, on average. `counts` gets those of a lane.
  double add_rounds_of_lanes(const TokenCounts& round, std::size_t asked,
                             TokenCounts& counts) const {
    constexpr double kNever = 1e-12;
    std::vector<double> has(asked, 0.0), next(asked);  // i tokens after so many rounds
    has[0] = 1;
    double rounds = 0, goes_on = 1;
    while (goes_on > kNever) {
      rounds += 1 - std::pow(1 - goes_on, costs_.lanes);
      std::ranges::fill(next, 0.0);
      for (std::size_t i = 0; i < asked; ++i) {
        if (has[i] == 0) continue;
        for (std::size_t y = 1; y < round.size(); ++y) {
          (i + y < asked ? next[i + y] : counts[i + y]) += has[i] * round[y];
        }
      }
      has.swap(next);
      goes_on = std::min(1.0, std::accumulate(has.begin(), has.end(), 0.0));
    }
    return rounds;
  }
  double pass_ms(const StepCurve& curve, int rows) const {
    return predicted_pass_ms(curve, rows, gammas_, costs_);
  }

  const MethodSpec& method_;
  const StepCurves& steps_;
  std::span<const AcceptanceCurve> acceptance_;
  Gammas gammas_;
  const LoopCosts& costs_;
};

bool predictable(const MethodSpec& method, const StepCurves& steps,
                 std::span<const AcceptanceCurve> acceptance) {
  if (acceptance.size() != static_cast<std::size_t>(method.levels())) return false;
  const auto finite = [](const AcceptanceCurve& a) {
    return !a.rates.empty() && std::isfinite(a.offered) &&
           std::ranges::all_of(a.rates, [](double rate) { return std::isfinite(rate); });
  };
  return std::ranges::all_of(method.passes(), [&](Pass p) { return !steps[p].points.empty(); }) &&
         std::ranges::all_of(acceptance, finite);
}

}  // namespace

double StepCurve::at(double rows) const { return piecewise_linear<int>(points, rows); }

double AcceptanceCurve::at(int i) const {
  TF_CHECK(!rates.empty() && i >= 0);
  return rates[std::min(static_cast<std::size_t>(i), rates.size() - 1)];
}

AcceptanceCurves constant_acceptance(std::span<const double> alphas) {
  AcceptanceCurves curves;
  for (const double alpha : alphas) curves.push_back({{alpha}});
  return curves;
}

std::optional<RoundForecast> predicted_round(const MethodSpec& method, const StepCurves& steps,
                                             std::span<const AcceptanceCurve> acceptance,
                                             const Gammas& gammas, const LoopCosts& costs) {
  if (!predictable(method, steps, acceptance)) return std::nullopt;
  return Loop(method, steps, acceptance, gammas, costs).round();
}

std::optional<double> predicted_draft_ms(const MethodSpec& method, const StepCurves& steps,
                                         std::span<const AcceptanceCurve> acceptance,
                                         const Gammas& gammas, int n, const LoopCosts& costs) {
  if (!predictable(method, steps, acceptance)) return std::nullopt;
  return Loop(method, steps, acceptance, gammas, costs).draft_ms(n);
}

double predicted_pass_ms(const StepCurve& step, int rows, const Gammas& gammas,
                         const LoopCosts& costs) {
  double ms = rows * costs.per_row_ms + costs.per_pass_ms;
  const int most = max_exact_rows(gammas, costs.lanes);
  for (; rows > most; rows -= most) ms += step.at(most);
  return ms + step.at(rows);
}

std::optional<double> predicted_ms_per_token(const MethodSpec& method, const StepCurves& steps,
                                             std::span<const double> alphas, const Gammas& gammas,
                                             const LoopCosts& costs) {
  const auto round = predicted_round(method, steps, constant_acceptance(alphas), gammas, costs);
  return round ? std::optional(round->ms_per_token()) : std::nullopt;
}

std::optional<Gammas> choose_gammas(const MethodSpec& method, const StepCurves& steps,
                                    std::span<const AcceptanceCurve> acceptance, const Gammas& max,
                                    const Gammas& given, const GammaChoice& chosen,
                                    const LoopCosts& costs) {
  if (!predictable(method, steps, acceptance)) return std::nullopt;
  const bool search_inner = chosen.inner_gamma && method.levels() > 1;
  const bool search_outer = chosen.gamma && method.speculates();
  Gammas best = given;
  double best_ms = INFINITY;
  for (int g = search_outer ? 0 : given.gamma; g <= (search_outer ? max.gamma : given.gamma); ++g) {
    const int most = g == 0 ? 0 : max.inner_gamma;  // nothing is asked of the inner level
    for (int k = search_inner ? 0 : given.inner_gamma;
         k <= (search_inner ? most : given.inner_gamma); ++k) {
      const double ms = Loop(method, steps, acceptance, {g, k}, costs).round().ms_per_token();
      if (ms < best_ms) {
        best_ms = ms;
        best = {g, k};
      }
    }
  }
  return best;
}

std::vector<std::int64_t> budgets_to_try(std::int64_t prefill, int chunk_size, std::int64_t usual) {
  constexpr int kTried = 6;
  const auto whole = [&](std::int64_t tokens) {
    return round_up(tokens, std::int64_t{chunk_size});
  };
  const std::int64_t least = whole(std::max<std::int64_t>(kLeastTriedBudget, 2 * chunk_size));
  std::vector<std::int64_t> budgets;
  auto power = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(prefill / 4, 1))));
  for (int i = 0; i < kTried; ++i, power /= 2) {
    if (whole(power) >= least && whole(power) < prefill) budgets.push_back(whole(power));
  }
  if (whole(usual) < prefill && whole(usual) >= least) budgets.push_back(whole(usual));
  if (budgets.empty()) budgets.push_back(least);
  std::ranges::sort(budgets);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

}  // namespace triforce
