// Results as a run writes them, whose parts agree with each other, for what compares them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "triforce/compare.h"

namespace triforce {

// What a made run is like. Two with the same numbers are what two runs of one build would be.
struct Made {
  int prompts = 4, repetitions = 8, rounds = 40;
  double ms = 2.0, noise = 0.004;  // per token; times differ with time_seed, tokens do not
  std::uint64_t time_seed = 1;
  double acceptance = 0.8;  // of each tested token
  std::uint64_t token_seed = 7;
  double watts = 0;      // while decoding; 0: no energy was read
  bool sampled = false;  // above temperature 0, where tokens need not be the baseline's
  bool varied = false;   // the same, and repetitions generate other tokens
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
  if (made.watts > 0) s.energy = ByDomain{1e-3 * made.watts * s.decode_ms, {}, {}};
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
  const bool sampled = made.sampled || made.varied;
  c.params = {{"temp", sampled ? 1.0 : 0.0},
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
    c.lossless.mode = sampled ? LosslessMode::kDistribution : LosslessMode::kTokens;
    if (!sampled) c.lossless.equal_to_baseline = true;
  }
  c.lossless.compared = c.lossless.equal_to_baseline ? made.prompts * made.repetitions : 0;
  c.timing.ms_per_token.n = std::int64_t{made.prompts} * made.repetitions;
  return c;
}

// Gives what follows from samples the value that does, as a run would have: how many there are, and
// whether the tokens are those of the baseline. For files that a test has changed.
inline void settle(RunResult& run) {
  const auto key = [](const Sample& s) { return std::tuple(s.warmup, s.prompt, s.repetition); };
  run.exit_code = ExitCode::kOk;
  const CaseResult& baseline = run.cases.front();
  for (CaseResult& c : run.cases) {
    c.timing.ms_per_token.n = std::count_if(c.timing.samples.begin(), c.timing.samples.end(),
                                            [](const Sample& s) { return !s.warmup; });
    if (c.lossless.mode != LosslessMode::kTokens) continue;
    std::int64_t compared = 0, equal = 0;
    for (const Sample& s : c.timing.samples) {
      for (const Sample& b : baseline.timing.samples) {
        if (s.warmup || key(s) != key(b)) continue;
        ++compared;
        equal += s.tokens_sha256 == b.tokens_sha256 ? 1 : 0;
      }
    }
    c.lossless.compared = compared;
    if (c.lossless.equal_to_baseline) c.lossless.equal_to_baseline = compared == equal;
    if (c.lossless.equal_to_baseline == false) run.exit_code = ExitCode::kNumeric;
  }
}
inline ResultFile settled(ResultFile file) {
  for (RunResult& run : file.results) settle(run);
  return file;
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

// As `run` has it for the cases above. temp and sinks decide tokens, by default 0 and 16.
inline CaseRules made_rules() {
  CaseRules rules;
  rules.decides = [](std::string_view param, const CaseResult& c) {
    return param == "temp" || (param == "sinks" && c.method != "ar");
  };
  rules.is_default = [](const Param& p, const CaseResult& /*c*/) {
    return p == Param{"temp", 0.0} || p == Param{"sinks", std::int64_t{16}};
  };
  rules.knows = [](std::string_view param) { return param != "of_another_build"; };
  rules.key = [decides = rules.decides](const CaseResult& c, const ResultContext& context,
                                        const ParamNames& left_out) {
    std::string key = c.method + context.isa + c.data.sha256.value_or("");
    if (c.target) key += c.target->weights_digest.value_or("");
    for (const auto& [name, value] : c.params) {
      if (decides(name, c) && !left_out.contains(name)) key += name + to_text(value);
    }
    return key;
  };
  rules.expected = [](const CaseResult& c) -> std::optional<ExpectedCase> {
    if (c.method == "unheard-of") return std::nullopt;
    if (c.method == "ar") return ExpectedCase{};
    const bool greedy = *find_param(c.params, "temp") == ParamValue(0.0);
    return ExpectedCase{2, true, greedy ? LosslessMode::kTokens : LosslessMode::kDistribution,
                        true};
  };
  return rules;
}

// Of settled files.
inline Comparison compare_made(const ResultFile& base, const ResultFile& other,
                               const CompareOptions& options = {}) {
  return compare_results(settled(base), settled(other), options, made_rules());
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
