// Tests: tests/cli/data_test.py, tests/cli/tuning_test.py
#include "measure/prompts.h"

#include "core/utf8.h"
#include "measure/tuner.h"

namespace triforce {
namespace {

// `prompts` of them, with another seed if need be.
Dataset load(const PromptSource& s, std::int64_t prompts, std::uint64_t seed) {
  const RunConfig& c = s.config;
  DatasetRequest request{c.dataset,
                         c.prefill,
                         prompts,
                         seed,
                         s.target.config.bos,
                         s.target.config.vocab,
                         {},
                         s.max_bytes,
                         s.check_stop,
                         c.text_field,
                         c.needle_depth,
                         c.gen_len,
                         c.turn,
                         c.stride};
  if (is_published_dataset(c.dataset)) request.downloads = find_data_folder().downloads();
  Encode encode;
  if (s.tokenizer) encode = [&](std::string_view text) { return s.tokenizer->encode(text); };
  return load_dataset(request, encode);
}

}  // namespace

// As many as fill batches.
Dataset load_prompts(const PromptSource& source,
                     const std::function<void(const std::string&)>& note) {
  Dataset data = load(source, source.config.prompts, source.config.seed);
  if (data.info.bytes_as_ids && !source.target.random) {
    note(
        fmt::format("{}: expected a tokenizer.model or tokenizer.json, found none: bytes of text "
                    "are taken as ids",
                    quote_text(source.target.folder.string())));
  }
  const std::int64_t n = std::ssize(data.prompts), batch = source.config.batch;
  if (n < batch) {
    throw_usage("--batch: expected at most the {} prompts of {}, found {}", n,
                quote_text(source.config.dataset), batch);
  }
  if (const std::int64_t rest = n % batch; rest > 0) {
    note(fmt::format("{}: its last {} of {} prompts fill no batch of {} and are left out",
                     quote_text(source.config.dataset), rest, n, batch));
    data.prompts.resize(static_cast<std::size_t>(n - rest));
    data.info.n_prompts = n - rest;
    if (data.info.mean_tokens) data.info.mean_tokens = mean_tokens(data.prompts);
  }
  return data;
}

std::vector<std::vector<Token>> load_tuning_prompts(const PromptSource& source) {
  constexpr std::uint64_t kOtherDocuments = std::uint64_t{1} << 61;
  const RunConfig& c = source.config;
  const bool generated = is_generated_dataset(c.dataset);
  const std::int64_t before = generated ? 0 : c.prompts;
  Dataset data =
      load(source, kTuningPrompts + before, generated ? c.seed ^ kOtherDocuments : c.seed);
  std::vector<std::vector<Token>> prompts;
  for (auto i = before; i < std::ssize(data.prompts); ++i) {
    prompts.push_back(std::move(data.prompts[static_cast<std::size_t>(i)].tokens));
  }
  return prompts;
}

}  // namespace triforce
