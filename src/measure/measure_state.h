// What a measurement has so far, and the result that follows from it: a pure function, so that
// tests can make up the measurements.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "measure/measure.h"
#include "measure/measure_parts.h"
#include "measure/prompt_record.h"
#include "measure/tuning_model.h"

namespace triforce {

// One method and what has been measured of it.
struct MethodState : MethodStart {
  // What it asks for. Its budget is that of all methods.
  TunedSetting asked() const {
    TunedSetting s{{}, gammas.gamma, gammas.inner_gamma};
    if (tuning) s.tree = tuning->chosen.tree;
    return s;
  }
  // What a level asks of the one below for each verification. nullopt: nothing.
  std::optional<DraftTree> draft(int level, const RunConfig& c) const {
    if (c.auto_tree && method->is_outermost(level)) return draft_of(asked());
    const DraftTree given = c.speculation.draft_of(*method, level);
    if (!given.is_chain()) return given;
    const int step = method->step(level, gammas);
    return step > 0 ? std::optional(DraftTree::chain(step)) : std::nullopt;
  }

  bool is_measured() const { return !passed_over.value_or(false); }

  const MethodSpec* method = nullptr;
  std::vector<MeasuredRun> runs;
  std::optional<double> top2_margin;  // where its stream first left the baseline's
  std::optional<CaseStatus> failed;
  std::string reason;  // of the failure
};

// A process that measured some of the prompts, and the read bandwidth that it began with.
struct MeasuredPart {
  std::string id;
  std::optional<double> read_gbs;
};

struct MeasurementState {
  std::vector<MethodState> methods;
  std::vector<PrefillMetrics> prefills;
  std::vector<AfterPrompt> after_prompts;  // as far as --record asks for it
  StepCurves steps;                        // empty curves: not measured
  // Of a batch: the baseline on its first prompt alone.
  std::optional<double> alone_ms_per_token;
  MemoryResult memory;
  GpuObservation gpu;
  std::optional<MachineLoad> load;
  std::optional<EnergySpent> energy;
  std::optional<double> read_gbs_after;
  std::int64_t longest_prompt = 0;  // tokens
  bool ended = false;               // false: an interim result
  bool timed_out = false, stopped = false;
  ExitCode first_error = ExitCode::kOk;
  std::string salt;  // of the run id
  // What began the case; nullopt: as the input says.
  std::optional<ResultContext> context;
  std::optional<std::int64_t> budget;  // chosen by auto, tokens
  std::vector<MeasuredPart> parts;     // in their order, of the prompts that have ended

  // The method the others are compared with; nullptr: there is none.
  const MethodState* baseline() const {
    const auto it =
        std::ranges::find_if(methods, [](const MethodState& m) { return m.method->is_baseline(); });
    return it == methods.end() ? nullptr : &*it;
  }
};

// "20260131T120000Z-1a2b3c4d": start of the run and a hash of the command line and `salt`.
std::string make_run_id(const ResultContext& context, const std::string& salt);

// Whether its times vary more than --max-noise allows.
bool is_noisy(const RunConfig& config, const CaseResult& c);

// Reads of `input` only what describes the run: the facts, data, plan, and the number of prompts.
RunResult build_result(const MeasureInput& input, const MeasurementState& state);

}  // namespace triforce
