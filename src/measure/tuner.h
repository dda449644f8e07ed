// What `auto` does before a measurement: single passes and short generations on tuning prompts,
// from which the settings of least predicted time follow (tuning_model.h), and those beside the
// defaults.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "measure/tuning_model.h"
#include "options/config.h"
#include "triforce/decode.h"
#include "triforce/report.h"

namespace triforce {

// Seconds that are spent on the generations of one prompt, about and at most twice; and after which
// no other budget or prompt is begun, prefills of the target not counted: without them nothing can
// be known. A generation ends with the round in which its share is spent, so the least that is
// spent is one round of each method at each of its gammas.
struct TuningLimits {
  double generating_s = 15, enough_s = 45;
};

// Prompts that are enough, and one of them where acceptance is simulated.
inline constexpr int kTuningPrompts = 3;

class Tuner {
 public:
  struct Hooks {
    PrefillProgress prefill;
    // Before each of the current prompt's parts: single passes, a generation.
    std::function<void(std::int64_t done, std::int64_t total)> step;
    StopRequested stop;
  };
  // `context`: tokens of the prompts. own_prompts: none of them is measured afterwards.
  Tuner(const RunConfig& config, std::int64_t context, bool own_prompts, Hooks hooks,
        TuningLimits limits = {});

  // The engine's context holds a tuning prompt that no call saw before; `spent_s` is what that
  // took. Measures and gives up the worse half of the budgets or, on the last prompt or when time
  // is up, chooses, compares with the defaults, which are chosen instead if they are faster, and
  // leaves the engine with the chosen budget, its methods not prefilled. Does nothing once chosen.
  // Throws as Engine.
  void use_prompt(Engine& engine, double spent_s, bool last);
  bool chosen() const { return chosen_; }
  // Of a chosen one. nullopt: no size of the method was left to auto.
  const std::optional<CaseTuning>& of(Method method) const { return tunings_.at(method); }
  // Tokens; nullopt: it was given.
  std::optional<std::int64_t> budget() const;
  // Of a chosen one: whether the method was tried, and another is predicted to be faster.
  bool is_passed_over(Method method) const {
    return is_tuned(spec_of(method)) && !tunings_.at(method);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Candidate {
    StepCurves steps;  // of all passes that run
    std::map<Method, LevelCounters> outer, inner;
    std::map<Method, std::vector<ProbeSums>> probes;  // one of each of probed_
  };
  bool is_tuned(const MethodSpec& method) const;
  bool explore(Engine& engine);
  bool explore(Engine& engine, Candidate& candidate);
  void measure_steps(Engine& engine, Candidate& candidate);
  std::vector<MethodModel> models() const;
  MethodModel model_of(const MethodSpec& method) const;
  std::vector<std::int64_t> ranked(std::span<const MethodModel> models) const;
  bool is_left(std::int64_t budget) const;
  void choose();
  void choose_method();
  bool compare_with_defaults(Engine& engine);
  void overrule();
  bool set_budget(Engine& engine, std::int64_t budget);
  // At least `tokens` of them unless the text or its share_s_ of time ends; false: a stop was
  // requested.
  bool generate(Engine& engine, Method method, const TunedSetting& setting, std::int64_t tokens,
                const std::function<void(const RunMetrics&)>& use);
  bool stopped() const { return hooks_.stop && hooks_.stop(); }
  // `generations` of the time for generating are to come, in `parts`.
  void begin_parts(std::int64_t parts, std::int64_t generations);
  void begin_part() { hooks_.step(part_++, parts_); }
  double seconds() const {
    return spent_s_ + std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  const RunConfig& config_;
  std::int64_t context_;
  bool own_prompts_;
  Hooks hooks_;
  TuningLimits limits_;
  GammaSpace space_;
  std::vector<TunedSetting> probed_;
  std::vector<std::int64_t> order_;               // budgets that may be chosen, the usual one first
  std::map<std::int64_t, Candidate> candidates_;  // those tried, by budget
  ProbeSums baseline_;
  std::map<Method, std::optional<CaseTuning>> tunings_;
  std::int64_t best_ = 0;          // budget, once chosen
  std::int64_t probe_tokens_ = 0;  // of one generation on the current prompt
  std::int64_t prompts_ = 0;
  std::int64_t part_ = 0, parts_ = 0;
  double share_s_ = 0;      // of one generation, most
  double spent_s_ = 0;      // on other prompts, and on prefills
  double exploring_s_ = 0;  // without prefills of the target
  Clock::time_point begin_{};
  bool cut_short_ = false, chosen_ = false;
};

// Later generations are asked for with this setting, whose budget is set otherwise.
void ask(Engine& engine, const RunConfig& config, const TunedSetting& setting);
// The gammas that are tried before they are chosen, within those that config allows.
GammaSpace gamma_space(const RunConfig& config);

}  // namespace triforce
