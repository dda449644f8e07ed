#include "app/commands.h"
#include "app/input_files.h"
#include "app/ranks.h"
#include "app/result_files.h"
#include "app/run_session.h"
#include "app/signals.h"

namespace triforce {
namespace {

ExitCode lead_run(const RunConfig& config, const std::vector<std::string>& argv, RankLinks& links,
                  const RankProcesses& ranks) {
  ResultFiles<RunResult> files(config, input_files(config));
  RunSession session({{config}}, argv, links, ranks,
                     {{}, [&](const auto& interim) { files.write_interim(interim); }});
  const RunResult result = std::move(session.run().front());
  for (const std::string& line : failures_of(result)) print_error(line);
  if (result.exit_code == ExitCode::kNumeric) session.blame_weights();
  const ExitCode written = files.write_final(result);
  const std::optional<ExitCode> signal = received_signal();
  if (signal && result.exit_code == ExitCode::kInterrupted) return *signal;
  return result.exit_code != ExitCode::kOk ? result.exit_code : written;
}

}  // namespace

ExitCode run_command(const RunConfig& config, const std::vector<std::string>& argv) {
  return with_ranks({&config, 1}, [&](RankLinks& links, const RankProcesses& ranks) {
    return lead_run(config, argv, links, ranks);
  });
}

}  // namespace triforce
