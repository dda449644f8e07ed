#include "app/case_rules.h"
#include "app/commands.h"
#include "app/input_files.h"
#include "app/output_file.h"
#include "app/prepare.h"
#include "app/progress.h"
#include "triforce/compare.h"

namespace triforce {
namespace {

std::string printed(const RunConfig& config, const Comparison& comparison) {
  switch (config.output_format) {
    case OutputFormat::kJson:
      return to_json(comparison);
    case OutputFormat::kMarkdown:
      return to_markdown(comparison);
    default:
      return to_table(comparison, {terminal_columns(1).value_or(80), true, wants_colour(1)});
  }
}

}  // namespace

ExitCode compare_command(const RunConfig& config) {
  OutputFiles files(output_requests(config), input_files(config));
  const ResultFile base = read_result_file(config.operands.at(0)),
                   other = read_result_file(config.operands.at(1));
  const Comparison comparison = compare_results(base, other, config.compare, case_rules());
  OutputWriter out;
  out.write(files.find("--json"), to_json(comparison));
  out.write(files.find("--junit"), to_junit(comparison));
  out.print(printed(config, comparison));
  return comparison.exit_code != ExitCode::kOk ? comparison.exit_code : out.code();
}

}  // namespace triforce
