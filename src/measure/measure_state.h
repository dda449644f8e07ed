// What a measurement has so far, and the result that follows from it: a pure function, so that
// tests can make up the measurements.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "measure/measure.h"
#include "measure/measure_parts.h"

namespace triforce {

// One method and what has been measured of it.
struct MethodState {
  const MethodSpec* method = nullptr;
  std::vector<MeasuredRun> runs;
  Gammas gammas;
  bool gammas_chosen = false;         // by `auto`
  std::optional<double> top2_margin;  // where its stream first left the baseline's
  std::optional<CaseStatus> failed;
  std::string reason;  // of the failure
};

struct MeasurementState {
  std::vector<MethodState> methods;
  std::vector<PrefillMetrics> prefills;
  std::vector<AfterPrompt> after_prompts;  // as far as --record asks for it
  StepCurves steps;                        // empty curves: not measured
  MemoryPlan plan;
  MemoryResult memory;
  GpuObservation gpu;
  std::int64_t longest_prompt = 0;  // tokens
  bool ended = false;               // false: an interim result
  bool timed_out = false, stopped = false;
  ExitCode first_error = ExitCode::kOk;
  std::string salt;  // of the run id
};

// Reads of `input` only what describes the run: config, context, data, params, model infos or
// weights, prompts' number.
RunResult build_result(const MeasureInput& input, const MeasurementState& state);

}  // namespace triforce
