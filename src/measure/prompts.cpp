// Tests: tests/cli/data_test.py, tests/cli/tuning_test.py
#include "measure/prompts.h"

#include "core/utf8.h"
#include "measure/tuner.h"

namespace triforce {
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
                     std::function<void()> check_stop,
                     const std::function<void(const std::string&)>& note) {
  Dataset data = load(config, target, tokenizer, max_bytes, std::move(check_stop));
  if (data.info.bytes_as_ids && !target.random) {
    note(fmt::format("{}: expected a tokenizer.model, found none: bytes of text are taken as ids",
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

}  // namespace triforce
