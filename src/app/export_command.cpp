#include <iterator>

#include "app/commands.h"
#include "app/output.h"
#include "options/identity.h"

namespace triforce {

ExitCode export_command(const RunConfig& config) {
  std::vector<RunResult> results;
  for (const std::string& path : config.operands) {
    ResultFile file = read_result_file(path);
    std::move(file.results.begin(), file.results.end(), std::back_inserter(results));
  }
  std::vector<std::string> left_out;
  print_out(export_results(results, config.export_format, decides_tokens, is_default, left_out));
  for (const std::string& line : left_out) print_note(line);
  return ExitCode::kOk;
}

}  // namespace triforce
