
#include <bit>
#include <numeric>

#include "core/sha256.h"
#include "report/result_json.h"
#include "report/upgrade.h"
#include "triforce/format.h"

namespace triforce {
namespace {

constexpr const char* kErrorKind = "InvalidResult";
// A thousand prompts with five repetitions of five methods need some 100 MB.
constexpr JsonLimits kLimits{kMaxResultBytes, 16, std::int64_t{1} << 27};

// A ResultLine is one case with what its line says of the run.
struct ResultLine {
  RunResult run;
  CaseResult result;
};
void fields(auto& v, ResultLine& l) {
  line_fields(v, l.run);
  fields(v, l.result);
}

template <class T>
T read(std::string_view text, const std::string& source, AbsentMembers* absent) {
  return read_json_text<T>(text, source, kLimits, kErrorKind, absent, upgrade_result);
}

}  // namespace

template void write_value<RunResult>(JsonWriter&, const RunResult&);
template void read_value<RunResult>(const JsonView&, RunResult&);
template void write_schema<RunResult>(JsonWriter&, std::string_view, bool);

std::int64_t TaggedBytes::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::string tokens_sha256(std::span<const Token> tokens) {
  static_assert(std::endian::native == std::endian::little);
  return sha256_hex(std::as_bytes(tokens));
}

std::vector<double> rate_per_position(const LevelCounters& level) {
  std::vector<double> rates;
  for (std::size_t i = 0; i < level.tested_at.size() && i < level.accepted_at.size(); ++i) {
    rates.push_back(static_cast<double>(level.accepted_at[i]) /
                    static_cast<double>(level.tested_at[i]));
  }
  return rates;
}

std::vector<double> unconditional_rate_per_position(const LevelCounters& level) {
  std::vector<double> rates;
  for (const std::int64_t accepted : level.accepted_at) {
    rates.push_back(static_cast<double>(accepted) / static_cast<double>(level.rounds));
  }
  return rates;
}

std::string to_json(const RunResult& result) { return to_json_text(result) + '\n'; }

std::string to_jsonl(const RunResult& result) {
  std::string out;
  for (const CaseResult& c : result.cases) {
    JsonWriter line(JsonStyle::kCompact);
    line.begin_object();
    FieldWriter visitor(line);
    line_fields(visitor, const_cast<RunResult&>(result));  // only read, as in write_value()
    fields(visitor, const_cast<CaseResult&>(c));
    line.end();
    out += line.take() + '\n';
  }
  return out;
}

RunResult read_json_result(std::string_view text, const std::string& source,
                           AbsentMembers* absent) {
  return read<RunResult>(text, source, absent);
}

std::vector<RunResult> read_jsonl_results(std::string_view text, const std::string& source,
                                          AbsentMembers* absent) {
  std::vector<RunResult> results;
  std::size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ResultLine line = read<ResultLine>(text.substr(begin, end - begin),
                                       fmt::format("{}:{}", source, number), absent);
    begin = end + 1;
    if (results.empty() || results.back().run_id != line.run.run_id ||
        results.back().sweep != line.run.sweep) {
      results.push_back(std::move(line.run));
    }
    results.back().cases.push_back(std::move(line.result));
  }
  return results;
}

std::string result_schema() {
  return json_schema_text<RunResult>(kResultSchema, "A result of triforce-bench (--json)");
}

std::string result_line_schema() {
  return json_schema_text<ResultLine>("triforce-bench.result-line/4",
                                      "A line of --jsonl of triforce-bench: one case");
}

}  // namespace triforce
