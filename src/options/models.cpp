#include "options/models.h"

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

ModelConfig read_config(const std::filesystem::path& file) {
  return parse_model_config(read_file(file, kMaxConfigBytes), file.string());
}

// `option` names the option in messages.
ModelChoice from_folder(const std::filesystem::path& folder, const char* option) {
  if (!is_folder(folder)) {
    throw_input("FileNotFound", "--{}: expected a folder or one of the presets {}, found {}",
                option, fmt::join(preset_names(), ", "), quote_text(folder.string()));
  }
  return {read_checkpoint_config(folder), folder, false};
}

ModelChoice named(const std::string& name, const char* option) {
  const std::optional<ModelConfig> preset = find_preset(name);
  if (!preset || is_folder(name)) return from_folder(name, option);
  const std::filesystem::path download = find_data_folder().downloaded_model(name);
  if (!is_folder(download)) return {*preset, {}, false};
  ModelChoice choice = from_folder(download, option);
  choice.config.name = name;
  return choice;
}

ModelChoice random_model(const std::string& name, const char* option) {
  if (const std::optional<ModelConfig> preset = find_preset(name)) return {*preset, {}, true};
  const std::filesystem::path file = is_folder(name) ? name + "/config.json" : name;
  if (!is_file(file)) {
    throw_input("FileNotFound", "--{}: expected a config.json or one of the presets {}, found {}",
                option, fmt::join(preset_names(), ", "), quote_text(name));
  }
  ModelChoice choice{read_config(file), {}, true};
  if (choice.config.name.empty()) {
    choice.config.name = std::filesystem::absolute(file).parent_path().filename().string();
  }
  return choice;
}

ModelChoice choose_draft(const RunConfig& config) {
  if (!config.random_draft.empty()) return random_model(config.random_draft, "random-draft");
  if (!config.draft.empty()) return named(config.draft, "draft");
  if (config.builtin_pair()) {
    ModelChoice choice = from_folder(find_data_folder().builtin_draft(), "draft");
    choice.config.name = "built-in drafter";
    return choice;
  }
  if (!config.random_weights.empty() && find_preset(config.random_weights)) {
    return random_model("llama-68M", "random-draft");
  }
  if (find_preset(config.target) && !is_folder(config.target)) return named("llama-68M", "draft");
  throw_usage(
      "--draft: expected a drafter for this target and --method, found none; name one with "
      "--draft or --random-draft, or leave out {}",
      method_names([](const MethodSpec& m) { return m.uses(Pass::kDraft); }));
}

std::int64_t builtin_positions() {
  return read_config(find_data_folder().builtin_target() / "config.json").max_position;
}

[[noreturn]] void throw_missing(const RunConfig& config, const ModelPair& pair, bool target,
                                bool draft) {
  std::string names, options, instead;
  const auto add = [&](const char* option, const std::string& name) {
    options += fmt::format("{}--{} {}", options.empty() ? "" : " and ", option, name);
    names += (names.empty() ? "" : " ") + name;
  };
  if (target) add("target", pair.target.config.name);
  if (draft) add("draft", pair.draft->config.name);
  if (target && config.target_implied) {
    options = fmt::format(
        "--prefill {} and what is generated take more than the built-in pair's {} positions, hence "
        "{}",
        config.prefill, builtin_positions(), options);
  }
  throw_input("FileNotFound",
              "{}: expected model files in {}, found none; fetch them with "
              "scripts/download_models.sh {}, or make weights in memory with --random-{} {}",
              options, find_data_folder().downloaded_model("").string(), names,
              target ? "weights" : "draft",
              target ? pair.target.config.name : pair.draft->config.name);
}

void check_on_chip(const RunConfig& config, const ModelConfig& target) {
  if (config.on_chip && *config.on_chip > target.layers) {
    throw_usage("--on-chip: expected auto or 0 to {}, the layers of {}, found {}", target.layers,
                target.name, *config.on_chip);
  }
}

}  // namespace

std::string default_target(std::int64_t positions) {
  constexpr const char* kLarge = "llama-7B-128K";
  const bool fits = positions <= builtin_positions();
  return fits || positions > find_preset(kLarge)->max_position ? "" : kLarge;
}

ModelPair choose_models(const RunConfig& config, bool want_draft) {
  ModelPair pair;
  if (!config.random_weights.empty()) {
    pair.target = random_model(config.random_weights, "random-weights");
  } else if (!config.target.empty()) {
    pair.target = named(config.target, "target");
  } else {
    pair.target = from_folder(find_data_folder().builtin_target(), "target");
    pair.target.config.name = "built-in target";
  }
  check_on_chip(config, pair.target.config);
  if (want_draft) pair.draft = choose_draft(config);
  return pair;
}

void open_weights(const RunConfig& config, const ModelPair& models) {
  const bool no_target = models.target.is_absent();
  const bool no_draft = models.draft && models.draft->is_absent();
  if (no_target || no_draft) throw_missing(config, models, no_target, no_draft);
  if (!models.target.random) Checkpoint::open(models.target.folder);
  if (models.draft && !models.draft->random) Checkpoint::open(models.draft->folder);
}

ModelWeights load_model(Backend& backend, const ModelChoice& choice, DType dtype,
                        std::uint64_t seed, MemTag tag, const LoadProgress& progress,
                        const Shard& shard) {
  if (choice.random) {
    return random_weights(backend, choice.config, dtype, seed, tag, progress, shard);
  }
  const Checkpoint checkpoint = Checkpoint::open(choice.folder);
  ModelWeights weights = load_weights(backend, checkpoint, dtype, tag, progress, shard);
  weights.config.name = choice.config.name;
  return weights;
}

void check_prompt_start(const ModelConfig& target) {
  if (target.bos >= 0) return;
  throw_input("UnsupportedConfig",
              "{}: bos_token_id: expected the id of the token that begins a prompt, found none",
              target.name);
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

}  // namespace triforce
