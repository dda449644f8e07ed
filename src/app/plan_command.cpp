#include "app/commands.h"
#include "app/output_file.h"
#include "app/plan_report.h"
#include "app/prepare.h"

namespace triforce {

ExitCode plan_command(const RunConfig& config) {
  OutputFiles files(output_requests(config));
  // What another machine takes is no question of the devices here.
  const int devices = config.machine.empty() ? config.tp : 1;
  const Prepared prepared = prepare(config, files, {0, devices, config.tp});
  PlanReport report = make_plan_report(config, prepared.plan, find_machines(config.machine));
  report.obstacles = find_obstacles(config, prepared, report.memory);
  OutputWriter out;
  const std::string json = plan_json(config, report) + "\n";
  out.write(files.find("--json"), json);
  out.print(config.output_format == OutputFormat::kJson ? json : plan_table(config, report));
  if (out.code() != ExitCode::kOk) return out.code();
  if (config.memory_limit_bytes > 0) {
    check_memory(config, report.memory, prepared.session.backend.get());
  }
  return ExitCode::kOk;
}

}  // namespace triforce
