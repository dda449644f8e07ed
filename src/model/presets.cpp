// This reads data/presets.json, which the build makes a text of the program.
// Tests: tests/model/checkpoint/config_test.cpp
#include <algorithm>

#include "core/strict_json.h"
#include "model/model_config.h"
#include "presets_json.h"

namespace triforce {
namespace {

struct Preset {
  ModelConfig config;
  std::optional<std::string> drafter;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    const std::string source = "presets.json";
    const JsonValue value = parse_json(kPresetsJson, source, {});
    const JsonView root(value, source, "InvalidConfig");
    std::vector<Preset> read;
    for (const JsonView& at : root.at("presets").items()) {
      Preset& preset = read.emplace_back();
      preset.config = model_config_of(at.at("config"));
      preset.config.name = at.at("name").string();
      if (const auto drafter = at.find("drafter")) preset.drafter = drafter->string();
    }
    return read;
  }();
  return all;
}

const Preset* find(std::string_view name) {
  const auto found =
      std::ranges::find(presets(), name, [](const Preset& p) { return p.config.name; });
  return found == presets().end() ? nullptr : &*found;
}

}  // namespace

std::optional<ModelConfig> find_preset(std::string_view name) {
  const Preset* const preset = find(name);
  return preset == nullptr ? std::nullopt : std::optional(preset->config);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : presets()) names.push_back(p.config.name);
  return names;
}

std::optional<std::string> drafter_of_preset(std::string_view name) {
  const Preset* const preset = find(name);
  return preset == nullptr ? std::nullopt : preset->drafter;
}

}  // namespace triforce
