#include "app/commands.h"
#include "app/inputs.h"
#include "app/output_file.h"
#include "app/plan_report.h"

namespace triforce {

ExitCode plan_command(const RunConfig& config) {
  OutputFiles files(std::vector<OutputRequest>{{"--json", config.json_file}});
  const bool draft = needs_of(config.methods).draft;
  const ModelPair models = choose_models(config, Use::kPlan, draft);
  files.check_inputs(input_files(config, models));
  const PlanReport report = make_plan_report(config, models, config.dtype.value_or(DType::kF16));
  Sinks sinks;
  const std::string json = plan_json(config, report) + "\n";
  sinks.write(files.find("--json"), json);
  sinks.print(config.output_format == OutputFormat::kJson ? json : plan_table(report));
  if (sinks.code() != ExitCode::kOk) return sinks.code();
  if (config.memory_limit_bytes > 0) check_memory(config, report.memory, nullptr);
  return ExitCode::kOk;
}

}  // namespace triforce
