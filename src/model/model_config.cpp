// config.json of a Llama, and of what differs from it little, as Hugging Face transformers writes
// it, versions 4 and 5.
// Tests: tests/model/checkpoint/config_test.cpp, tests/model/dialects_test.cpp
#include "model/model_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/file.h"
#include "core/utf8.h"
#include "model/rope_config.h"
#include "triforce/backend.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

constexpr int kMaxDepth = 16;

std::int64_t integer_or(const JsonView& root, const char* key, std::int64_t fallback,
                        std::int64_t min, std::int64_t max) {
  const auto v = root.find_value(key);
  return v ? v->integer(min, max) : fallback;
}

bool boolean_or(const JsonView& root, const char* key, bool fallback) {
  const auto v = root.find_value(key);
  return v ? v->boolean() : fallback;
}

constexpr std::array kArchitectures = {Architecture::kLlama, Architecture::kMistral,
                                       Architecture::kQwen2, Architecture::kQwen3};
constexpr std::string_view model_type_of(Architecture architecture) {
  constexpr std::array<std::string_view, 4> kTypes = {"llama", "mistral", "qwen2", "qwen3"};
  return kTypes.at(static_cast<std::size_t>(architecture));
}

Architecture read_architecture(const JsonView& root) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  for (const JsonView& name : root.at("architectures").items()) names.push_back(name.string());
  for (const Architecture known : kArchitectures) {
    if (names.size() != 1 || names.front() != to_string(known)) continue;
    const std::string_view of_it = model_type_of(known);
    const auto type = root.find_value("model_type");
    if (type && type->string() != of_it) {
      unsupported(*type, fmt::format("only \"{}\" is supported of {}", of_it, to_string(known)));
    }
    return known;
  }
  std::string supported, found;
  for (const Architecture known : kArchitectures) {
    supported += fmt::format("{}[\"{}\"]", supported.empty() ? "" : ", ", to_string(known));
  }
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    found += (i == 0 ? "" : ", ") + quote_text(names[i]);
  }
  throw_input("UnsupportedConfig", "{}: architectures: expected one of {}, found [{}{}]",
              root.source(), supported, found, names.size() > kShown ? ", ..." : "");
}

// Attention over a part of the context, which no layer may have.
void check_full_attention(const JsonView& root, Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:  // reads none of these
      return;
    case Architecture::kMistral:
      if (const auto window = root.find("sliding_window"); !window || !window->is_null()) {
        throw_input("UnsupportedConfig",
                    "{}: sliding_window: expected null, found {}: attention within a window is not "
                    "supported",
                    root.source(), window ? describe(window->value()) : "none, which means 4096");
      }
      break;
    case Architecture::kQwen2:
    case Architecture::kQwen3:
      if (boolean_or(root, "use_sliding_window", false)) {
        unsupported(root.at("use_sliding_window"), "attention within a window is not supported");
      }
      if (const auto chunks = root.find_value("dual_chunk_attention_config")) {
        unsupported(*chunks, "dual chunk attention is not supported");
      }
      break;
  }
  // A Mistral with such layers is another class of transformers.
  if (const auto types = root.find_value("layer_types")) {
    for (const JsonView& type : types->items()) {
      if (type.string() != "full_attention") {
        unsupported(type, "only \"full_attention\" is supported");
      }
    }
  }
}

void check_layers(const JsonView& root, Architecture architecture) {
  if (const auto act = root.find_value("hidden_act"); act && act->string() != "silu") {
    unsupported(*act, "only \"silu\" is supported");
  }
  if (const auto q = root.find_value("quantization_config")) {
    unsupported(*q, "quantized checkpoints are not supported");
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (boolean_or(root, key, false)) {
      unsupported(root.at(key), "linear layers with a bias are not supported");
    }
  }
  check_full_attention(root, architecture);
}

void read_shape(const JsonView& root, ModelConfig& c) {
  c.hidden = root.at("hidden_size").integer(1, 65'536);
  c.layers = static_cast<int>(root.at("num_hidden_layers").integer(1, kMaxLayers));
  c.heads = static_cast<int>(root.at("num_attention_heads").integer(1, 1'024));
  // What others than a Llama have where these keys are missing depends on their class.
  const bool is_llama = c.architecture == Architecture::kLlama;
  if (!is_llama) root.at("num_key_value_heads");
  c.kv_heads = static_cast<int>(integer_or(root, "num_key_value_heads", c.heads, 1, c.heads));
  if (c.heads % c.kv_heads != 0) {
    root.at("num_key_value_heads").fail(fmt::format("a divisor of {} heads", c.heads));
  }
  if (c.has_head_norms()) root.at("head_dim");
  const auto explicit_dim = root.find_value("head_dim");
  if (!explicit_dim && c.hidden % c.heads != 0) {
    root.at("hidden_size").fail(fmt::format("a multiple of {} heads", c.heads));
  }
  const std::int64_t head_dim =
      explicit_dim ? explicit_dim->integer(1, 65'536) : c.hidden / c.heads;
  if (head_dim % 16 != 0 || head_dim > 256) {
    throw_input("UnsupportedConfig",
                "{}: head_dim is {}: only multiples of 16 from 16 to 256 are supported",
                root.source(), head_dim);
  }
  c.head_dim = static_cast<int>(head_dim);
  c.intermediate = root.at("intermediate_size").integer(1, 1'048'576);
  c.vocab = root.at("vocab_size").integer(2, 1'048'576);
  c.max_position = root.at("max_position_embeddings").integer(1, kMaxPositions);
  c.rms_norm_eps = root.at("rms_norm_eps").number();
  if (!(c.rms_norm_eps > 0 && c.rms_norm_eps < 1e-1)) {
    root.at("rms_norm_eps").fail("a number in (0, 0.1)");
  }
  c.tied_embeddings = boolean_or(root, "tie_word_embeddings", false);
}

std::int32_t read_id(const JsonView& at, const ModelConfig& c) {
  return static_cast<std::int32_t>(at.integer(0, c.vocab - 1));
}

// Reads an id, a list of ids, or null, which is none.
std::vector<std::int32_t> read_eos(const JsonView& at, const ModelConfig& c) {
  if (at.is_null()) return {};
  if (!at.is_array()) return {read_id(at, c)};
  if (at.value().items().size() > 64) at.fail("at most 64 ids");
  std::vector<std::int32_t> ids;
  for (const JsonView& v : at.items()) ids.push_back(read_id(v, c));
  return ids;
}

void read_ids(const JsonView& root, ModelConfig& c) {
  if (c.architecture == Architecture::kQwen2 || c.architecture == Architecture::kQwen3) {
    c.bos = -1;
    c.eos.clear();
  }
  if (const auto bos = root.find("bos_token_id")) c.bos = bos->is_null() ? -1 : read_id(*bos, c);
  if (const auto eos = root.find("eos_token_id")) c.eos = read_eos(*eos, c);
}

// Other architectures change by these keys what a layer computes. Those that are read here are not
// among them, or have been found to change nothing.
constexpr std::string_view kForeignKeys[] = {"sliding_window",
                                             "layer_types",
                                             "attention_chunk_size",
                                             "no_rope_layers",
                                             "no_rope_layer_interval",
                                             "rope_interleaved",
                                             "rope_local_base_freq",
                                             "alibi",
                                             "qkv_bias",
                                             "use_bias",
                                             "use_qkv_bias",
                                             "qk_layernorm",
                                             "qk_norm",
                                             "use_qk_norm",
                                             "clip_qkv",
                                             "attn_logit_softcapping",
                                             "final_logit_softcapping",
                                             "query_pre_attn_scalar",
                                             "attention_multiplier",
                                             "embedding_multiplier",
                                             "residual_multiplier",
                                             "logits_scaling",
                                             "logit_scale",
                                             "scale_emb",
                                             "scale_depth",
                                             "dim_model_base",
                                             "num_experts",
                                             "num_local_experts"};

// Whether such a key with this value changes nothing where it is read.
bool is_neutral(const JsonValue& value) {
  using Kind = JsonValue::Kind;
  switch (value.kind()) {
    case Kind::kNull:
      return true;
    case Kind::kBool:
      return !value.as_bool();
    case Kind::kUnsigned:
      return value.as_unsigned() <= 1;
    case Kind::kDouble:
      return value.as_double() == 0 || value.as_double() == 1;
    case Kind::kString:
      return value.as_string() == "full_attention";
    case Kind::kArray:
      return std::ranges::all_of(value.items(), is_neutral);
    default:
      return false;
  }
}

void note_ignored_keys(const JsonView& root, ModelConfig& c) {
  if (root.find("auto_map")) {
    c.notes.emplace_back("config.json: auto_map is ignored, no code of a checkpoint is run");
  }
  const auto use_window = root.find("use_sliding_window");
  const bool no_window =
      c.architecture != Architecture::kLlama || (use_window && is_neutral(use_window->value()));
  std::string keys;
  for (const std::string_view key : kForeignKeys) {
    const auto found = root.find(key);
    if (!found || is_neutral(found->value())) continue;
    if (key == "sliding_window" && no_window) continue;
    keys += fmt::format("{}{} {}", keys.empty() ? "" : ", ", key, describe(found->value()));
  }
  if (keys.empty()) return;
  c.notes.push_back(
      fmt::format("config.json: ignored, for no {} of transformers reads them either: {}",
                  to_string(c.architecture), keys));
}

DType read_dtype(const JsonView& root) {
  // "torch_dtype" until transformers 4, "dtype" since 5; float32 if neither is there.
  auto v = root.find_value("torch_dtype");
  if (!v) v = root.find_value("dtype");
  if (!v) return DType::kF32;
  const std::string& name = v->string();
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  unsupported(*v, "only float32, float16 and bfloat16 are supported");
}

JsonValue parse_object(std::string_view json, const std::string& path) {
  JsonValue value = parse_json(json, path, {kMaxConfigBytes, kMaxDepth, 1 << 18},
                               {"InvalidConfig", "InvalidConfig"});
  if (!value.is_object()) JsonView(value, path, "InvalidConfig").fail("an object");
  return value;
}

// Of a layer.
std::int64_t matrix_elements(const ModelConfig& c) {
  const std::int64_t heads = 2 * std::int64_t{c.heads + c.kv_heads} * c.head_dim;
  return c.hidden * (heads + 3 * c.intermediate);
}
// Of all layers and the last norm, without those of heads.
std::int64_t norm_elements(const ModelConfig& c) {
  return (2 * std::int64_t{c.layers} + 1) * c.hidden;
}

// Of the embedding and the output head.
std::int64_t table_elements(const ModelConfig& c) {
  return c.vocab * c.hidden * (c.tied_embeddings ? 1 : 2);
}

}  // namespace

ModelConfig model_config_of(const JsonView& root) {
  ModelConfig c;
  c.architecture = read_architecture(root);
  check_layers(root, c.architecture);
  read_shape(root, c);
  read_rope(root, c);
  read_ids(root, c);
  c.stored_dtype = read_dtype(root);
  note_ignored_keys(root, c);
  return c;
}

ModelConfig parse_model_config(std::string_view json, const std::string& path) {
  const JsonValue value = parse_object(json, path);
  return model_config_of(JsonView(value, path, "InvalidConfig"));
}

ModelConfig read_model_config(const std::filesystem::path& file) {
  return parse_model_config(read_file(file, kMaxConfigBytes), file.string());
}

void apply_generation_config(std::string_view json, const std::string& path, ModelConfig& c) {
  const JsonValue value = parse_object(json, path);
  const JsonView root(value, path, "InvalidConfig");
  const auto eos = root.find_value("eos_token_id");
  if (!eos) return;
  std::vector<std::int32_t> ids = read_eos(*eos, c);
  const auto sorted = [](std::vector<std::int32_t> v) {
    std::ranges::sort(v);
    v.erase(std::unique(v.begin(), v.end()), v.end());
    return v;
  };
  if (ids.empty() || sorted(ids) == sorted(c.eos)) return;
  c.notes.push_back(
      fmt::format("generation_config.json: a text ends at its eos_token_id [{}], not at those of "
                  "config.json, [{}]",
                  fmt::join(ids, ", "), fmt::join(c.eos, ", ")));
  c.eos = std::move(ids);
  c.eos_of_generation = true;
}

std::int64_t ModelConfig::positions() const {
  const bool linear = rope.kind == RopeScaling::Kind::kLinear;
  const bool yarn = rope.kind == RopeScaling::Kind::kYarn;
  if (!linear && !yarn) return max_position;
  const std::int64_t before = yarn ? rope.original_max_position : max_position;
  // Below 2^45: both have limits of their own.
  return std::max(max_position,
                  static_cast<std::int64_t>(rope.factor * static_cast<double>(before)));
}

std::int64_t ModelConfig::parameters() const {
  const std::int64_t biases = has_qkv_bias() ? std::int64_t{heads + 2 * kv_heads} * head_dim : 0;
  const std::int64_t head_norms = has_head_norms() ? std::int64_t{2} * head_dim : 0;
  return layers * (matrix_elements(*this) + biases + head_norms) + norm_elements(*this) +
         table_elements(*this);
}

std::int64_t ModelConfig::head_vectors() const {
  const int biased = has_qkv_bias() ? heads + 2 * kv_heads : 0;
  const int normed = has_head_norms() ? heads + kv_heads : 0;
  return std::int64_t{biased + normed} * head_dim;
}

std::int64_t ModelConfig::kv_bytes_per_token(DType dtype) const {
  return 2 * std::int64_t{layers} * kv_heads * KvFormat(dtype).bytes(head_dim);
}

std::int64_t ModelConfig::head_biases() const { return stored_vocab == 0 ? 0 : vocab; }

std::int64_t ModelConfig::weight_bytes(DType dtype) const {
  const std::int64_t matrices = layers * matrix_elements(*this) + table_elements(*this);
  const std::int64_t vectors = norm_elements(*this) + layers * head_vectors() + head_biases();
  return matrices * size_of(dtype) + vectors * size_of(DType::kF32);
}

}  // namespace triforce
