// Texts of a config.json for tests.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/checkpoint/test_files.h"
#include "triforce/checkpoint.h"

namespace triforce::testing_files {

// A small valid config with one member replaced ("key": value), added, or removed (value empty).
inline std::string config(const std::string& key = "", const std::string& value = "") {
  const std::vector<std::pair<std::string, std::string>> base = {
      {"architectures", R"(["LlamaForCausalLM"])"},
      {"hidden_size", "64"},
      {"intermediate_size", "96"},
      {"max_position_embeddings", "2048"},
      {"num_attention_heads", "4"},
      {"num_hidden_layers", "2"},
      {"rms_norm_eps", "1e-6"},
      {"vocab_size", "100"}};
  std::string out;
  bool found = false;
  const auto add = [&](const std::string& k, const std::string& v) {
    if (!v.empty()) out += fmt::format("{}\"{}\": {}", out.empty() ? "" : ", ", k, v);
  };
  for (const auto& [k, v] : base) {
    found = found || k == key;
    add(k, k == key ? value : v);
  }
  if (!found && !key.empty()) add(key, value);
  return "{" + out + "}";
}

inline ModelConfig parse(std::string_view text) { return parse_model_config(text, "config.json"); }
inline std::string kind(const std::string& text) {
  return verdict([&] { parse(text); });
}

}  // namespace triforce::testing_files
