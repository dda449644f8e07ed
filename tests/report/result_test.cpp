// Result files: what is written reads back, and nothing else is accepted.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/json_writer.h"
#include "core/strict_json.h"
#include "report/golden.h"
#include "report/sample_result.h"
#include "triforce/report.h"

namespace triforce {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(TF_SOURCE_DIR) / "tests/report/golden";

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

enum class Change { kNone, kRemove, kRetype, kAdd };

// Writes a tree again, with one change at the value or object number `where`.
class Mutator {
 public:
  Mutator(Change change, int where) : change_(change), where_(where) {}

  std::string text(const JsonValue& root) {
    write(root, "");
    return out_.take();
  }
  // The path of what was changed, empty if the document has fewer places.
  const std::string& path() const { return path_; }

 private:
  bool hit(const std::string& path) {
    if (seen_++ != where_) return false;
    path_ = path;
    return true;
  }
  void write(const JsonValue& v, const std::string& path) {
    using Kind = JsonValue::Kind;
    if (change_ == Change::kRetype && !path.empty() && hit(path)) {
      // What no field takes: a fraction for an object, an object for a value, a list of lists for
      // null.
      if (v.is_object()) return out_.value(-0.5);
      v.is_null() ? out_.begin_array(false) : out_.begin_object();
      if (v.is_null()) out_.begin_array(false), out_.end();
      return out_.end();
    }
    switch (v.kind()) {
      case Kind::kNull:
        return out_.null();
      case Kind::kBool:
        return out_.value(v.as_bool());
      case Kind::kUnsigned:
        return out_.value(v.as_unsigned());
      case Kind::kSigned:
        return out_.value(v.as_signed());
      case Kind::kDouble:
        return out_.value(v.as_double());
      case Kind::kString:
        return out_.value(v.as_string());
      case Kind::kArray:
        return write_array(v, path);
      case Kind::kObject:
        return write_object(v, path);
    }
  }
  void write_array(const JsonValue& v, const std::string& path) {
    out_.begin_array(v.items().empty() || !(v.items()[0].is_object() || v.items()[0].is_array()));
    for (std::size_t i = 0; i < v.items().size(); ++i) {
      write(v.items()[i], fmt::format("{}[{}]", path, i));
    }
    out_.end();
  }
  void write_object(const JsonValue& v, const std::string& path) {
    const bool free = path.ends_with("].params");  // any names
    out_.begin_object();
    for (const JsonMember& m : v.members()) {
      const std::string below = path.empty() ? m.key : path + "." + m.key;
      if (change_ == Change::kRemove && !free && hit(below)) continue;
      out_.key(m.key);
      write(m.value, below);
    }
    if (change_ == Change::kAdd && !free && hit(path.empty() ? "extra" : path + ".extra")) {
      out_.key("extra");
      out_.null();
    }
    out_.end();
  }

  Change change_;
  int where_, seen_ = 0;
  std::string path_;
  JsonWriter out_;
};

int refuse_everywhere(Change change) {
  const JsonValue golden = parsed(read_text(kGolden / "result.json"));
  for (int i = 0;; ++i) {
    Mutator mutator(change, i);
    const std::string text = mutator.text(golden);
    if (mutator.path().empty()) return i;
    const std::string said = refusal(text);
    const std::string& path = mutator.path();
    const std::string parent = path.substr(0, path.find_last_of('.') + 1);
    const std::string name = path.substr(parent.size());
    // "r.json: a.b: expected ..." or "r.json: a: b is missing"
    const std::string wanted =
        change != Change::kRemove ? path
        : parent.empty()          ? name + " is missing"
                         : parent.substr(0, parent.size() - 1) + ": " + name + " is missing";
    EXPECT_TRUE(said.starts_with("r.json: " + wanted)) << path << "\n" << said;
    EXPECT_TRUE(change == Change::kRemove || said.find(": expected ") != std::string::npos) << said;
  }
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

TEST(Reader, EveryMissingMemberIsNamed) { EXPECT_GT(refuse_everywhere(Change::kRemove), 300); }
TEST(Reader, EveryUnknownMemberIsNamed) { EXPECT_GT(refuse_everywhere(Change::kAdd), 40); }
TEST(Reader, EveryWrongTypeIsNamed) { EXPECT_GT(refuse_everywhere(Change::kRetype), 400); }

std::string changed(const std::string& from, const std::string& to) {
  std::string text = read_text(kGolden / "result.json");
  const std::size_t where = text.find(from);
  EXPECT_NE(where, std::string::npos) << from;
  return text.replace(where, from.size(), to);
}

TEST(Reader, OtherVersionsAreRefusedByName) {
  EXPECT_EQ(refusal(changed("triforce-bench.result/3", "triforce-bench.result/2")),
            "r.json: schema: expected triforce-bench.result/3, found "
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
  EXPECT_EQ(refusal(changed(R"("name": "inner")", R"("name": "middle")")),
            "r.json: cases[1].acceptance[0]: expected one named inner, outer, found an object");
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
  const std::string other = refusal(changed("triforce-bench.result/3", std::string(5000, 'x')));
  EXPECT_LT(other.size(), 200U);
  EXPECT_EQ(refusal(changed("triforce-bench.result/3", "a\\nb")),
            R"(r.json: schema: expected triforce-bench.result/3, found "a\x0ab")");
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
