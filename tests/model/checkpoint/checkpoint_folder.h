// Folders of a tiny checkpoint for tests.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/test_files.h"
#include "model/llama_tensors.h"
#include "triforce/checkpoint.h"

namespace triforce::testing_files {

inline constexpr std::string_view kConfig =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 32,
  "intermediate_size": 48, "max_position_embeddings": 128, "num_attention_heads": 2,
  "num_key_value_heads": 1, "num_hidden_layers": 2, "rms_norm_eps": 1e-6, "vocab_size": 20})";

struct Stored {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
};

inline std::vector<Stored> llama(const std::string& dtype = "F32",
                                 std::string_view config = kConfig) {
  std::vector<Stored> out;
  for (const NamedShape& t : llama_tensors(parse_model_config(config, "config.json"))) {
    out.push_back({t.name, dtype, t.shape});
  }
  return out;
}

// A file of these tensors; the data of an F32 one count up from `first`.
inline std::string file_of(const std::vector<Stored>& tensors, float first = 0) {
  std::string header, data;
  for (const Stored& t : tensors) {
    std::int64_t count = 1;
    for (const std::int64_t d : t.shape) count *= d;
    const std::size_t begin = data.size();
    if (t.dtype == "F32") {
      for (std::int64_t i = 0; i < count; ++i) {
        const float x = first + static_cast<float>(i);
        data.append(reinterpret_cast<const char*>(&x), sizeof x);
      }
    } else {
      data.append(static_cast<std::size_t>(count) * (t.dtype == "I64" ? 8 : 2), '\0');
    }
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "" : ",", t.name, t.dtype, fmt::join(t.shape, ","),
                          begin, data.size());
  }
  return safetensors_bytes(fmt::format("{{{}}}", header), 0) + data;
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override { folder_.write("config.json", kConfig); }
  const std::filesystem::path& dir() const { return folder_.path(); }
  void write(const std::string& name, std::string_view bytes) const { folder_.write(name, bytes); }
  std::string open_verdict() const {
    return verdict([&] { Checkpoint::open(dir()).check_llama_tensors(); });
  }
  std::string open_message() const {
    return message([&] { Checkpoint::open(dir()).check_llama_tensors(); });
  }
  // Two shards with half of the tensors each, and an index of `map` (or the right one).
  void write_shards(const std::string& index = "") const {
    const std::vector<Stored> all = llama();
    const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
    const std::vector<Stored> a(all.begin(), all.begin() + half), b(all.begin() + half, all.end());
    write(kA, file_of(a));
    write(kB, file_of(b));
    write("model.safetensors.index.json", index.empty() ? right_index() : index);
  }
  static std::string right_index(std::uint64_t total_size = 0) {
    const std::vector<Stored> all = llama();
    std::string map;
    for (std::size_t i = 0; i < all.size(); ++i) {
      map += fmt::format(R"({}"{}": "{}")", i == 0 ? "" : ",", all[i].name,
                         i < all.size() / 2 ? kA : kB);
    }
    const std::string metadata =
        total_size == 0 ? "" : fmt::format(R"("metadata": {{"total_size": {}}}, )", total_size);
    return fmt::format(R"({{{}"weight_map": {{{}}}}})", metadata, map);
  }
  static constexpr const char* kA = "model-00001-of-00002.safetensors";
  static constexpr const char* kB = "model-00002-of-00002.safetensors";
  TemporaryFolder folder_;
};

}  // namespace triforce::testing_files
