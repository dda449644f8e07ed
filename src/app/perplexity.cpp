#include <cmath>
#include <limits>

#include "app/commands.h"
#include "app/input_files.h"
#include "app/output.h"
#include "app/output_file.h"
#include "app/plan_report.h"
#include "app/prepare.h"
#include "app/progress.h"
#include "app/signals.h"
#include "core/fields.h"
#include "core/utf8.h"
#include "decode/teacher_forced.h"
#include "measure/prompts.h"
#include "options/models.h"
#include "options/option_kinds.h"
#include "options/tokenizers.h"

namespace triforce {

namespace {

std::vector<std::string> notes_of(const Prepared& prepared) {
  std::vector<std::string> notes = labelled_notes(prepared.models);
  const PlanInput& plan = prepared.plan;
  std::string note = note_on_target(plan.target, plan.options, plan.run);
  if (!note.empty()) notes.push_back(std::move(note));
  return notes;
}

}  // namespace

ExitCode perplexity_command(const RunConfig& config) {
  RunConfig prompt_alone = config;
  prompt_alone.methods = {kBaselineMethod};
  prompt_alone.gen_len = 0;
  prompt_alone.prompts = 1;
  OutputFiles files(output_requests(config), input_files(config));
  Progress progress(config.progress);
  Prepared prepared = prepare(prompt_alone);
  const Session& session = prepared.session;
  ModelChoice& choice = prepared.models.target;
  open_weights(config, prepared.models);
  check_memory(config, plan_teacher_forced(prepared.plan, config.chunk), session.backend.get());
  const std::optional<Tokenizer> tokenizer = open_tokenizer(choice, is_of_text(config.dataset));
  const Dataset data = load_prompts({prompt_alone, choice, tokenizer,
                                     std::numeric_limits<std::int64_t>::max(), throw_if_signalled},
                                    print_note);
  const ModelWeights weights =
      load_model(*session.backend, choice, session.dtype, config.seed, MemTag::kTargetWeights,
                 [&](std::int64_t done, std::int64_t total) {
                   throw_if_signalled();
                   progress.update("load target", done, total, "MB");
                 });
  const double nll = teacher_forced_nll(
      *session.backend, weights, data.prompts.front().tokens, config.chunk, [&](std::int64_t fed) {
        throw_if_signalled();
        progress.update("perplexity", fed, config.prefill, "tokens");
      });
  progress.finish();

  const std::vector<std::string> notes = notes_of(prepared);
  for (const std::string& note : notes) print_note(note);
  const std::int64_t scored = config.prefill - 1;  // the first has nothing before it
  const double mean = nll / static_cast<double>(scored);
  JsonWriter out;
  FieldWriter v(out);
  out.begin_object();
  v("schema", std::string("triforce-bench.perplexity/1"));
  v("target", choice.config.name);
  v("rope_scaling",
    config.rope_scaling ? std::optional(yarn_text(*config.rope_scaling)) : std::nullopt);
  v("dtype", std::string(to_string(session.dtype)));
  v("backend", session.backend->description());
  v("random_weights", weights.random);
  v("source", data.prompts.front().source);
  v("data_sha256", data.info.sha256);
  v("prefill", config.prefill);
  v("nll_per_token", mean);
  v("perplexity", std::exp(mean));
  v("tokens", scored);
  v("notes", notes);
  out.end();
  const std::string json = out.take() + "\n";
  return write_document(
      config, files, json,
      fmt::format("{} ({}, {}) on {}: nll per token {:.6f}, perplexity {:.4f} over {} tokens after "
                  "{}{}\n",
                  printable(choice.config.name), to_string(session.dtype),
                  session.backend->description(), printable(data.prompts.front().source), mean,
                  std::exp(mean), scored, choice.config.bos < 0 ? "the first" : "BOS",
                  weights.random ? " (random weights)" : ""));
}

}  // namespace triforce
