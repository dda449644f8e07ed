#include "app/commands.h"
#include "app/output.h"
#include "app/signals.h"
#include "options/settings.h"
#include "selftest/selftest.h"

namespace triforce {

ExitCode selftest_command(const RunConfig& config) {
  const Session session = open_session(session_options(config));
  for (const std::string& note : session.notes) print_note(note);
  print_out(fmt::format("backend: {}\n", session.backend->description()));
  SelftestOptions options;
  options.seed = config.seed;
  options.chi_square_runs = config.chi_square_runs;
  const SelftestReport report =
      run_selftest(*session.backend, options, [](const SelftestCheck& check) {
        print_out(selftest_line(check));
        throw_if_signalled();
      });
  print_out(selftest_verdict(report));
  return report.exit_code();
}

}  // namespace triforce
