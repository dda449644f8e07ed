#include <iterator>

#include "app/case_rules.h"
#include "app/commands.h"
#include "app/output.h"
#include "options/identity.h"
#include "triforce/foreign.h"

namespace triforce {

ExitCode export_command(const RunConfig& config) {
  std::vector<RunResult> results;
  std::vector<ForeignResult> foreign;
  for (const std::string& path : config.operands) {
    if (auto others = read_foreign_file(path)) {
      std::move(others->begin(), others->end(), std::back_inserter(foreign));
      continue;
    }
    ResultFile file = read_result_file(path);
    check_consistent(file, case_rules());
    std::move(file.results.begin(), file.results.end(), std::back_inserter(results));
  }
  std::vector<std::string> left_out;
  print_out(export_results(results, foreign, config.export_format, case_rules().decides,
                           case_rules().is_default, left_out, is_column));
  for (const std::string& line : left_out) print_note(line);
  return ExitCode::kOk;
}

}  // namespace triforce
