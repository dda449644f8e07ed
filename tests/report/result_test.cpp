// Result files: what is written reads back, and nothing else is accepted.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "report/golden.h"
#include "report/mutator.h"
#include "report/sample_result.h"
#include "triforce/report.h"

namespace triforce {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(TF_SOURCE_DIR) / "tests/report/golden";

JsonValue parsed(const std::string& text) {
  JsonLimits limits;
  limits.max_bytes = 1 << 24;
  limits.max_depth = 24;  // of schemas
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

// What the reader says to a text; empty if it takes it.
std::string refusal(const std::string& text) {
  try {
    read_json_result(text, "r.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
    EXPECT_TRUE(e.kind() == "InvalidResult" || e.kind() == "DuplicateKey") << e.kind();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
  return {};
}

// ---- One change at a time, everywhere in a document

int refuse_everywhere(Change change) {
  const JsonValue golden = parsed(read_text(kGolden / "result.json"));
  for (int i = 0;; ++i) {
    Mutator mutator(change, i);
    const std::string text = mutator.text(golden);
    if (mutator.path().empty()) return i;
    const std::string said = refusal(text);
    EXPECT_TRUE(said.starts_with("r.json: " + mutator.path())) << mutator.path() << "\n" << said;
    EXPECT_NE(said.find(": expected "), std::string::npos) << said;
  }
}

// What a document is read as in which a member is null: what follows from others is there again.
std::string read_with_null(const JsonValue& golden, int where) {
  const std::string text = Mutator(Change::kNull, where).text(golden);
  return refusal(text).empty() ? to_json(read_json_result(text, "r.json"))
                               : read_text(kGolden / "result.json");
}

// As an older build may have written it: without a member.
void expect_named_or_null(const JsonValue& golden, int where, const std::string& text,
                          const std::string& path, bool required) {
  SCOPED_TRACE(path);
  if (required) {
    const std::size_t dot = path.find_last_of('.');
    const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot) + ": ";
    EXPECT_EQ(refusal(text), "r.json: " + parent + path.substr(dot + 1) + " is missing");
    return;
  }
  if (path.ends_with(".decode_ms")) {  // what follows from it is there
    EXPECT_NE(refusal(text).find("ms_per_token: expected null, which follows"), std::string::npos);
    return;
  }
  std::set<std::string> absent;
  const RunResult r = read_json_result(text, "r.json", &absent);
  EXPECT_EQ(absent, std::set<std::string>{without_indices(path)});
  EXPECT_EQ(to_json(r), read_with_null(golden, where));
  EXPECT_NO_THROW(to_table(r));
  EXPECT_NO_THROW(to_csv(r));
}

TEST(Reader, GoldenFilesReadBackByteForByte) {
  const std::string json = read_text(kGolden / "result.json");
  EXPECT_EQ(to_json(read_json_result(json, "golden")), json);
  const std::string lines = read_text(kGolden / "result.jsonl");
  const std::vector<RunResult> results = read_jsonl_results(lines, "golden");
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].cases.size(), 3U);
  EXPECT_EQ(to_jsonl(results[0]), lines);
  EXPECT_EQ(to_json(results[0]), json);
}

TEST(Reader, AnUnchangedCopyIsTaken) {
  const std::string json = read_text(kGolden / "result.json");
  EXPECT_EQ(Mutator(Change::kNone, 0).text(parsed(json)) + "\n", json);
}

TEST(Reader, EveryMissingMemberIsNamedOrNull) {
  const JsonValue golden = parsed(read_text(kGolden / "result.json"));
  const JsonValue schema = parsed(result_schema());
  int required = 0, optional = 0;
  for (int i = 0;; ++i) {
    Mutator mutator(Change::kRemove, i);
    const std::string text = mutator.text(golden);
    if (mutator.path().empty()) break;
    const SchemaMember member = member_of(schema, mutator.path());
    EXPECT_EQ(member.required, !member.nullable) << mutator.path();
    ++(member.required ? required : optional);
    expect_named_or_null(golden, i, text, mutator.path(), member.required);
  }
  EXPECT_GT(required, 300);
  EXPECT_GT(optional, 150);
}

// What the oldest build could have written: nothing that may be null.
TEST(Reader, NothingThatMayBeNullMustBeThere) {
  const JsonValue golden = parsed(read_text(kGolden / "result.json"));
  const JsonValue schema = parsed(result_schema());
  Mutator mutator([&](const std::string& path) { return !member_of(schema, path).required; });
  std::set<std::string> absent;
  const RunResult r = read_json_result(mutator.text(golden), "r.json", &absent);
  EXPECT_TRUE(absent.contains("cases[].memory.planned"));
  EXPECT_TRUE(absent.contains("context.load"));
  EXPECT_FALSE(r.cases[0].timing.fill_ms[kFullPass]);
  EXPECT_TRUE(std::isnan(r.cases[0].timing.samples[0].decode_ms));
  EXPECT_EQ(r.cases[1].acceptance.size(), 2U);
  for (const std::string& text : {to_json(r), to_jsonl(r), to_csv(r), to_table(r)}) {
    EXPECT_EQ(text.find("nan"), std::string::npos);
  }
  absent.clear();
  read_json_result(read_text(kGolden / "result.json"), "r.json", &absent);
  EXPECT_TRUE(absent.empty());
}

// A line of a build that had no sweeps.
TEST(Reader, ALineMayLackWhatMayBeNull) {
  std::string line = to_jsonl(sample_result());
  line.resize(line.find('\n') + 1);
  const std::string member = R"("sweep":null,)";
  ASSERT_NE(line.find(member), std::string::npos);
  std::set<std::string> absent;
  const std::vector<RunResult> results =
      read_jsonl_results(line.erase(line.find(member), member.size()), "r.jsonl", &absent);
  EXPECT_FALSE(results.at(0).sweep);
  EXPECT_EQ(absent, std::set<std::string>{"sweep"});
}

TEST(Reader, EveryUnknownMemberIsNamed) { EXPECT_GT(refuse_everywhere(Change::kAdd), 40); }
TEST(Reader, EveryWrongTypeIsNamed) { EXPECT_GT(refuse_everywhere(Change::kRetype), 400); }

std::string changed(const std::string& from, const std::string& to) {
  std::string text = read_text(kGolden / "result.json");
  const std::size_t where = text.find(from);
  EXPECT_NE(where, std::string::npos) << from;
  return text.replace(where, from.size(), to);
}

TEST(Reader, OtherVersionsAreRefusedByName) {
  EXPECT_EQ(refusal(changed("triforce-bench.result/4", "triforce-bench.result/2")),
            "r.json: schema: expected triforce-bench.result/4, found "
            "\"triforce-bench.result/2\"");
  EXPECT_EQ(refusal("{}"), "r.json: schema is missing");
  EXPECT_EQ(refusal("[]"), "r.json: expected an object, found an array of 0");
  EXPECT_NE(refusal(""), "");
}

TEST(Reader, ValuesThatDoNotFit) {
  EXPECT_EQ(refusal(changed(R"("status": "oom")", R"("status": "Oom")")),
            "r.json: cases[2].status: expected one of ok, skipped_memory, oom, error, timeout, "
            "interrupted, skipped_options, found \"Oom\"");
  EXPECT_EQ(refusal(changed(R"("alpha": 0.4999999999999999)", R"("alpha": 0.51)")),
            "r.json: cases[1].acceptance[0].alpha: expected 0.4999999999999999, which follows from "
            "what stands beside, found 0.51 (not written as an integer)");
  EXPECT_EQ(refusal(changed(R"("total": 59416684)", R"("total": 59416385)")),
            "r.json: cases[0].memory.planned.total: expected 59416684, which follows from what "
            "stands beside, found 59416385");
  EXPECT_EQ(
      refusal(changed(R"("name": "inner")", R"("name": "lowest")")),
      "r.json: cases[1].acceptance[0]: expected one named inner, middle, outer, found an object");
  EXPECT_EQ(refusal(changed(R"("origins": [0, 0, 0, 0])", R"("origins": [0, 0, 256, 0])")),
            "r.json: cases[0].output.prompts[0].origins[2]: expected an integer in [0, 255], found "
            "256");
  EXPECT_EQ(refusal(changed(R"("layers": 8)", R"("layers": 8.0)")),
            "r.json: cases[0].model.target.layers: expected an integer in [-2147483648, "
            "2147483647], found 8 (not written as an integer)");
  EXPECT_NE(refusal(changed(R"("layers": 8,)", R"("layers": 8, "layers": 8,)")), "");
}

TEST(Reader, ATimeOverNoTokensIsNull) {
  RunResult r = sample_result();
  ASSERT_FALSE(r.cases[0].timing.samples.empty());
  r.cases[0].timing.samples[0].tokens = 0;
  r.cases[0].timing.samples[0].decode_ms = 1.5;
  EXPECT_EQ(to_json(read_json_result(to_json(r), "r.json")), to_json(r));
}

TEST(Reader, CountsWhoseSumsMayNotFit) {
  EXPECT_EQ(
      refusal(changed(R"("target_weights": 19300000)", R"("target_weights": 9007199254740993)")),
      "r.json: cases[0].memory.planned.target_weights: expected an integer in "
      "[-9007199254740992, 9007199254740992], found 9007199254740993");
}

TEST(Reader, MessagesAreOneLineOfBoundedLength) {
  const std::string other = refusal(changed("triforce-bench.result/4", std::string(5000, 'x')));
  EXPECT_LT(other.size(), 200U);
  EXPECT_EQ(refusal(changed("triforce-bench.result/4", "a\\nb")),
            R"(r.json: schema: expected triforce-bench.result/4, found "a\x0ab")");
  RunResult r = sample_result();
  LevelResult& level = r.cases[1].acceptance[0];
  level.tested_at.assign(500, 7);
  level.accepted_at.assign(500, 3);
  const std::string json = to_json(r);
  const std::size_t last = json.find("0.42857142857142855");
  ASSERT_NE(last, std::string::npos);
  const std::string text = refusal(std::string(json).replace(last, 3, "0.5"));
  EXPECT_NE(text.find("rate_per_position: expected what follows from"), std::string::npos) << text;
  EXPECT_LT(text.size(), 200U);
}

TEST(Reader, LinesAreNamedByNumberAndGroupedByRun) {
  const std::string lines = read_text(kGolden / "result.jsonl");
  RunResult other = sample_result();
  other.run_id = "another";
  const std::vector<RunResult> both = read_jsonl_results(lines + to_jsonl(other), "r.jsonl");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1].run_id, "another");
  EXPECT_EQ(both[1].cases.size(), 3U);
  try {
    read_jsonl_results(lines + "{}\n", "r.jsonl");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "r.jsonl:4: schema is missing");
  }
  EXPECT_TRUE(read_jsonl_results("", "r.jsonl").empty());
}

// ---- What is not measured

TEST(Json, NotMeasuredIsNull) {
  RunResult r = sample_result();
  r.context.gpu_name.reset();
  r.context.clocks.reset();
  r.context.end.reset();
  const JsonValue json = parsed(to_json(r));
  for (const char* field :
       {"cases.2.timing.ms_per_token.median", "cases.2.phases_ms_per_round",
        "cases.2.memory.planned", "cases.0.speedup", "cases.0.timing.ms_per_token.p95",
        "cases.1.timing.ms_per_token.p99", "cases.0.lossless.equal_to_baseline", "context.gpu_name",
        "context.clocks", "context.end", "cases.0.model.draft"}) {
    EXPECT_TRUE(at(json, field).is_null()) << field;
  }
}

TEST(Json, NoNumberIsEverNaN) {
  RunResult r = sample_result();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CaseResult& c = r.cases[1];
  c.timing.ms_per_token.mean = nan;
  c.timing.tokens_per_s = std::numeric_limits<double>::infinity();
  c.timing.samples.resize(2);
  c.timing.samples[0].decode_ms = nan;
  c.traffic[0].passes_per_token = nan;
  (*c.phases_ms_per_round)[0] = nan;
  c.params.emplace_back("odd", nan);
  LevelResult empty;  // no rounds: all rates are 0 / 0
  empty.name = "outer";
  c.acceptance.push_back(empty);
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
  EXPECT_TRUE(at(json, "cases.1.timing.samples.1.ms_per_token").is_null());
  EXPECT_EQ(to_json(read_json_result(to_json(r), "r")), to_json(r));
}

TEST(Json, TextOfATokenizerIsAlwaysUtf8) {
  RunResult r = sample_result();
  r.cases[0].output[0].text = "cut \xe2\x82";  // a token may end inside a character
  EXPECT_NO_THROW(read_json_result(to_json(r), "r"));
}

}  // namespace
}  // namespace triforce
