// Dispatch and the one place where errors become messages and exit codes.
#include <new>

#include "app/build_info.h"
#include "app/commands.h"
#include "app/output.h"
#include "app/signals.h"

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
  } catch (const Error& e) {
    // The class of what is wrong with a file is stable, so that scripts can rely on it.
    print_error(e.code() == ExitCode::kBadInput ? fmt::format("{} [{}]", e.what(), e.kind())
                                                : std::string(e.what()));
    return code_of(e.code());
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return code_of(ExitCode::kResources);
  } catch (const std::exception& e) {
    print_error(fmt::format("internal error: {}", e.what()));
    return code_of(ExitCode::kInternal);
  }
}

}  // namespace triforce
