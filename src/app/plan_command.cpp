#include "app/commands.h"
#include "app/output.h"
#include "app/plan_report.h"

namespace triforce {

ExitCode plan_command(const RunConfig& config) {
  const bool draft = needs_of(config.methods).draft;
  const ModelPair models = choose_models(config, Use::kPlan, draft);
  const PlanReport report = make_plan_report(config, models, config.dtype.value_or(DType::kF16));
  Sinks sinks;
  const std::string json = write_json(plan_json(config, report)) + "\n";
  if (!config.json_file.empty()) sinks.write(config.json_file, json);
  sinks.write("-", config.output_format == OutputFormat::kJson ? json : plan_table(report));
  sinks.finish();
  if (config.memory_limit_bytes > 0) check_memory(config, report.memory, nullptr);
  return ExitCode::kOk;
}

}  // namespace triforce
