#include "app/models.h"

#include <system_error>

#include "core/file.h"
#include "core/utf8.h"

namespace triforce {
namespace {

constexpr std::int64_t kMaxConfigBytes = 1 << 20;

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}
bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

std::string preset_list() {
  std::string list;
  for (const std::string& name : preset_names()) list += (list.empty() ? "" : ", ") + name;
  return list;
}

ModelConfig read_config(const std::filesystem::path& file) {
  return parse_model_config(read_file(file, kMaxConfigBytes), file.string());
}

// `option` names the option in messages.
ModelChoice from_folder(const std::filesystem::path& folder, Use use, const char* option) {
  if (!is_folder(folder)) {
    throw_input("FileNotFound", "--{}: expected a folder or one of the presets {}, found {}",
                option, preset_list(), quote_text(folder.string()));
  }
  if (use == Use::kLoad) return {Checkpoint::open(folder).config(), folder, false};
  ModelChoice choice{read_config(folder / "config.json"), {}, false};
  choice.config.name = std::filesystem::absolute(folder / "config.json").parent_path().filename();
  return choice;
}

ModelChoice named(const std::string& name, Use use, const char* option) {
  const std::optional<ModelConfig> preset = find_preset(name);
  if (!preset || is_folder(name)) return from_folder(name, use, option);
  if (use == Use::kPlan) return {*preset, {}, false};
  const std::filesystem::path folder = find_data_folder().downloaded_model(name);
  if (!is_folder(folder)) {
    throw_input("FileNotFound",
                "--{} {}: expected its files in {}, found none; fetch them with "
                "scripts/download_models.sh {}, or use --random-weights",
                option, name, folder.string(), name);
  }
  ModelChoice choice = from_folder(folder, use, option);
  choice.config.name = name;
  return choice;
}

ModelChoice random_model(const std::string& name, const char* option) {
  if (const std::optional<ModelConfig> preset = find_preset(name)) return {*preset, {}, true};
  const std::filesystem::path file = is_folder(name) ? name + "/config.json" : name;
  if (!is_file(file)) {
    throw_input("FileNotFound", "--{}: expected a config.json or one of the presets {}, found {}",
                option, preset_list(), quote_text(name));
  }
  ModelChoice choice{read_config(file), {}, true};
  if (choice.config.name.empty()) {
    choice.config.name = std::filesystem::absolute(file).parent_path().filename().string();
  }
  return choice;
}

ModelChoice choose_draft(const RunConfig& config, Use use) {
  if (!config.random_draft.empty()) return random_model(config.random_draft, "random-draft");
  if (!config.draft.empty()) return named(config.draft, use, "draft");
  if (config.builtin_pair()) {
    ModelChoice choice = from_folder(find_data_folder().builtin_draft(), use, "draft");
    choice.config.name = "built-in drafter";
    return choice;
  }
  if (!config.random_weights.empty() && find_preset(config.random_weights)) {
    return random_model("llama-68M", "random-draft");
  }
  if (find_preset(config.target) && !is_folder(config.target))
    return named("llama-68M", use, "draft");
  throw_usage(
      "--draft: expected a drafter for this target and --method, found none; name one with "
      "--draft or --random-draft, or leave out triforce and draft");
}

}  // namespace

ModelPair choose_models(const RunConfig& config, Use use, bool want_draft) {
  ModelPair pair;
  if (!config.random_weights.empty()) {
    pair.target = random_model(config.random_weights, "random-weights");
  } else if (!config.target.empty()) {
    pair.target = named(config.target, use, "target");
  } else {
    pair.target = from_folder(find_data_folder().builtin_target(), use, "target");
    pair.target.config.name = "built-in target";
  }
  if (config.on_chip && *config.on_chip != pair.target.config.layers) {
    throw_usage(
        "--on-chip: expected auto or {}, all layers of the target, found {}; keeping layers "
        "elsewhere needs the CUDA backend",
        pair.target.config.layers, *config.on_chip);
  }
  if (!want_draft) return pair;
  pair.draft = choose_draft(config, use);
  if (pair.draft->config.vocab != pair.target.config.vocab) {
    throw_usage("--draft: expected the target's vocabulary of {} tokens, found {}",
                pair.target.config.vocab, pair.draft->config.vocab);
  }
  return pair;
}

ModelWeights load_model(Backend& backend, const ModelChoice& choice, DType dtype,
                        std::int64_t rope_positions, std::uint64_t seed, MemTag tag,
                        const LoadProgress& progress) {
  if (choice.random) {
    return random_weights(backend, choice.config, dtype, rope_positions, seed, tag, progress);
  }
  const Checkpoint checkpoint = Checkpoint::open(choice.folder);
  ModelWeights weights = load_weights(backend, checkpoint, dtype, rope_positions, tag, progress);
  weights.config.name = choice.config.name;
  return weights;
}

std::filesystem::path tokenizer_file(const ModelChoice& target) {
  if (target.folder.empty()) return {};
  std::filesystem::path file = target.folder / "tokenizer.model";
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::symlink_status(file, error);
  if (found.type() == std::filesystem::file_type::not_found) return {};
  InputFile::open(file);  // throws unless it is a file that can be read
  return file;
}

std::string no_tokenizer_note(const ModelChoice& target) {
  return fmt::format("{}: expected a tokenizer.model, found none: bytes of text are taken as ids",
                     quote_text(target.folder.string()));
}

}  // namespace triforce
