#include "app/prepare.h"

#include <algorithm>

#include "app/output.h"
#include "core/utf8.h"
#include "measure/tuner.h"
#include "options/plan_input.h"
#include "options/settings.h"

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

Prepared prepare(std::span<const RunConfig> configs, const LocalRank& rank) {
  const RunConfig& config = configs.front();
  Prepared p;
  p.session = open_session(session_options(config), rank);
  for (const std::string& note : p.session.notes) print_note(note);
  const bool drafts = std::any_of(configs.begin(), configs.end(), [](const RunConfig& c) {
    return any_method(c.methods, &MethodSpec::has_drafter);
  });
  p.models = choose_models(config, drafts);
  const ModelChoice& target = p.models.target;
  const auto plan_of = [&](const RunConfig& c) {
    return plan_input(c, p.models, p.session.dtype, p.session.backend.get());
  };
  for (const RunConfig& c : configs) {
    p.refusals.emplace_back();
    try {
      p.plan = plan_of(c);
      check_run(p.plan);
      check_recorded(c, target.config);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kUsage || configs.size() == 1) throw;
      p.refusals.back() = e;
    }
  }
  p.tokenizer = tokenizer_file(target);
  // Nobody knows yet what a preset will have that was not downloaded.
  check_dataset(config.dataset, !p.tokenizer.empty() || target.is_absent(), config.text_field,
                find_foreign_tokenizer(target));
  return p;
}

std::optional<Tokenizer> open_tokenizer(const Prepared& prepared) {
  if (prepared.tokenizer.empty()) return std::nullopt;
  return Tokenizer::open(prepared.tokenizer, prepared.models.target.config.vocab);
}

namespace {

Dataset load(const RunConfig& config, const ModelChoice& target,
             const std::optional<Tokenizer>& tokenizer, std::int64_t max_bytes,
             std::function<void()> check_stop) {
  DatasetRequest request{config.dataset,
                         config.prefill,
                         config.prompts,
                         config.seed,
                         target.config.bos,
                         target.config.vocab,
                         {},
                         max_bytes,
                         std::move(check_stop),
                         config.text_field,
                         config.needle_depth,
                         config.gen_len,
                         config.stride};
  if (is_published_dataset(config.dataset)) request.downloads = find_data_folder().downloads();
  Encode encode;
  if (tokenizer) {
    encode = [&](std::string_view text) { return tokenizer->encode(text); };
  }
  return load_dataset(request, encode);
}

}  // namespace

Dataset load_prompts(const RunConfig& config, const ModelChoice& target,
                     const std::optional<Tokenizer>& tokenizer, std::int64_t max_bytes,
                     std::function<void()> check_stop) {
  Dataset data = load(config, target, tokenizer, max_bytes, std::move(check_stop));
  if (data.info.bytes_as_ids && !target.random) {
    print_note(
        fmt::format("{}: expected a tokenizer.model, found none: bytes of text are taken as ids",
                    quote_text(target.folder.string())));
  }
  return data;
}

std::vector<std::vector<Token>> load_tuning_prompts(const RunConfig& config,
                                                    const ModelChoice& target,
                                                    const std::optional<Tokenizer>& tokenizer,
                                                    std::int64_t max_bytes,
                                                    std::function<void()> check_stop) {
  constexpr std::uint64_t kOtherDocuments = std::uint64_t{1} << 61;
  RunConfig other = config;
  const bool generated = is_generated_dataset(config.dataset);
  if (generated) other.seed ^= kOtherDocuments;
  other.prompts = kTuningPrompts + (generated ? 0 : config.prompts);
  Dataset data = load(other, target, tokenizer, max_bytes, std::move(check_stop));
  std::vector<std::vector<Token>> prompts;
  for (auto i = generated ? 0 : config.prompts; i < std::ssize(data.prompts); ++i) {
    prompts.push_back(std::move(data.prompts[static_cast<std::size_t>(i)].tokens));
  }
  return prompts;
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
  attempt([&] { open_tokenizer(prepared); });
  attempt([&] {
    const std::optional<DataFolder> data = find_data_folder_if_any();
    find_dataset(config.dataset, data ? data->downloads() : "");
  });
  attempt([&] { check_memory(config, memory, prepared.session.backend.get()); });
  return obstacles;
}

}  // namespace triforce
