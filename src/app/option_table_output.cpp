// Data, measuring and output.
#include "app/option_values.h"

namespace triforce {
namespace {

void set_group(std::vector<OptionInfo>& table, const char* group) {
  for (OptionInfo& o : table) {
    if (o.group.empty()) o.group = group;
  }
}

OptionInfo bytes_option() {
  OptionInfo o = make_option(
      {"memory-limit",
       {},
       "BYTES",
       "bytes",
       "what the machine has available",
       "most memory the run may plan for; a run that needs more is refused with its table",
       kRun | kPlan},
      "a byte count of at least 1, with k, M, G or T (powers of 1024), or KB, MB, GB, TB (of "
      "1000)");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    const std::optional<std::int64_t> n = parse_bytes(v);
    if (!n || *n < 1) fail_value(self, v);
    c.memory_limit_bytes = *n;
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    if (c.memory_limit_bytes == 0) return std::monostate{};
    return c.memory_limit_bytes;
  };
  return o;
}

OptionInfo noise_option() {
  OptionInfo o = make_option(
      {"max-noise",
       {},
       "PCT",
       "percent",
       "none",
       "largest coefficient of variation of the time per token; a case above it is marked not "
       "comparable",
       kRun},
      "a number in (0, 1000]");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    const std::optional<double> x = parse_real(v);
    if (!x || *x <= 0 || *x > 1000) fail_value(self, v);
    c.max_noise_pct = *x;
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    if (!c.max_noise_pct) return std::monostate{};
    return *c.max_noise_pct;
  };
  return o;
}

OptionInfo timeout_option() {
  OptionInfo o =
      make_option({"timeout",
                   {},
                   "S",
                   "seconds",
                   "none",
                   "of the whole run; cases that are not finished by then get the status "
                   "timeout",
                   kRun},
                  "a number in (0, 1e9]");
  o.set = [](const OptionInfo& self, RunConfig& c, std::string_view v) {
    const std::optional<double> x = parse_real(v);
    if (!x || *x <= 0 || *x > 1e9) fail_value(self, v);
    c.timeout_s = *x;
  };
  o.get = [](const RunConfig& c) -> ParamValue {
    if (c.timeout_s == 0) return std::monostate{};
    return c.timeout_s;
  };
  return o;
}

}  // namespace

void add_measuring_options(std::vector<OptionInfo>& table) {
  table.push_back(text_option(
      {"dataset",
       {},
       "NAME|FILE",
       "",
       "synthetic",
       "synthetic; gs, 128k, one-shot, lwm or demo (fetched by scripts/download_data.sh); or a "
       ".txt, .jsonl (text field) or .ids file. A document that is too short is skipped and "
       "counted",
       kRun | kPerplexity},
      "a data set or a file", [](auto& c) -> auto& { return c.dataset; }));
  table.push_back(integer_option(
      {"prompts", {}, "N", "", "1", "prompts to measure, at most what the data set has", kRun}, 1,
      1 << 20, [](auto& c) -> auto& { return c.prompts; }));
  set_group(table, "Data");
  table.push_back(integer_option(
      {"repetitions", {}, "N", "", "5", "timed generations per method and prompt", kRun}, 1,
      1 << 20, [](auto& c) -> auto& { return c.repetitions; }));
  table.push_back(integer_option(
      {"warmup",
       {},
       "N",
       "",
       "1",
       "generations before those, kept in the result and flagged",
       kRun},
      0, 1 << 20, [](auto& c) -> auto& { return c.warmup; }));
  table.push_back(noise_option());
  table.push_back(timeout_option());
  table.push_back(bytes_option());
  table.push_back(integer_option(
      {"chunk",
       {},
       "N",
       "tokens",
       "1024",
       "tokens of one pass; changes the speed only",
       kPerplexity},
      1, 1 << 16, [](auto& c) -> auto& { return c.chunk; }));
  set_group(table, "Measuring");
}

void add_output_options(std::vector<OptionInfo>& table) {
  table.push_back(choice_option<OutputFormat>(
      {"output-format", {}, "FORMAT", "", "table", "of what is printed on stdout", kRun},
      {{"table", OutputFormat::kTable},
       {"json", OutputFormat::kJson},
       {"jsonl", OutputFormat::kJsonl},
       {"csv", OutputFormat::kCsv},
       {"markdown", OutputFormat::kMarkdown}},
      [](auto& c) -> auto& { return c.output_format; }));
  table.push_back(choice_option<OutputFormat>(
      {"output-format",
       {},
       "FORMAT",
       "",
       "table",
       "of what is printed on stdout",
       kPlan | kPerplexity},
      {{"table", OutputFormat::kTable}, {"json", OutputFormat::kJson}},
      [](auto& c) -> auto& { return c.output_format; }));
  table.push_back(text_option(
      {"json",
       {},
       "FILE",
       "",
       "none",
       "write the result as one JSON document, replaced atomically",
       kRun | kPlan | kPerplexity},
      "a file name", [](auto& c) -> auto& { return c.json_file; }));
  table.push_back(flag_option(
      {"json", {}, "", "", "off", "print JSON instead of a table", kInspect | kListDevices},
      [](auto& c) -> auto& { return c.json_to_stdout; }));
  table.push_back(text_option(
      {"jsonl", {}, "FILE", "", "none", "append one line of JSON per case", kRun}, "a file name",
      [](auto& c) -> auto& { return c.jsonl_file; }));
  table.push_back(text_option(
      {"csv", {}, "FILE", "", "none", "write one row per case", kRun}, "a file name",
      [](auto& c) -> auto& { return c.csv_file; }));
  table.push_back(choice_option<ProgressMode>(
      {"progress",
       {},
       "MODE",
       "",
       "auto",
       "on stderr: a bar on a terminal (auto), lines anywhere (plain), or nothing (none)",
       kRun | kPerplexity},
      {{"auto", ProgressMode::kAuto},
       {"plain", ProgressMode::kPlain},
       {"none", ProgressMode::kNone}},
      [](auto& c) -> auto& { return c.progress; }));
  table.push_back(flag_option(
      {"verbose",
       {},
       "",
       "",
       "off",
       "stream the generated text to stderr, coloured by the level that produced each token",
       kRun},
      [](auto& c) -> auto& { return c.verbose; }));
  set_group(table, "Output");
}

}  // namespace triforce
