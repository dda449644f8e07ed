// Dispatch, and the one place where errors become messages and exit codes.
#include "app/commands.h"
#include "app/last_resort.h"
#include "app/output.h"
#include "app/signals.h"
#include "host/machine.h"
#include "host/start.h"
#include "options/arguments.h"

namespace triforce {
namespace {

ExitCode execute(const CommandLine& line, const std::vector<std::string>& argv) {
  switch (line.action) {
    case CommandLine::Action::kHelp:
      print_out(help_text(line.command, line.topic, line.named));
      return ExitCode::kOk;
    case CommandLine::Action::kVersion:
      print_out(fmt::format("triforce-bench {}\n", program_version()));
      return ExitCode::kOk;
    case CommandLine::Action::kListRecipes:
      return list_recipes_command();
    case CommandLine::Action::kExecute:
      break;
  }
  switch (line.command) {
    case kRun:
    case kSweep:
      return line.cases.empty() ? run_command(line.config, argv) : sweep_command(line, argv);
    case kPlan:
      return plan_command(line.config);
    case kPerplexity:
      return perplexity_command(line.config);
    case kInspect:
      return inspect_command(line.config);
    case kListDevices:
      return list_devices_command(line.config);
    case kSelftest:
      return selftest_command(line.config);
    case kCompare:
      return compare_command(line.config);
    case kExport:
      return export_command(line.config);
    case kShow:
      return show_command(line.config);
  }
  return ExitCode::kInternal;
}

// Parses, executes and reports errors as one line on stderr. argv[0] is the program.
ExitCode run_program(const std::vector<std::string>& argv) {
  try {
    secure_standard_streams();
    install_signal_handlers();
    const std::vector<std::string> args(argv.begin() + (argv.empty() ? 0 : 1), argv.end());
    return execute(parse_command_line(args), argv);
  } catch (...) {
    return report_current_exception();
  }
}

}  // namespace
}  // namespace triforce

int main(int argc, char** argv) {
  triforce::settle_start(argv);
  triforce::install_last_resort();
  const auto code = triforce::run_program(std::vector<std::string>(argv, argv + argc));
  triforce::main_returns();
  return static_cast<int>(code);
}
