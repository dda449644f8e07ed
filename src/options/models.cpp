#include "options/models.h"

#include <algorithm>
#include <system_error>

#include "core/file.h"
#include "core/utf8.h"
#include "data/datasets.h"
#include "options/tokenizers.h"

namespace triforce {
namespace {

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}
bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

ModelChoice choice_of(ModelConfig config, std::filesystem::path folder, bool random) {
  ModelChoice choice{std::move(config), std::move(folder), random};
  choice.notes = choice.config.notes;
  return choice;
}

// `option` names the option in messages.
ModelChoice from_folder(const std::filesystem::path& folder, const char* option) {
  if (!is_folder(folder)) {
    throw_input("FileNotFound", "--{}: expected a folder or one of the presets {}, found {}",
                option, fmt::join(preset_names(), ", "), quote_text(folder.string()));
  }
  return choice_of(read_checkpoint_config(folder), folder, false);
}

ModelChoice named(const std::string& name, const char* option) {
  const std::optional<ModelConfig> preset = find_preset(name);
  if (!preset || is_folder(name)) return from_folder(name, option);
  // A program without its data folder has no downloads; a preset needs none to be planned.
  const std::optional<DataFolder> data = find_data_folder_if_any();
  const std::filesystem::path download = data ? data->downloaded_model(name) : "";
  if (!is_folder(download)) return {*preset, {}, false};
  ModelChoice choice = from_folder(download, option);
  choice.config.name = name;
  return choice;
}

ModelChoice random_model(const std::string& name, const char* option) {
  if (const std::optional<ModelConfig> preset = find_preset(name)) return {*preset, {}, true};
  const bool folder = is_folder(name);
  const std::filesystem::path file = folder ? name + "/config.json" : name;
  if (!is_file(file)) {
    throw_input("FileNotFound", "--{}: expected a config.json or one of the presets {}, found {}",
                option, fmt::join(preset_names(), ", "), quote_text(name));
  }
  ModelChoice choice =
      choice_of(folder ? read_checkpoint_config(name) : read_model_config(file), {}, true);
  if (choice.config.name.empty()) {
    choice.config.name = std::filesystem::absolute(file).parent_path().filename().string();
  }
  return choice;
}

// Of a target that is a preset; not of a folder, whatever its name.
std::optional<std::string> known_drafter(const RunConfig& config) {
  if (!config.random_weights.empty()) return drafter_of_preset(config.random_weights);
  if (is_folder(config.target)) return std::nullopt;
  return drafter_of_preset(config.target);
}

ModelChoice choose_draft(const RunConfig& config) {
  if (!config.random_draft.empty()) return random_model(config.random_draft, "random-draft");
  if (!config.draft.empty()) return named(config.draft, "draft");
  if (config.builtin_pair()) {
    ModelChoice choice = from_folder(find_data_folder().builtin_draft(), "draft");
    choice.config.name = "built-in drafter";
    return choice;
  }
  if (const auto drafter = known_drafter(config)) {
    return config.random_weights.empty() ? named(*drafter, "draft")
                                         : random_model(*drafter, "random-draft");
  }
  throw_usage(
      "--draft: expected a drafter for this target and --method, found none; name one with "
      "--draft or --random-draft, or leave out {}",
      method_names(&MethodSpec::has_drafter));
}

std::int64_t builtin_positions() {
  return read_model_config(find_data_folder().builtin_target() / "config.json").positions();
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
  const std::optional<DataFolder> data = find_data_folder_if_any();
  throw_input("FileNotFound",
              "{}: expected model files in {}, found none; fetch them with "
              "scripts/download_models.sh {}, or make weights in memory with --random-{} {}",
              options, data ? data->downloaded_model("").string() : "data/downloads/models", names,
              target ? "weights" : "draft",
              target ? pair.target.config.name : pair.draft->config.name);
}

// Empty where one folder lacks such a file, as random weights do, or both have the same one.
std::string note_on_tokenizers(const std::filesystem::path& target,
                               const std::filesystem::path& draft) {
  if (target.empty() || draft.empty()) return {};
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    if (!is_file(target / name) || !is_file(draft / name)) continue;
    if (same_bytes(target / name, draft / name)) return {};
    return fmt::format(
        "its {} is not the target's: ids that mean other text are proposed, and few are accepted",
        name);
  }
  return {};
}

// Whether an id below both vocabularies means the same, and no text has other ids.
bool have_same_ids(const ModelChoice& target, const ModelChoice& draft) {
  if (target.folder.empty() && draft.folder.empty()) {
    return drafter_of_preset(target.config.name) == draft.config.name;
  }
  const std::filesystem::path a = tokenizer_file(target), b = tokenizer_file(draft);
  if (a.empty() || b.empty()) return false;
  const std::int64_t vocab = std::min(target.config.vocab, draft.config.vocab);
  try {
    return Tokenizer::open(a, vocab).has_same_ids(Tokenizer::open(b, vocab));
  } catch (const Error& e) {
    if (e.code() != ExitCode::kBadInput) throw;
    return false;
  }
}

// Vocabularies are padded to different sizes, for the sake of matrices. What a drafter lacks of its
// target's it never proposes; what it has besides is left out.
void take_vocabulary(const ModelChoice& target, ModelChoice& draft) {
  const std::int64_t wanted = target.config.vocab, own = draft.config.vocab;
  if (own == wanted || !have_same_ids(target, draft)) return;
  if (own < wanted && !draft.random) draft.config.stored_vocab = own;
  draft.config.vocab = wanted;
  draft.notes.push_back(fmt::format(
      "its vocabulary of {} ids is taken as the target's {}: both mean the same", own, wanted));
}

void open_checkpoint(ModelChoice& model) {
  if (model.random) return;
  const Checkpoint checkpoint = Checkpoint::open(model.folder);
  checkpoint.check_llama_tensors();
  // They begin with the notes of config.json, which are there already.
  const std::vector<std::string>& warnings = checkpoint.warnings();
  const auto known = std::ssize(checkpoint.config().notes);
  model.notes.insert(model.notes.end(), warnings.begin() + known, warnings.end());
}

void check_on_chip(const RunConfig& config, const ModelConfig& target) {
  if (config.on_chip && *config.on_chip > target.layers) {
    throw_usage("--on-chip: expected auto or 0 to {}, the layers of {}, found {}", target.layers,
                target.name, *config.on_chip);
  }
}

}  // namespace

bool has_draft_model(const RunConfig& config) {
  return config.builtin_pair() || !config.draft.empty() || !config.random_draft.empty() ||
         known_drafter(config);
}

std::string default_target(std::int64_t positions) {
  const bool fits = positions <= builtin_positions();
  return std::string(fits || positions > find_preset(kPaperTarget)->positions() ? ""
                                                                                : kPaperTarget);
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
  if (config.rope_scaling) {
    RopeScaling& own = pair.target.config.rope;
    if (own.kind != RopeScaling::Kind::kNone) {
      throw_usage("--rope-scaling: expected a model without a scaling of its own, found {} of {}",
                  to_string(own.kind), pair.target.config.name);
    }
    own = *config.rope_scaling;
  }
  if (pair.target.config.bos < 0) {
    pair.target.notes.emplace_back("config.json: bos_token_id is null: prompts begin without one");
  }
  if (!want_draft) return pair;
  pair.draft = choose_draft(config);
  take_vocabulary(pair.target, *pair.draft);
  if (std::string note = note_on_tokenizers(pair.target.folder, pair.draft->folder);
      !note.empty()) {
    pair.draft->notes.push_back(std::move(note));
  }
  return pair;
}

void open_weights(const RunConfig& config, ModelPair& models) {
  const bool no_target = models.target.is_absent();
  const bool no_draft = models.draft && models.draft->is_absent();
  if (no_target || no_draft) throw_missing(config, models, no_target, no_draft);
  open_checkpoint(models.target);
  if (models.draft) open_checkpoint(*models.draft);
}

std::vector<std::string> labelled_notes(std::string_view role, const ModelChoice& model) {
  std::vector<std::string> out;
  for (const std::string& note : model.notes) out.push_back(fmt::format("{}: {}", role, note));
  return out;
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

std::vector<std::string> labelled_notes(const ModelPair& models) {
  std::vector<std::string> out = labelled_notes("target", models.target);
  if (!models.draft) return out;
  const std::vector<std::string> of_draft = labelled_notes("drafter", *models.draft);
  out.insert(out.end(), of_draft.begin(), of_draft.end());
  return out;
}

ModelWeights load_model(Backend& backend, const ModelChoice& choice, DType dtype,
                        std::uint64_t seed, MemTag tag, const LoadProgress& progress,
                        const Shard& shard, Quantisation drafts) {
  if (choice.random) {
    return random_weights(backend, choice.config, dtype, seed, tag, progress, shard, drafts);
  }
  const Checkpoint checkpoint = Checkpoint::open(choice.folder);
  return load_weights(backend, checkpoint, choice.config, dtype, tag, progress, shard, drafts);
}

}  // namespace triforce
