#include "app/prepare.h"

#include <algorithm>

#include "app/inputs.h"
#include "app/output.h"
#include "app/plan_report.h"

namespace triforce {
namespace {

// Throws if --record asks for more numbers than a result may hold.
void check_recorded(const RunConfig& c, const ModelConfig& target) {
  // In double: the product of options within their limits is beyond 64 bits.
  const auto cases = static_cast<double>(c.methods.size());
  const auto selecting =
      static_cast<double>(std::count_if(c.methods.begin(), c.methods.end(), [](Method m) {
        return spec_of(m).uses(Pass::kRetrieval);
      }));
  const auto prompts = static_cast<double>(c.prompts);
  const SpeculationOptions& s = c.speculation;
  const std::int64_t chunks_of_head = std::min(s.budget, c.prefill) / s.chunk_size;
  const double ids =
      static_cast<double>(target.layers) * target.kv_heads * static_cast<double>(chunks_of_head);
  const double tokens =
      c.record.tokens ? 2 * prompts * cases * c.repetitions * static_cast<double>(c.gen_len) : 0;
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
          {"--csv", config.csv_file}};
}

Prepared prepare(const RunConfig& config, const OutputFiles& outputs) {
  Prepared p;
  p.session = open_session(config);
  p.models = choose_models(config, any_uses(config.methods, Pass::kDraft));
  const ModelChoice& target = p.models.target;
  p.plan = plan_input(config, p.models, p.session.dtype, p.session.backend.get());
  check_run(p.plan);
  check_recorded(config, target.config);
  check_prompt_start(target.config);
  p.tokenizer = tokenizer_file(target);
  // What a preset that is not there will have is not known.
  check_dataset(config.dataset, !p.tokenizer.empty() || target.is_absent());
  outputs.check_inputs(input_files(config, p.models));
  return p;
}

std::optional<Tokenizer> open_tokenizer(const Prepared& prepared) {
  if (prepared.tokenizer.empty()) return std::nullopt;
  return Tokenizer::open(prepared.tokenizer, prepared.models.target.config.vocab);
}

Dataset load_prompts(const RunConfig& config, const ModelConfig& target,
                     const std::optional<Tokenizer>& tokenizer, std::int64_t max_bytes,
                     std::function<void()> check_stop) {
  DatasetRequest request{config.dataset,
                         config.prefill,
                         config.prompts,
                         config.seed,
                         target.bos,
                         target.vocab,
                         {},
                         max_bytes,
                         std::move(check_stop)};
  if (is_published_dataset(config.dataset)) request.downloads = find_data_folder().downloads();
  Encode encode;
  if (tokenizer) {
    encode = [&](std::string_view text) { return tokenizer->encode(text, false); };
  }
  return load_dataset(request, encode);
}

bool note_bytes_as_ids(const Dataset& data, const ModelChoice& target,
                       const std::optional<Tokenizer>& tokenizer) {
  const bool bytes_as_ids = data.info.kind == "synthetic" && !tokenizer;
  if (bytes_as_ids && !target.random) print_note(no_tokenizer_note(target));
  return bytes_as_ids;
}

std::vector<std::string> find_obstacles(const RunConfig& config, const Prepared& prepared,
                                        const MemoryPlan& memory) {
  std::vector<std::string> obstacles;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const Error& e) {
      if (e.code() != ExitCode::kBadInput && e.code() != ExitCode::kResources) throw;
      // As an error of `run` is printed.
      obstacles.push_back(e.code() == ExitCode::kBadInput
                              ? fmt::format("{} [{}]", e.what(), e.kind())
                              : std::string(e.what()));
    }
  };
  attempt([&] { open_weights(config, prepared.models); });
  attempt([&] { open_tokenizer(prepared); });
  attempt([&] { find_dataset(config.dataset, find_data_folder().downloads()); });
  attempt([&] { check_memory(config, memory, prepared.session.backend.get()); });
  return obstacles;
}

}  // namespace triforce
