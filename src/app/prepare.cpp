#include "app/prepare.h"

#include <algorithm>

#include "app/output.h"
#include "app/plan_report.h"
#include "core/utf8.h"
#include "measure/tuner.h"
#include "options/settings.h"

namespace triforce {
namespace {

// Throws if --record asks for more numbers than a result may hold.
void check_recorded(const RunConfig& c, const ModelConfig& target) {
  // Figures are doubles here: the product of options within their limits is beyond 64 bits.
  const auto cases = static_cast<double>(c.methods.size());
  const auto selecting = static_cast<double>(std::count_if(
      c.methods.begin(), c.methods.end(), [](Method m) { return spec_of(m).selects(); }));
  const auto prompts = static_cast<double>(c.prompts);
  const SpeculationOptions& s = c.speculation;
  const std::int64_t chunks_of_head = std::min(s.budget, c.prefill) / s.chunk_size;
  const double ids = static_cast<double>(target.layers - s.dense_layers) * target.kv_heads *
                     static_cast<double>(chunks_of_head);
  const double repetitions = c.max_noise_pct ? kMaxNoiseFactor * c.repetitions : c.repetitions;
  const double tokens =
      c.record.tokens ? 2 * prompts * cases * repetitions * static_cast<double>(c.gen_len) : 0;
  const double chunks = c.record.chunks ? prompts * selecting * ids : 0;
  const double probs =
      c.record.probs ? 2 * prompts * cases * static_cast<double>(kRecordedProbs) : 0;
  const double total = tokens + chunks + probs;
  if (total <= static_cast<double>(kMaxRecorded)) return;
  throw_usage(
      "--record: expected at most {} numbers in a result, found {:.0f} (tokens {:.0f}, chunks "
      "{:.0f}, probs {:.0f}); fewer --prompts, --repetitions or methods need fewer",
      kMaxRecorded, total, tokens, chunks, probs);
}

}  // namespace

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

std::optional<Error> missing_download(const RunConfig& config) {
  try {
    ModelPair models = choose_models(config, any_method(config.methods, &MethodSpec::has_drafter));
    const bool absent = models.target.is_absent() || (models.draft && models.draft->is_absent());
    if (absent) open_weights(config, models);
    if (is_published_dataset(config.dataset)) {
      find_dataset(config.dataset, find_data_folder().downloads());
    }
  } catch (const Error& e) {
    if (e.kind() == std::string_view("FileNotFound")) return e;
  }
  return std::nullopt;
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
