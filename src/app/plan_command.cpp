#include "app/commands.h"
#include "app/inputs.h"
#include "app/output_file.h"
#include "app/plan_report.h"
#include "app/session.h"

namespace triforce {

ExitCode plan_command(const RunConfig& config) {
  OutputFiles files(std::vector<OutputRequest>{{"--json", config.json_file}});
  const Session session = open_session(config);
  const ModelPair models =
      choose_models(config, Use::kPlan, any_uses(config.methods, Pass::kDraft));
  files.check_inputs(input_files(config, models));
  const PlanReport report = make_plan_report(config, models, session.dtype, *session.backend);
  OutputWriter out;
  const std::string json = plan_json(config, report) + "\n";
  out.write(files.find("--json"), json);
  out.print(config.output_format == OutputFormat::kJson ? json : plan_table(config, report));
  if (out.code() != ExitCode::kOk) return out.code();
  if (config.memory_limit_bytes > 0) check_memory(config, report.memory, session.backend.get());
  return ExitCode::kOk;
}

}  // namespace triforce
