// Runs that nobody measured, for tests of what is made of measurements.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "measure/measure_parts.h"

namespace triforce {

// A timed run of 10 tokens in 10 * ms.
inline MeasuredRun run_of(int prompt, int repetition, double ms, std::vector<Token> tokens = {}) {
  MeasuredRun r;
  r.prompt = prompt;
  r.repetition = repetition;
  r.seed = 42 + static_cast<std::uint64_t>(repetition);
  r.metrics.tokens = tokens.empty() ? std::vector<Token>(10, 1) : std::move(tokens);
  r.metrics.decode_ms = ms * static_cast<double>(r.metrics.tokens.size());
  r.metrics.rounds = static_cast<std::int64_t>(r.metrics.tokens.size());
  return r;
}

inline MeasuredRun warmup_of(double ms) {
  MeasuredRun r = run_of(0, 0, ms);
  r.warmup = true;
  return r;
}

inline RunMetrics triforce_metrics() {
  RunMetrics m;
  m.tokens.assign(20, 1);
  m.rounds = 4;
  LevelCounters inner, outer;
  inner.name = "inner";
  outer.name = "outer";
  for (int i = 0; i < 24; ++i) inner.add_round(1, 1, i % 2);
  for (int i = 0; i < 4; ++i) outer.add_round(6, 6, 5);
  m.levels = {inner, outer};
  const auto spend = [&](Phase phase, double ms) {
    m.phase_ms[static_cast<std::size_t>(phase)] = ms;
  };
  spend(phase_of(Pass::kFull), 16);
  spend(phase_of(Pass::kRetrieval), 12);
  spend(phase_of(Pass::kDraft), 2.4);
  spend(Phase::kSampling, 4);
  spend(Phase::kCacheUpdate, 2);
  spend(Phase::kHostGap, 1.6);
  m.decode_ms = 38;
  return m;
}

}  // namespace triforce
