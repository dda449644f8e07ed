#include <algorithm>
#include <cmath>

#include "app/commands.h"
#include "app/datasets.h"
#include "app/inputs.h"
#include "app/models.h"
#include "app/output.h"
#include "app/output_file.h"
#include "app/plan_report.h"
#include "app/progress.h"
#include "app/session.h"
#include "app/signals.h"
#include "core/fields.h"
#include "model/full_cache.h"
#include "triforce/model.h"
#include "triforce/tokenizer.h"

namespace triforce {
namespace {

// -log softmax(logits)[token], in double.
double negative_log_likelihood(std::span<const float> logits, Token token, std::int64_t position) {
  const double max_logit = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max_logit);
  const double nll =
      std::log(sum) + max_logit - static_cast<double>(logits[static_cast<std::size_t>(token)]);
  if (!std::isfinite(nll)) {
    throw_numeric("perplexity: expected finite logits, found others after token {}", position);
  }
  return nll;
}

// Sum over tokens[1..] of the negative log-likelihood given what precedes each.
double teacher_forced(Backend& backend, const ModelWeights& weights, std::span<const Token> tokens,
                      std::int64_t chunk, Progress& progress) {
  const ModelConfig& c = weights.config;
  const auto total = static_cast<std::int64_t>(tokens.size());
  chunk = std::min(chunk, total);
  LlamaModel model(backend, weights, total, chunk, chunk);
  FullCache cache(backend, c.layers, c.kv_heads, c.head_dim, total, chunk, weights.dtype);
  std::vector<float> rows(static_cast<std::size_t>(chunk * c.vocab));
  double sum = 0;
  for (std::int64_t at = 0; at < total; at += chunk) {
    throw_if_signalled();
    const std::int64_t n = std::min(chunk, total - at);
    const TensorView logits =
        model.forward(tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)),
                      cache, Logits::kAll);
    backend.download(make_view(rows.data(), DType::kF32, {n, c.vocab}), logits);
    for (std::int64_t i = 0; i < n && at + i + 1 < total; ++i) {
      const std::span<const float> row(rows.data() + i * c.vocab,
                                       static_cast<std::size_t>(c.vocab));
      sum += negative_log_likelihood(row, tokens[static_cast<std::size_t>(at + i + 1)], at + i);
    }
    progress.update("perplexity", at + n, total, "tokens");
  }
  return sum;
}

}  // namespace

ExitCode perplexity_command(const RunConfig& config) {
  OutputFiles files(std::vector<OutputRequest>{{"--json", config.json_file}});
  Progress progress(config.progress);
  Session session = open_session(config);
  const ModelChoice choice = choose_models(config, Use::kLoad, false).target;
  check_prompt_start(choice.config);
  files.check_inputs(input_files(config, {choice, {}}));
  if (config.prefill > choice.config.max_position) {
    throw_usage("--prefill: expected at most the target's {} positions, found {}",
                choice.config.max_position, config.prefill);
  }
  RunConfig planned = config;
  planned.methods = {kBaselineMethod};
  planned.gen_len = 0;  // the prompt alone
  const Backend* backend = session.backend.get();
  check_memory(config, plan_memory(plan_input(planned, {choice, {}}, session.dtype, backend)),
               backend);
  std::optional<Tokenizer> tokenizer;
  Encode encode;
  if (const std::filesystem::path file = tokenizer_file(choice); !file.empty()) {
    tokenizer = Tokenizer::open(file, choice.config.vocab);
    encode = [&](std::string_view text) { return tokenizer->encode(text, false); };
  }
  DatasetRequest request{config.dataset,    config.prefill,      1, config.seed,
                         choice.config.bos, choice.config.vocab, {}};
  request.check_stop = throw_if_signalled;
  if (is_published_dataset(config.dataset)) request.downloads = find_data_folder().downloads();
  const Dataset data = load_dataset(request, encode);
  if (data.info.kind == "synthetic" && !tokenizer && !choice.random) {
    print_note(no_tokenizer_note(choice));
  }
  const ModelWeights weights =
      load_model(*session.backend, choice, session.dtype, config.seed, MemTag::kTargetWeights,
                 [&](std::int64_t done, std::int64_t total) {
                   throw_if_signalled();
                   progress.update("load target", done, total, "MB");
                 });
  const double nll = teacher_forced(*session.backend, weights, data.prompts.front().tokens,
                                    config.chunk, progress);
  progress.finish();

  const std::int64_t scored = config.prefill - 1;  // BOS has nothing before it
  const double mean = nll / static_cast<double>(scored);
  JsonWriter out;
  FieldWriter v(out);
  out.begin_object();
  v("schema", std::string("triforce-bench.perplexity/1"));
  v("target", choice.config.name);
  v("dtype", std::string(to_string(session.dtype)));
  v("backend", session.backend->description());
  v("random_weights", weights.random);
  v("source", data.prompts.front().source);
  v("data_sha256", data.info.sha256);
  v("prefill", config.prefill);
  v("nll_per_token", mean);
  v("perplexity", std::exp(mean));
  v("tokens", scored);
  out.end();
  const std::string json = out.take() + "\n";
  OutputWriter outputs;
  outputs.write(files.find("--json"), json);
  outputs.print(config.output_format == OutputFormat::kJson
                    ? json
                    : fmt::format("{} ({}, {}) on {}: nll per token {:.6f}, perplexity {:.4f} over "
                                  "{} tokens after BOS{}\n",
                                  choice.config.name, to_string(session.dtype),
                                  session.backend->description(), data.prompts.front().source, mean,
                                  std::exp(mean), scored,
                                  weights.random ? " (random weights)" : ""));
  return outputs.code();
}

}  // namespace triforce
