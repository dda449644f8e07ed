// The gammas of a case, and what `auto` chose and from what, as results hold it (report.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "triforce/acceptance_vector.h"

namespace triforce {

struct CaseGammas {
  int gamma = 0, inner_gamma = 0;
  bool chosen = false;
};
void fields(auto& v, CaseGammas& g) {
  v("gamma", g.gamma, "tokens asked for per outer verification (the paper's gamma2)");
  v("inner_gamma", g.inner_gamma, "tokens asked for per inner verification (the paper's gamma1)");
  v("chosen", g.chosen, "chosen by auto from measured steps");
}

// Sizes of a method; null: it has no such size.
struct TunedSetting {
  std::optional<std::int64_t> budget;
  int gamma = 0;
  std::optional<int> inner_gamma;
  std::optional<std::vector<std::int16_t>> tree = {};  // of --tree auto; null: a chain
  bool operator==(const TunedSetting&) const = default;
};
void fields(auto& v, TunedSetting& s) {
  v("budget", s.budget, "tokens in the target's small cache; null: this method has none");
  v("gamma", s.gamma,
    "tokens asked for per outer verification; 0: do not speculate, the full cache's own passes are "
    "predicted to be faster");
  v("inner_gamma", s.inner_gamma,
    "tokens asked for per inner verification; 0: without the drafter; null: no inner level");
  v("tree", s.tree,
    "parents of the draft tree that is asked for, of as many levels as gamma says; null: a chain");
}

// The settings that a run without `auto` has, beside those chosen.
struct TuningDefaults {
  TunedSetting setting;
  double predicted_ms_per_token = 0;
  std::optional<double> measured_ms_per_token, best_measured_ms_per_token;
};
void fields(auto& v, TuningDefaults& d) {
  v("setting", d.setting, "default for each size that is auto, as given for the others");
  v("predicted_ms_per_token", d.predicted_ms_per_token, "predicted, ms");
  v("measured_ms_per_token", d.measured_ms_per_token,
    "measured on the last tuning prompt, ms; null: no setting was predicted to be faster");
  v("best_measured_ms_per_token", d.best_measured_ms_per_token,
    "the setting of least predicted time, measured there in turns with it, ms");
}

struct TuningPoint {
  std::int64_t context = 0;
  TunedSetting setting;
  double ms_per_token = 0;
  std::optional<double> outer_alpha, inner_alpha;
};
void fields(auto& v, TuningPoint& p) {
  v("context", p.context, "tokens of the prompt");
  v("setting", p.setting, "the sizes; the inner gamma is the best one of budget and gamma");
  v("predicted_ms_per_token", p.ms_per_token, "predicted, ms");
  v("outer_alpha", p.outer_alpha,
    "the paper's per-token rate that yields as many tokens a round as the rates measured by "
    "position; null: nothing is proposed");
  v("inner_alpha", p.inner_alpha, "of the inner level; null: nothing is proposed to it");
}

// The best tree of at most so many tokens, whatever it takes.
struct BestTreeResult {
  int nodes = 0;
  double tokens = 0;
};
void fields(auto& v, BestTreeResult& t) {
  v("nodes", t.nodes, "tokens of the tree, the last one before it left out");
  v("tokens_per_verification", t.tokens,
    "expected tokens of one verification, computed from the counted rates");
}

// One of the methods that --method auto chose from.
struct TriedMethod {
  std::string method;
  TunedSetting setting;
  double ms_per_token = 0;
};
void fields(auto& v, TriedMethod& m) {
  v("method", m.method, "its name");
  v("setting", m.setting, "the sizes of least predicted time");
  v("predicted_ms_per_token", m.ms_per_token, "predicted for them, ms");
}

struct CaseTuning {
  TunedSetting chosen;
  std::optional<TunedSetting> overruled;
  double predicted_ms_per_token = 0, autoregressive_ms_per_token = 0;
  std::optional<double> measured_ms_per_token, error_pct, speedup_error_pct;
  std::optional<TuningDefaults> defaults;
  double seconds = 0;
  std::int64_t prompts = 0, tokens = 0;
  bool own_prompts = true, cut_short = false;
  std::vector<std::int64_t> too_large;
  std::optional<AcceptanceVectorFile> acceptance_vector = {};
  std::vector<TuningPoint> surface;
  std::optional<std::vector<BestTreeResult>> best_trees = {};
  std::optional<std::vector<TriedMethod>> methods = {};

  // Over autoregressive decoding, measured on the same prompts in between.
  double predicted_speedup() const { return autoregressive_ms_per_token / predicted_ms_per_token; }
};
void fields(auto& v, CaseTuning& t) {
  v("chosen", t.chosen,
    "the settings with which the case was measured: of least predicted time, unless overruled");
  v("overruled", t.overruled,
    "the settings of least predicted time, where the defaults were measured to be faster on the "
    "tuning prompt, and so chosen for all methods of the run; null: it was not so");
  v("predicted_ms_per_token", t.predicted_ms_per_token, "predicted for them, ms");
  v("autoregressive_ms_per_token", t.autoregressive_ms_per_token,
    "of autoregressive decoding on the tuning prompts, ms, measured");
  v("measured_ms_per_token", t.measured_ms_per_token,
    "timing.ms_per_token.geometric_mean, again; null: not measured");
  v("error_pct", t.error_pct,
    "by how much the prediction is above what was measured, percent of the latter");
  v("speedup_error_pct", t.speedup_error_pct,
    "the same of the speedup: autoregressive_ms_per_token over predicted_ms_per_token, beside "
    "speedup.value; a machine whose speed changed between tuning and measuring changes error_pct, "
    "but hardly this; null: no baseline was measured");
  v("defaults", t.defaults,
    "what a run without auto has; null: its budget leaves nothing out of the prompt, or was not "
    "tried");
  v("seconds", t.seconds, "that tuning took, prefill of its prompts included");
  v("prompts", t.prompts,
    "tuning prompts, each of params.prefill tokens; each after the first was for the better half "
    "of the budgets that were left, and for the default");
  v("tokens", t.tokens, "generated on them by this method, comparisons with the defaults excepted");
  v("own_prompts", t.own_prompts,
    "whether none of them is measured afterwards; false: the data set has no more, and the first "
    "measured prompt was used");
  v("cut_short", t.cut_short, "whether the time for tuning ended before all budgets were tried");
  v("too_large", t.too_large, "budgets that were left out for want of memory, tokens");
  v("acceptance_vector", t.acceptance_vector,
    "how often children of drafted nodes were accepted on the tuning prompts, at the chosen "
    "budget; null: not recorded");
  v("surface", t.surface,
    "what was predicted: all budgets, those given up by what was known then, and the gammas that "
    "tell the shape; of a given gamma that alone");
  v("best_trees", t.best_trees,
    "of --tree auto, for powers of two; more than 128 tokens take part in no verification; null: "
    "not of --tree auto");
  v("methods", t.methods,
    "of --method auto, what was tried, the fastest first; that one is measured; null: the method "
    "was given");
}

}  // namespace triforce
