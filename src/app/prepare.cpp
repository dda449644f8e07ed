#include "app/prepare.h"

#include <algorithm>

#include "app/datasets.h"
#include "app/inputs.h"
#include "app/plan_report.h"
#include "triforce/tokenizer.h"

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
  const double ids = static_cast<double>(target.layers) * target.kv_heads *
                     static_cast<double>(std::min(s.budget, c.prefill) / s.chunk_size);
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
  attempt([&] {
    if (prepared.tokenizer.empty()) return;
    Tokenizer::open(prepared.tokenizer, prepared.models.target.config.vocab);
  });
  attempt([&] { find_dataset(config.dataset, find_data_folder().downloads()); });
  attempt([&] { check_memory(config, memory, prepared.session.backend.get()); });
  return obstacles;
}

}  // namespace triforce
