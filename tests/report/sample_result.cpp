#include "report/sample_result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <tuple>
#include <utility>

namespace triforce {

ResultContext sample_context() {
  ResultContext c;
  c.version = "0.1.0";
  c.commit = "0123456789abcdef0123456789abcdef01234567";
  c.dirty = true;
  c.build_type = "Release";
  c.compiler = "GNU 12.2.0";
  c.backend = "cpu avx2, 2 threads";
  c.cpu_model = "Example CPU";
  c.isa = "avx2";
  c.threads = 2;
  c.host_memory_bytes = 8'000'000'000;
  c.os = "Linux 6.1.0 x86_64";
  c.gpu_name = "Example GPU";
  c.sm = "sm_90";
  c.driver = "13.1";
  c.cuda = "13.0";
  c.clocks = ClockRange{1200, 1500, 1980};
  c.throttle_reasons = std::vector<std::string>{"sw_power_cap"};
  c.pcie = "gen5 x16";
  c.load = MachineLoad{8, 1.75, 0.125, 0, 1, 0.5};
  c.energy = RunEnergy{{{"processor", "RAPL (/sys/class/powercap)", {}, 16.0},
                        {"memory", {}, "/sys/class/powercap: no zone of it", {}},
                        {"gpu", "NVML energy counter", {}, 64.0}},
                       EnergySpent{{40, {}, 160}, {10, {}, 50}, {50, {}, 250}, {0.5, {}, 1.5}}};
  c.measured_read_gbs = 20.0;
  c.measured_read_gbs_after = 19.5;
  c.measured_copy_gbs = 18.0;
  c.measured_h2d_gbs = 2.5;
  c.measured_gemm_gflops = 800.0;
  c.hybrid_split = HybridSplit{2.25, 6.5, 7, 1};
  c.argv = {"triforce-bench", "run", "--name", "a \"b\""};
  c.start = "2026-01-31T12:00:00Z";
  c.end = "2026-01-31T12:00:30Z";
  return c;
}

LevelCounters sample_level(const char* name, std::vector<std::int64_t> rounds_of_six) {
  LevelCounters level;
  level.name = name;
  for (const std::int64_t kept : rounds_of_six) level.add_round(6, 6, kept);
  return level;
}

LevelIntervals sample_intervals() {
  LevelIntervals i;
  i.over = IntervalOver::kPrompts;
  i.acceptance_rate = {0.75, 0.9375};
  i.alpha = {0.8125, 0.96875};
  i.accepted_per_drafted = {0.5, 0.75};
  i.mean_accepted_length = {4.0, 5.5};
  const double none = std::numeric_limits<double>::quiet_NaN();  // tested on one prompt only
  i.rate_per_position = {{0.5, 0.5, 0.25, 0.125, 0.125, none}, {1, 1, 0.75, 1, 1, none}};
  i.unconditional_rate_per_position = {{0.5, 0.5, 0.25, 0.25, 0.25, 0.25},
                                       {1, 1, 0.75, 0.75, 0.75, 0.75}};
  return i;
}

// Of the passes that a method has, and of the phases after all passes.
PhaseTimes phase_times(std::initializer_list<std::pair<Pass, double>> passes,
                       const std::array<double, std::tuple_size_v<PhaseTimes> - kPassKinds>& rest) {
  PhaseTimes times;
  times.fill(NAN);
  for (const auto& [pass, ms] : passes) times[static_cast<std::size_t>(phase_of(pass))] = ms;
  std::ranges::copy(rest, times.begin() + kPassKinds);
  return times;
}

CaseResult sample_baseline() {
  CaseResult c;
  c.case_id = "00000000deadbeef";
  c.timing_id = "00000000feedbeef";
  c.name = c.method = "ar";
  c.chain = {"full"};
  c.params = {{"prefill", std::int64_t{8192}},
              {"gen_len", std::int64_t{4}},
              {"temp", 0.5},
              {"top_p", 1.0},
              {"top_k", std::int64_t{0}},
              {"acceptance", std::string("coupled")},
              {"seed", std::int64_t{42}},
              {"draft", std::monostate{}},
              {"ignore_eos", true},
              {"method", std::vector<std::string>{"ar", "triforce"}}};
  ModelInfo target;
  target.name = "target";
  target.arch = "LlamaForCausalLM";
  target.layers = 8;
  target.hidden = 256;
  target.vocab = 4096;
  target.heads = 8;
  target.kv_heads = 4;
  target.head_dim = 32;
  target.dtype = "bf16";
  target.n_params = 9'600'000;
  target.bytes = 19'200'000;
  target.config_sha256 = "aa11";
  target.weights_digest = "ee55";
  target.tokenizer_sha256 = "ff66";
  target.generation_eos = {2, 64};
  c.target = target;
  c.data = {"synthetic", "bb22", 4, 2};
  c.timing.fill_ms[kFullPass] = 1234.5;
  c.timing.prefill_operations = 617'250'000'000;
  c.timing.prefill_gflops = 500.0;
  c.timing.prefill_fraction_gemm = 0.625;
  c.timing.ms_per_token = {2, 4.0, {}, {}, {}, 4.0, 4.0, 0.5, 3.5, 4.5, {}, {}, {}};
  c.timing.preparation_ms = 1234.5;
  c.timing.end_to_end_ms = 1250.5;
  c.timing.tokens_per_s = 250.0;
  c.timing.noise_pct = 1.25;
  Sample warm;
  warm.batch = 0;
  warm.warmup = true;
  warm.seed = 42;
  warm.tokens = warm.rounds = 4;
  warm.decode_ms = 20;
  warm.energy = ByDomain{1, {}, 5};
  warm.tokens_sha256 = "cc33";
  c.timing.samples = {warm};
  c.phases_ms_per_round = phase_times({{Pass::kFull, 3.75}}, {0.2, 0, 0, 0.05});
  c.traffic = {{"full", 60'000'000, 1.0, 3.75, 16.0, 0.8, 0, {}, {}, {3.75}, 1.0, 1.2e9, 3.0, 0.8}};
  c.steps = {{"full", 1, 3.5, 3.5}};
  c.energy = CaseEnergy{{2, 1.5, {}, {}, {}, 1.5, 1.5, 0.125, 1.375, 1.625, {}, {}, {}},
                        {},
                        {},
                        {},
                        {0.25, {}, 1.25},
                        {0.1875, {}, 1},
                        375};
  c.cost = CaseCost{3.6, 4.0};
  c.copied = CopiedResult{4, 1, 64, 40};
  c.answered = AnsweredResult{4, 0.75, 0.25, 1, {{0, 2, 0.5}, {1, 2, 1}}};
  c.memory.planned =
      TaggedBytes{{19'300'000, 0, 32'000'000, 8'000'000, 0, 0, 0, 16'384, 100'000, 0, 300}};
  c.memory.peak =
      TaggedBytes{{19'300'000, 0, 32'000'000, 8'000'000, 0, 0, 0, 16'384, 100'000, 5'000, 300}};
  c.memory.peak_host_bytes = 59'421'384;
  c.memory.peak_process_bytes = 200'000'000;
  c.memory.near_kv_heads = 20;
  c.memory.bus_kv_heads = 8;
  c.memory.host_kv_heads = 4;
  c.lossless.mode = LosslessMode::kBaseline;
  c.output = {{0, 0, {5, 6, 7, 8}, {0, 0, 0, 0}, "one\ttwo", {3, 4, 4, 7}, "dd44"}};
  return c;
}

CaseResult sample_triforce() {
  CaseResult c = sample_baseline();
  c.case_id = "00000000cafecafe";
  c.timing_id = "00000000feedcafe";
  c.name = c.method = "triforce";
  c.chain = {"draft", "retrieval", "full"};
  c.validity = {false, {"random weights of the drafter"}, {"a note on the drafter"}};
  ModelInfo draft = *c.target;
  draft.weights_digest.reset();
  draft.tokenizer_sha256.reset();
  draft.generation_eos.reset();
  draft.name = "draft";
  draft.config_sha256.reset();
  draft.random_seed = 7;
  c.draft = draft;
  c.gammas = CaseGammas{6, 1, true};
  CaseTuning& t = c.tuning.emplace();
  t.chosen = {1024, 6, 1};
  t.predicted_ms_per_token = 1.875;
  t.autoregressive_ms_per_token = 4.125;
  t.measured_ms_per_token = 2.0;
  t.error_pct = -6.25;
  t.speedup_error_pct = 10;
  t.defaults = TuningDefaults{{4096, 6, 1}, 2.25, 2.5, 2.0};
  t.seconds = 12.5;
  t.prompts = 2;
  t.tokens = 768;
  t.too_large = {8192};
  for (const std::int64_t budget : {512, 1024, 4096}) {
    t.surface.push_back({8192, {budget, 0, 0}, 4.125, {}, {}});
    for (const int gamma : {4, 6, 8}) {
      const double ms = 1.875 + 0.125 * std::abs(gamma - 6) + 0.25 * (budget == 1024 ? 0 : 1);
      t.surface.push_back({8192, {budget, gamma, gamma / 4}, ms, 0.875, 0.5});
    }
  }
  c.timing.fill_ms[Pass::kRetrieval] = 56.75;
  c.timing.fill_ms[Pass::kDraft] = 120.0;
  c.timing.ms_per_token = {20,  2.0,  1.875, 2.125, IntervalOver::kPrompts, 2.0, 2.0, 0.25, 1.5,
                           2.5, 2.25, 2.5,   {}};
  c.timing.preparation_ms = 1411.25;
  c.timing.end_to_end_ms = 1419.25;
  c.timing.tokens_per_s = 500.0;
  c.timing.samples.clear();
  c.phases_ms_per_round = phase_times(
      {{Pass::kFull, 4.0}, {Pass::kRetrieval, 3.0}, {Pass::kDraft, 1.0}}, {1.0, 0.5, 0, 0.5});
  c.traffic = {
      {"draft", 2'000'000, 1.5, 0.1, 20.0, 1.0, 0, {}, {}},
      {"retrieval", 24'000'000, 1.25, 1.5, 16.0, 0.8, 0, {}, {}, {}, 2.0},
      {"full", 60'000'000, 0.25, 4.0, 15.0, 0.75, 8'000'000, 2.0, 0.8, {}, 7.0, 2.8e9, 3.5, 0.875}};
  c.steps = {{"draft", 1, 0.0625, 0.0625}, {"retrieval", 2, 1.25, 1.125}, {"full", 7, 4.0, 3.5}};
  LevelCounters inner;
  inner.name = "inner";
  for (int i = 0; i < 8; ++i) inner.add_round(1, 1, i % 2);
  c.acceptance = {LevelResult{inner, 1.5, {}},
                  LevelResult{sample_level("outer", {6, 2}), 4.75, sample_intervals()}};
  c.speedup = Speedup{"ar", 2.0,   1.875, 2.125,  IntervalOver::kPrompts,
                      2.5,  0.875, 0.75,  0.9375, std::int64_t{89}};
  c.batch = BatchResult{2, 4.5, 2.25};
  c.energy = CaseEnergy{
      {20, 0.75, 0.625, 0.875, IntervalOver::kPrompts, 0.75, 0.75, 0.125, 0.5, 1, 0.875, 1, {}},
      2.0,
      1.75,
      2.25,
      {0.125, {}, 0.625},
      {0.09375, {}, 0.5},
      375};
  c.cost = CaseCost{3.6, 2.0};
  c.recovery = RecoveryResult{
      10,
      0.5,
      0.375,
      0.625,
      IntervalOver::kPrompts,
      0.75,
      {0.25, 0.25, 0.75, 0.75},
      {{0, 2, 0.75}, {1, 8, 0.4375}},
      {{0, 0, 2, 0.75, {0.5, 0.5, 1.0, 1.0}}, {4, 7, 8, 0.4375, {0.1875, 0.1875, 0.6875, 0.6875}}}};
  c.lossless = {LosslessMode::kTokens, true, false, 5, Divergence{0, 3, 2, 7, 9}, {}, {}};
  c.output[0].origins = {2, 0, 1, 2};
  c.after_prompt = {{0, {{{{0, 7}, {0, 3}}, {{0, 5}, {0, 1}}}}, {{5, 9}}, {{0.75, 0.25}}},
                    {1, {{{{0}, {2}}, {{1}, {0}}}}, {}, {}}};
  return c;
}

CaseResult sample_failure() {
  CaseResult c;
  c.case_id = "0000000000000bad";
  c.name = c.method = "retrieval";
  c.chain = {"retrieval", "full"};
  c.status = CaseStatus::kOom;
  c.status_reason = "out of memory: kv_retrieval needs 1000 bytes,\nfound 10";
  c.validity = {false, {"status oom"}, {}};
  c.steps = {{"retrieval", 1, {}, {}}, {"full", 1, {}, {}}};
  c.lossless.mode = LosslessMode::kTokens;
  return c;
}

RunResult sample_result() {
  RunResult r;
  r.run_id = "20260131T120000Z-12345678";
  r.context = sample_context();
  r.cases = {sample_baseline(), sample_triforce(), sample_failure()};
  r.exit_code = ExitCode::kNumeric;
  return r;
}

}  // namespace triforce
