// Baselines that several cases of a sweep compare themselves with.
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "measure/measure_parts.h"

namespace triforce {

// Generations of the baseline by measurements of the same prompts, seed and gen_len. Beside these
// only the sampling decides what they are; speculation has no part in them.
class SharedBaselines {
 public:
  // nullptr: none like it has been added.
  const MeasuredRun* find(const SpeculationOptions& options, int prompt, int repetition,
                          bool warmup) const {
    const auto it = runs_.find(key_of(options, prompt, repetition, warmup));
    return it == runs_.end() ? nullptr : &it->second;
  }
  // `run_id`: of the measurement that generated it.
  void add(const SpeculationOptions& options, const MeasuredRun& run, std::string run_id) {
    MeasuredRun& kept =
        runs_.emplace(key_of(options, run.prompt, run.repetition, run.warmup), run).first->second;
    kept.generated_in = std::move(run_id);
  }

 private:
  using Key = std::tuple<float, float, int, Acceptance, bool, int, int, bool>;
  static Key key_of(const SpeculationOptions& o, int prompt, int repetition, bool warmup) {
    const SamplingParams& s = o.sampling;
    return {s.temperature, s.top_p, s.top_k,    o.acceptance,
            o.ignore_eos,  prompt,  repetition, warmup};
  }
  std::map<Key, MeasuredRun> runs_;
};

}  // namespace triforce
