#include <string>

#include "app/commands.h"
#include "app/output.h"
#include "app/result_files.h"
#include "options/identity.h"

namespace triforce {

ExitCode show_command(const RunConfig& config) {
  std::string out;
  for (const std::string& path : config.operands) {
    // Tables of one file and of the next.
    const bool tables = config.output_format == OutputFormat::kTable ||
                        config.output_format == OutputFormat::kMarkdown;
    if (tables && !out.empty()) out += "\n";
    const SavedResult saved = read_saved_result(path);
    if (saved.sweep) {
      out += printed_result(config, *saved.sweep);
      continue;
    }
    for (const RunResult& run : saved.runs) out += printed_result(config, run);
  }
  print_out(out);
  return ExitCode::kOk;
}

}  // namespace triforce
