#include "app/result.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "app/sample_result.h"

namespace triforce {
namespace {

JsonValue parsed(const std::string& text) {
  JsonLimits limits;
  limits.max_bytes = 1 << 24;
  return parse_json(text, "result", limits);
}

const JsonValue& at(const JsonValue& value, const std::string& path) {
  const JsonValue* v = &value;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    v = v->is_array() ? &v->items().at(static_cast<std::size_t>(std::stoi(key))) : v->find(key);
    if (v == nullptr) throw std::runtime_error("no " + path);
    begin = end + 1;
  }
  return *v;
}

TEST(Schema, HasEveryField) {
  const JsonValue json = parsed(to_json(sample_result()));
  EXPECT_EQ(at(json, "schema").as_string(), "triforce-bench.result/1");
  const char* const fields[] = {
      "run_id",
      "context.commit",
      "context.dirty",
      "context.build_type",
      "context.compiler",
      "context.backend",
      "context.cpu_model",
      "context.isa",
      "context.threads",
      "context.gpu_name",
      "context.sm",
      "context.driver",
      "context.cuda",
      "context.clocks",
      "context.throttle_reasons",
      "context.pcie",
      "context.measured_read_gbs",
      "context.measured_copy_gbs",
      "context.measured_h2d_gbs",
      "context.argv",
      "context.start",
      "context.end",
  };
  for (const char* field : fields) EXPECT_NO_THROW(at(json, field)) << field;
  const char* const case_fields[] = {
      "case_id",
      "name",
      "method",
      "status",
      "status_reason",
      "validity.comparable",
      "validity.reasons",
      "params",
      "model.target",
      "model.draft",
      "data.kind",
      "data.sha256",
      "data.n_prompts",
      "data.n_skipped",
      "timing.prefill_ms",
      "timing.retrieval_build_ms",
      "timing.ms_per_token.n",
      "timing.ms_per_token.mean",
      "timing.ms_per_token.median",
      "timing.ms_per_token.stddev",
      "timing.ms_per_token.min",
      "timing.ms_per_token.max",
      "timing.ms_per_token.p90",
      "timing.ms_per_token.p95",
      "timing.ms_per_token.p99",
      "timing.ms_per_token.ci95_low",
      "timing.ms_per_token.ci95_high",
      "timing.tokens_per_s",
      "timing.samples",
      "phases_ms_per_round.draft",
      "phases_ms_per_round.inner_verify",
      "phases_ms_per_round.outer_verify",
      "phases_ms_per_round.sampling",
      "phases_ms_per_round.cache_update",
      "phases_ms_per_round.rebuild",
      "phases_ms_per_round.host_gap",
      "acceptance",
      "speedup",
      "memory.planned",
      "memory.peak_device_bytes",
      "memory.peak_pinned_bytes",
      "memory.peak_host_bytes",
      "lossless.mode",
      "lossless.equal_to_baseline",
      "lossless.first_divergence",
      "lossless.top2_margin",
      "output.prompts",
  };
  // Also of the case that never ran: absent and not measured are different things.
  for (const JsonValue& c : at(json, "cases").items()) {
    for (const char* field : case_fields) EXPECT_NO_THROW(at(c, field)) << field;
  }
  const JsonValue& triforce = at(json, "cases.1");
  for (const char* field : {"acceptance.0.name",
                            "acceptance.0.rounds",
                            "acceptance.0.drafted",
                            "acceptance.0.accepted",
                            "acceptance.0.rejected",
                            "acceptance.0.emitted",
                            "acceptance.0.acceptance_rate",
                            "acceptance.0.alpha",
                            "acceptance.0.accepted_per_drafted",
                            "acceptance.0.mean_accepted_length",
                            "acceptance.0.rate_per_position",
                            "acceptance.0.histogram",
                            "speedup.baseline",
                            "speedup.value",
                            "speedup.ci95_low",
                            "speedup.ci95_high",
                            "speedup.predicted",
                            "model.target.arch",
                            "model.target.n_params",
                            "model.target.bytes",
                            "model.target.config_sha256",
                            "model.draft.random_seed",
                            "lossless.first_divergence.prompt",
                            "lossless.first_divergence.position",
                            "output.prompts.0.tokens",
                            "output.prompts.0.text",
                            "output.prompts.0.sha256"}) {
    EXPECT_NO_THROW(at(triforce, field)) << field;
  }
}

TEST(Schema, NotMeasuredIsNull) {
  RunResult r = sample_result();
  r.context.gpu_name.reset();
  r.context.clocks.reset();
  const JsonValue json = parsed(to_json(r));
  for (const char* field :
       {"cases.2.timing.ms_per_token.median", "cases.2.phases_ms_per_round.draft",
        "cases.2.memory.planned", "cases.0.speedup", "cases.0.timing.ms_per_token.p95",
        "cases.1.timing.ms_per_token.p99", "cases.0.lossless.equal_to_baseline", "context.gpu_name",
        "context.clocks", "cases.0.model.draft"}) {
    EXPECT_TRUE(at(json, field).is_null()) << field;
  }
}

TEST(Schema, NoNumberIsEverNaN) {
  RunResult r = sample_result();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CaseResult& c = r.cases[1];
  c.timing.ms_per_token.mean = nan;
  c.timing.tokens_per_s = std::numeric_limits<double>::infinity();
  c.timing.samples.resize(1);
  c.timing.samples[0].decode_ms = nan;
  c.traffic[0].passes_per_token = nan;
  (*c.phases_ms_per_round)[0] = nan;
  c.params.emplace_back("odd", nan);
  c.acceptance.push_back({});  // no rounds: all rates are 0 / 0
  r.context.clocks = ClockRange{nan, nan, nan};
  for (const std::string& text : {to_json(r), to_jsonl(r), to_csv(r), to_table(r)}) {
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_EQ(text.find("NaN"), std::string::npos);
    EXPECT_EQ(text.find(":inf"), std::string::npos);
    EXPECT_EQ(text.find(",inf"), std::string::npos);
  }
  const JsonValue json = parsed(to_json(r));
  EXPECT_TRUE(at(json, "cases.1.timing.tokens_per_s").is_null());
  EXPECT_TRUE(at(json, "cases.1.acceptance.2.acceptance_rate").is_null());
  EXPECT_TRUE(at(json, "cases.1.timing.samples.0.ms_per_token").is_null());
}

TEST(Schema, JsonlLinesStandAlone) {
  const std::string text = to_jsonl(sample_result());
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < text.size(); ++lines) {
    const std::size_t end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    const JsonValue line = parsed(text.substr(begin, end - begin));
    EXPECT_EQ(at(line, "schema").as_string(), kResultSchema);
    EXPECT_EQ(at(line, "context.backend").as_string(), "cpu avx2, 2 threads");
    EXPECT_NO_THROW(at(line, "timing.ms_per_token.median"));
    begin = end + 1;
  }
  EXPECT_EQ(lines, 3U);
}

TEST(Schema, TextOfATokenizerIsAlwaysUtf8) {
  RunResult r = sample_result();
  r.cases[0].output[0].text = "cut \xe2\x82";  // a token may end inside a character
  EXPECT_NO_THROW(parsed(to_json(r)));
}

TEST(Digest, OfTokensIsOfLittleEndianWords) {
  // printf '\x01\x00\x00\x00\x00\x01\x00\x00' | sha256sum
  const Token tokens[] = {1, 256};
  EXPECT_EQ(tokens_sha256(tokens),
            "242045e2f1bb37769b514f182fd91b3d215324cb57f187cced1e9c62921dbac3");
}

TEST(RunId, NamesTheStart) {
  const ResultContext c = sample_context();
  const std::string id = make_run_id(c, "1");
  EXPECT_EQ(id.substr(0, 17), "20260131T120000Z-");
  EXPECT_EQ(id.size(), 25U);
  EXPECT_NE(make_run_id(c, "2"), id);
}

}  // namespace
}  // namespace triforce
