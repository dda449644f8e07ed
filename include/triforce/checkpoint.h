// Model configurations and checkpoints on disk, validated before anything is allocated from them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/tensor.h"

namespace triforce {

// `rope_scaling` of config.json. "dynamic" is refused: its angles change with the length, so that
// cached keys would be wrong.
struct RopeScaling {
  enum class Kind : std::uint8_t { kNone, kLinear, kYarn, kLlama3 } kind = Kind::kNone;
  double factor = 1.0;
  std::int64_t original_max_position = 0;                // yarn, llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  std::optional<double> attention_factor;                // yarn; default 0.1 ln(factor) + 1
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
};
constexpr auto names_of(RopeScaling::Kind /*any*/) {
  return std::array{"none", "linear", "yarn", "llama3"};
}

inline constexpr int kMaxLayers = 512;  // of a configuration that is accepted

struct ModelConfig {
  std::string name;  // preset name or folder name, for reports
  int layers = 0;
  std::int64_t hidden = 0, intermediate = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t max_position = 0;  // tokens
  double rms_norm_eps = 1e-5, rope_theta = 10000.0;
  RopeScaling rope;
  bool tied_embeddings = false;
  std::int32_t bos = 1;  // -1: none
  std::vector<std::int32_t> eos = {2};
  DType stored_dtype = DType::kF16;  // torch_dtype

  std::int64_t parameters() const;
  // Bytes of one token of KV cache at `dtype`: 2 layers kv_heads head_dim size.
  std::int64_t kv_bytes_per_token(DType dtype) const;
  // Bytes of all weights at `dtype` (norms as f32). A tied embedding counts twice: the output head
  // is held in a layout of its own.
  std::int64_t weight_bytes(DType dtype) const;
};

// Parses and bounds-checks the text of a config.json; `path` is for messages only.
// Throws Error(kBadInput) with kind InvalidConfig, UnsupportedConfig, LimitExceeded or
// DuplicateKey.
ModelConfig parse_model_config(std::string_view json, const std::string& path);

// Published architectures by name, so that plan and random weights need no file:
// llama-7B-128K, llama-13B-128K, lwm-128K, lwm-128K-base, llama-68M. Sources: their model cards'
// config.json. nullopt: no such preset.
std::optional<ModelConfig> find_preset(std::string_view name);
std::vector<std::string> preset_names();

// One tensor of a safetensors file; dtype is the file's own name ("F16", "F8_E4M3", ...).
struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // absolute byte offsets in the file
};

// The validated header of one .safetensors file.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // sorted by offset
  std::int64_t file_bytes = 0;
};
struct SafetensorsLimits {
  std::int64_t header_bytes = 16 << 20;
};
// Reads and validates a header by the rules of the format and this project's stricter ones.
// Throws Error(kBadInput) with the error class as kind; tests/cases holds golden verdicts.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& file,
                                          const SafetensorsLimits& limits = {});
// The same from memory: `bytes` is the whole file, or as much of it as exists; for fuzzing.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes,
                                           std::int64_t file_bytes, const std::string& path,
                                           const SafetensorsLimits& limits = {});

// The config.json of a folder in Hugging Face layout, as Checkpoint::open() reads it; the folder
// may lack weights. Throws Error(kBadInput).
ModelConfig read_checkpoint_config(const std::filesystem::path& dir);

// A folder in Hugging Face layout: config.json and model.safetensors, or shards with an index.
class Checkpoint {
 public:
  // Validates everything but tensor payloads. A folder with only .bin files throws
  // Error(kBadInput, "UnsupportedCheckpoint") naming scripts/convert_checkpoint.py.
  static Checkpoint open(const std::filesystem::path& dir, const SafetensorsLimits& limits = {});
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const ModelConfig& config() const;
  const std::filesystem::path& dir() const;
  const std::string& config_sha256() const;  // hex digest of config.json
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(std::string_view name) const;  // nullptr: absent
  std::vector<std::string> files() const;            // base names of the weight files that are used
  const std::vector<std::string>& warnings() const;  // e.g. total_size that does not add up
  // Reads rows [row_begin, row_begin + rows) of a tensor (1-D tensors: elements) whose shape must
  // be `expected_shape`; dtype must be F32, F16 or BF16 and comes back in `dtype`. out is resized.
  // Throws Error(kBadInput): MissingTensor, ShapeMismatch, UnsupportedDtype, FileChanged,
  // ReadError.
  void read_rows(std::string_view name, std::span<const std::int64_t> expected_shape,
                 std::int64_t row_begin, std::int64_t rows, std::vector<std::byte>& out,
                 DType& dtype) const;
  // Checks that exactly the tensors a Llama of config() needs are there, with their shapes; the
  // error lists the first ten missing or mismatched (kind: that of the first). Unneeded tensors are
  // warnings of open().
  void check_llama_tensors() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace triforce
