#include "app/prepare.h"

#include <algorithm>

#include "app/output.h"
#include "data/datasets.h"
#include "options/settings.h"
#include "options/tokenizers.h"

namespace triforce {

std::vector<OutputRequest> output_requests(const RunConfig& config) {
  return {{"--json", config.json_file},
          {"--jsonl", config.jsonl_file, OutputMode::kAppend},
          {"--csv", config.csv_file},
          {"--junit", config.junit_file}};
}

ExitCode write_document(const RunConfig& config, OutputFiles& files, const std::string& json,
                        const std::string& table) {
  OutputWriter outputs;
  outputs.write(files.find("--json"), json);
  outputs.print(config.output_format == OutputFormat::kJson ? json : table);
  return outputs.code();
}

Prepared prepare(std::span<const RunConfig* const> configs, const LocalRank& rank) {
  const RunConfig& config = *configs.front();
  Prepared p;
  p.session = open_session(session_options(config), rank);
  for (const std::string& note : p.session.notes) print_note(note);
  const bool drafts = std::ranges::any_of(
      configs, [](const RunConfig* c) { return any_method(c->methods, &MethodSpec::has_drafter); });
  p.models = choose_models(config, drafts);
  const ModelChoice& target = p.models.target;
  for (const RunConfig* c : configs) {
    p.refusals.emplace_back();
    try {
      p.plan = plan_input(*c, p.models, p.session.dtype, p.session.backend.get());
      check_run(p.plan);
      check_recorded(*c, target.config);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kUsage || configs.size() == 1) throw;
      p.refusals.back() = e;
    }
  }
  // Nobody knows yet what a preset will have that was not downloaded.
  check_dataset(config.dataset, !tokenizer_file(target).empty() || target.is_absent(),
                config.text_field);
  return p;
}

std::vector<std::string> find_obstacles(const RunConfig& config, Prepared& prepared,
                                        const MemoryPlan& memory) {
  std::vector<std::string> obstacles;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const Error& e) {
      if (e.code() != ExitCode::kBadInput && e.code() != ExitCode::kResources) throw;
      obstacles.push_back(error_text(e));
    }
  };
  attempt([&] { open_weights(config, prepared.models); });
  attempt([&] { open_tokenizer(prepared.models.target, is_of_text(config.dataset)); });
  attempt([&] {
    const std::optional<DataFolder> data = find_data_folder_if_any();
    find_dataset(config.dataset, data ? data->downloads() : "");
  });
  attempt([&] { check_memory(config, memory, prepared.session.backend.get()); });
  return obstacles;
}

}  // namespace triforce
