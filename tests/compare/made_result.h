// Results as a run writes them, whose parts agree with each other, for what compares them.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "triforce/compare.h"

namespace triforce {

// What a made run is like. Two with the same numbers are what two runs of one build would be.
struct Made {
  int prompts = 4, repetitions = 8, rounds = 40;
  double ms = 2.0, noise = 0.004;  // per token; times differ with time_seed, tokens do not
  std::uint64_t time_seed = 1;
  double acceptance = 0.8;  // of each tested token
  std::uint64_t token_seed = 7;
  bool varied = false;  // repetitions generate other tokens, as above temperature 0
};

inline double made_uniform(std::mt19937_64& engine) {
  return (double(engine() >> 11U) + 0.5) * 0x1p-53;
}

inline LevelCounters made_level(const char* name, int rounds, double rate,
                                std::mt19937_64& engine) {
  LevelCounters level;
  level.name = name;
  for (int r = 0; r < rounds; ++r) {
    int kept = 0;
    while (kept < 6 && made_uniform(engine) < rate) ++kept;
    level.add_round(6, 6, kept);
  }
  return level;
}

inline Sample made_sample(const Made& made, int prompt, int repetition, std::int64_t n_tokens,
                          std::mt19937_64& times) {
  Sample s;
  s.prompt = prompt;
  s.repetition = repetition;
  s.seed = 42 + std::uint64_t(repetition);
  s.tokens = n_tokens;
  s.rounds = made.rounds;
  const double spread = 1 + made.noise * std::sqrt(12.0) * (made_uniform(times) - 0.5);
  s.decode_ms = made.ms * (1 + 0.3 * prompt) * spread * double(n_tokens);
  return s;
}

inline std::vector<Token> made_tokens(std::mt19937_64& engine, std::size_t n) {
  std::vector<Token> tokens(n);
  for (Token& t : tokens) t = Token(engine() % 1000);
  return tokens;
}

inline CaseResult made_case(const std::string& method, const Made& made) {
  CaseResult c;
  c.case_id = method + "-0123456789";
  c.timing_id = c.case_id + "-here";
  c.name = c.method = method;
  c.params = {{"temp", made.varied ? 1.0 : 0.0},
              {"repetitions", std::int64_t{made.repetitions}},
              {"json", std::string("x.json")}};
  ModelInfo target;
  target.name = "target";
  target.dtype = "f32";
  target.weights_digest = "aa11";
  c.target = target;
  c.data = {"synthetic", "bb22", made.prompts, 0};
  c.lossless.mode = LosslessMode::kBaseline;
  std::mt19937_64 times(made.time_seed);
  const bool speculative = method != "ar";
  if (speculative) c.acceptance.resize(2);
  for (int p = 0; p < made.prompts; ++p) {
    for (int r = -1; r < made.repetitions; ++r) {
      std::mt19937_64 engine(made.token_seed + std::uint64_t(p) * 1000 +
                             (made.varied ? std::uint64_t(r + 1) : 0));
      const std::vector<Token> tokens = made_tokens(engine, 32);
      Sample s = made_sample(made, p, std::max(r, 0), std::ssize(tokens), times);
      s.warmup = r < 0;
      s.tokens_sha256 = tokens_sha256(tokens);
      if (speculative) {
        s.levels = {made_level("inner", 2 * made.rounds, made.acceptance, engine),
                    made_level("outer", made.rounds, made.acceptance, engine)};
      }
      if (!s.warmup) {
        for (std::size_t l = 0; l < s.levels.size(); ++l) c.acceptance[l].merge(s.levels[l]);
      }
      if (r == 0) c.output.push_back({p, 0, tokens, {}, "", {}, s.tokens_sha256});
      c.timing.samples.push_back(std::move(s));
    }
  }
  if (speculative) {
    c.acceptance[0].name = "inner";
    c.acceptance[1].name = "outer";
    c.lossless.mode = made.varied ? LosslessMode::kDistribution : LosslessMode::kTokens;
    if (!made.varied) c.lossless.equal_to_baseline = true;
  }
  return c;
}

inline ResultFile made_file(const std::string& name, const Made& made) {
  RunResult run;
  run.run_id = name + "-run";
  run.context.commit = "0123456789abcdef0123456789abcdef01234567";
  run.context.dirty = true;
  run.context.cpu_model = "Example CPU";
  run.context.backend = "cpu avx2, 2 threads";
  run.context.isa = "avx2";
  run.cases = {made_case("ar", made), made_case("triforce", made)};
  return {name, {run}};
}

// That the option decides tokens: as `run` has it for those above.
inline bool made_decides(std::string_view param, const std::string& /*method*/) {
  return param == "temp";
}

inline Comparison compare_made(const ResultFile& base, const ResultFile& other,
                               const CompareOptions& options = {}) {
  return compare_results(base, other, options, made_decides);
}

inline const MetricComparison* find_metric(const Comparison& c, std::size_t which,
                                           const std::string& metric) {
  for (const MetricComparison& m : c.cases.at(which).metrics) {
    if (m.metric == metric) return &m;
  }
  return nullptr;
}

inline constexpr std::size_t kAr = 0, kTriforce = 1;

// That the row says so, with `says` in its reason.
inline void expect_metric(const Comparison& c, std::size_t which, const std::string& metric,
                          Verdict verdict, Outcome outcome, const std::string& says = "") {
  const MetricComparison* m = find_metric(c, which, metric);
  ASSERT_NE(m, nullptr) << metric;
  EXPECT_STREQ(to_string(m->verdict), to_string(verdict)) << metric << ": " << m->reason;
  EXPECT_STREQ(to_string(m->outcome), to_string(outcome)) << metric << ": " << m->reason;
  EXPECT_NE(m->reason.find(says), std::string::npos) << m->reason;
}

// What another run of the same build is.
inline Made other_times(Made made = {}) {
  made.time_seed += 1000;
  return made;
}

}  // namespace triforce
