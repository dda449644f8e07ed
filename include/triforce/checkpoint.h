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
  bool operator==(const RopeScaling&) const = default;
};
constexpr auto names_of(RopeScaling::Kind /*any*/) {
  return std::array{"none", "linear", "yarn", "llama3"};
}

// Models that are a Llama but for what has_qkv_bias() and has_head_norms() say. Their sources are
// the classes of transformers of these names.
enum class Architecture : std::uint8_t { kLlama, kMistral, kQwen2, kQwen3 };
constexpr auto names_of(Architecture /*any*/) {
  return std::array{"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                    "Qwen3ForCausalLM"};
}

inline constexpr double kMaxRopeFactor = 1e6;              // of a RopeScaling
inline constexpr std::int64_t kMaxPositions = 16'777'216;  // of a configuration that is accepted
inline constexpr int kMaxLayers = 512;                     // of a configuration that is accepted
inline constexpr std::int64_t kMaxConfigBytes = 1 << 20;   // of a config.json

struct ModelConfig {
  std::string name;  // preset name or folder name, for reports
  Architecture architecture = Architecture::kLlama;
  int layers = 0;
  std::int64_t hidden = 0, intermediate = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t max_position = 0;  // tokens, as config.json says: some mean those before scaling
  double rms_norm_eps = 1e-5, rope_theta = 10000.0;
  RopeScaling rope;
  bool tied_embeddings = false;
  // Rows of the checkpoint's tables where a drafter takes a larger vocabulary, that of its target:
  // the others are never proposed. 0: `vocab` of them.
  std::int64_t stored_vocab = 0;
  std::int32_t bos = 1;  // -1: none
  std::vector<std::int32_t> eos = {2};
  bool eos_of_generation = false;    // they are those of generation_config.json alone
  DType stored_dtype = DType::kF16;  // torch_dtype
  // Notes tell a reader of results how the files were read, one line each.
  std::vector<std::string> notes;

  // Products for q, k and v have a bias each.
  bool has_qkv_bias() const { return architecture == Architecture::kQwen2; }
  // Heads of q and of k are normalised before the rotary embedding.
  bool has_head_norms() const { return architecture == Architecture::kQwen3; }

  // Tokens that the rotary embedding reaches: factor times the length before linear scaling or
  // YaRN, and at least max_position.
  std::int64_t positions() const;

  std::int64_t parameters() const;
  // Bytes of one token of KV cache at `dtype`: 2 layers kv_heads head_dim size.
  std::int64_t kv_bytes_per_token(DType dtype) const;
  // Elements of the biases and head norms of a layer as they are held, in f32: a norm for each
  // head.
  std::int64_t head_vectors() const;
  // Elements of the bias of the output head, f32, which only a stored_vocab needs.
  std::int64_t head_biases() const;
  // Bytes of all weights at `dtype` (norms and biases as f32). A tied embedding counts once.
  std::int64_t weight_bytes(DType dtype) const;
};

// Parses and bounds-checks the text of a config.json; `path` is for messages only.
// Throws Error(kBadInput) with kind InvalidConfig, UnsupportedConfig, LimitExceeded or
// DuplicateKey.
ModelConfig parse_model_config(std::string_view json, const std::string& path);
// Reads and parses a file. Throws also what reading it throws.
ModelConfig read_model_config(const std::filesystem::path& file);
// Takes the end-of-text ids of a generation_config.json where it has some, as generate() of
// transformers does; a note says so if they are others. Nothing else of it is read.
// Throws as parse_model_config().
void apply_generation_config(std::string_view json, const std::string& path, ModelConfig& config);

// The paper's pair (arXiv 2404.11912), two of the presets: the target is that of prompts that are
// too long for the built-in one.
inline constexpr std::string_view kPaperTarget = "llama-7B-128K", kPaperDrafter = "llama-68M";

// A preset is a published model with a name, so that plan and random weights need no file. All are
// in data/presets.json; their source is their model cards' config.json. nullopt: no preset has that
// name.
std::optional<ModelConfig> find_preset(std::string_view name);
std::vector<std::string> preset_names();
// The preset that drafts for it where no other is named. nullopt: it has none, or is none.
std::optional<std::string> drafter_of_preset(std::string_view name);

// TensorInfo is one tensor of a safetensors file. Its dtype is the file's own name ("F16",
// "F8_E4M3", ...).
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
// Parses the header from memory, for fuzzing. `bytes` is the whole file, or as much of it as
// exists.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes,
                                           std::int64_t file_bytes, const std::string& path,
                                           const SafetensorsLimits& limits = {});

// The config.json of a folder in Hugging Face layout, and its generation_config.json if there is
// one, as Checkpoint::open() reads them; the folder may lack weights. Throws Error(kBadInput).
ModelConfig read_checkpoint_config(const std::filesystem::path& dir);

// The system's page cache keeps or drops bytes that were read.
enum class PageCache : std::uint8_t { kKeep, kDrop };

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
  std::vector<std::string> files() const;  // base names of the weight files that are used
  // The notes of config(), and what else is odd, e.g. total_size that does not add up.
  const std::vector<std::string>& warnings() const;
  // Reads rows [row_begin, row_begin + rows) of a tensor (1-D tensors: elements) whose shape must
  // be `expected_shape`; dtype must be F32, F16 or BF16 and comes back in `dtype`. out is resized.
  // Throws Error(kBadInput): MissingTensor, ShapeMismatch, UnsupportedDtype, FileChanged,
  // ReadError.
  void read_rows(std::string_view name, std::span<const std::int64_t> expected_shape,
                 std::int64_t row_begin, std::int64_t rows, std::vector<std::byte>& out,
                 DType& dtype, PageCache cache = PageCache::kKeep) const;
  // Checks that the tensors a model of config() needs are there, with their shapes, and none that
  // another architecture would compute with: a bias or a norm that its own does not have, a scale
  // of a quantized matrix. The error lists the first ten missing or mismatched (kind: that of the
  // first), else the first ten that are too many ("UnsupportedTensor"). Other unneeded tensors are
  // warnings of open(). Reads no payload.
  void check_llama_tensors() const;
  // Checks that a head that is stored beside tied embeddings equals them: which of the two counts
  // differs between versions of transformers. Reads both if there are two.
  // Throws Error(kBadInput, "UnsupportedTensor"), and as read_rows().
  void check_tied_head() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace triforce
