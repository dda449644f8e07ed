#include "app/commands.h"
#include "app/input_files.h"
#include "app/output_file.h"
#include "app/plan_report.h"
#include "app/prepare.h"
#include "triforce/format.h"

namespace triforce {
namespace {

// Throws Error(kUsage) where the machine that was asked for cannot have so many ranks, and
// Error(kResources, "MachineMemory") where nothing that was asked for has room: that machine, or
// without one this machine and all built-in ones.
void check_room(const RunConfig& config, const PlanReport& report, const Backend* backend) {
  std::vector<std::string> missing;
  for (const MachinePlan& p : report.machines) {
    if (!p.refusal.empty()) continue;
    if (p.forecast.fits()) return;
    missing.push_back(fmt::format("{}: {}", p.machine.name, missing_memory(p)));
  }
  if (!config.machine.empty()) {
    const MachinePlan& p = report.machines.front();
    if (!p.refusal.empty()) throw_usage("{}", p.refusal);
    throw_resources("MachineMemory", "--machine: expected room for this run, found {}",
                    missing.front());
  }
  if (fits_here(config, report.memory, backend)) return;
  if (missing.empty()) missing.push_back(fmt::format("no built-in one shares it by {}", config.tp));
  throw_resources("MachineMemory",
                  "plan: expected a machine with room for this run, found none; {}",
                  fmt::join(missing, "; "));
}

}  // namespace

ExitCode plan_command(const RunConfig& config) {
  OutputFiles files(output_requests(config), input_files(config));
  // A plan for another machine does not depend on the devices here.
  const int devices = config.machine.empty() ? config.tp : 1;
  Prepared prepared = prepare(config, {0, devices, config.tp});
  PlanReport report = make_plan_report(config, prepared.plan, find_machines(config.machine));
  report.obstacles = find_obstacles(config, prepared, report.memory);
  report.model_notes = labelled_notes(prepared.models);
  OutputWriter out;
  const std::string json = plan_json(config, report) + "\n";
  out.write(files.find("--json"), json);
  out.print(config.output_format == OutputFormat::kJson ? json : plan_table(config, report));
  if (out.code() != ExitCode::kOk) return out.code();
  if (config.memory_limit_bytes > 0) {
    check_memory(config, report.memory, prepared.session.backend.get());
  }
  check_room(config, report, prepared.session.backend.get());
  return ExitCode::kOk;
}

}  // namespace triforce
