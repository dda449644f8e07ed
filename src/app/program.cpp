// Dispatch and the one place where errors become messages and exit codes.
#include "app/commands.h"
#include "app/last_resort.h"
#include "app/output.h"
#include "app/signals.h"
#include "host/build_info.h"

namespace triforce {
namespace {

ExitCode execute(const CommandLine& line, const std::vector<std::string>& argv) {
  switch (line.action) {
    case CommandLine::Action::kHelp:
      print_out(help_text(line.command, !line.named));
      return ExitCode::kOk;
    case CommandLine::Action::kVersion:
      print_out(fmt::format("triforce-bench {}\n", build_info().version));
      return ExitCode::kOk;
    case CommandLine::Action::kExecute:
      break;
  }
  switch (line.command) {
    case kRun:
      return run_command(line.config, argv);
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
  }
  return ExitCode::kInternal;
}

int code_of(ExitCode code) { return static_cast<int>(code); }

}  // namespace

int run_program(const std::vector<std::string>& argv) {
  try {
    secure_standard_streams();
    install_signal_handlers();
    const std::vector<std::string> args(argv.begin() + (argv.empty() ? 0 : 1), argv.end());
    return code_of(execute(parse_command_line(args), argv));
  } catch (...) {
    return code_of(report_current_exception());
  }
}

}  // namespace triforce
