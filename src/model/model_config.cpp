// config.json of a Llama as Hugging Face transformers writes it, versions 4 and 5.
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/checked.h"
#include "core/strict_json.h"
#include "core/utf8.h"
#include "model/rope_scaling.h"
#include "triforce/checkpoint.h"

namespace triforce {
namespace {

constexpr std::int64_t kMaxConfigBytes = 1 << 20;
constexpr int kMaxDepth = 16;

[[noreturn]] void unsupported(const JsonView& at, const std::string& reason) {
  throw_input("UnsupportedConfig", "{}: {} is {}: {}", at.source(), at.path(), describe(at.value()),
              reason);
}

std::int64_t integer_or(const JsonView& root, const char* key, std::int64_t fallback,
                        std::int64_t min, std::int64_t max) {
  const auto v = root.find_value(key);
  return v ? v->integer(min, max) : fallback;
}

bool boolean_or(const JsonView& root, const char* key, bool fallback) {
  const auto v = root.find_value(key);
  return v ? v->boolean() : fallback;
}

void check_architecture(const JsonView& root) {
  const JsonView architectures = root.at("architectures");
  const std::vector<JsonView> names = architectures.items();
  if (names.size() != 1 || names[0].string() != "LlamaForCausalLM") {
    unsupported(architectures, "only [\"LlamaForCausalLM\"] is supported");
  }
  if (const auto type = root.find_value("model_type"); type && type->string() != "llama") {
    unsupported(*type, "only \"llama\" is supported");
  }
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
}

void read_shape(const JsonView& root, ModelConfig& c) {
  c.hidden = root.at("hidden_size").integer(1, 65'536);
  c.layers = static_cast<int>(root.at("num_hidden_layers").integer(1, kMaxLayers));
  c.heads = static_cast<int>(root.at("num_attention_heads").integer(1, 1'024));
  c.kv_heads = static_cast<int>(integer_or(root, "num_key_value_heads", c.heads, 1, c.heads));
  if (c.heads % c.kv_heads != 0) {
    root.at("num_key_value_heads").fail(fmt::format("a divisor of {} heads", c.heads));
  }
  if (c.hidden % c.heads != 0) {
    root.at("hidden_size").fail(fmt::format("a multiple of {} heads", c.heads));
  }
  const auto explicit_dim = root.find_value("head_dim");
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
  c.max_position = root.at("max_position_embeddings").integer(1, 16'777'216);
  c.rms_norm_eps = root.at("rms_norm_eps").number();
  if (!(c.rms_norm_eps > 0 && c.rms_norm_eps < 1e-1)) {
    root.at("rms_norm_eps").fail("a number in (0, 0.1)");
  }
  c.tied_embeddings = boolean_or(root, "tie_word_embeddings", false);
}

void read_ids(const JsonView& root, ModelConfig& c) {
  const auto id = [&](const JsonView& v) {
    return static_cast<std::int32_t>(v.integer(0, c.vocab - 1));
  };
  if (const auto bos = root.find("bos_token_id")) c.bos = bos->is_null() ? -1 : id(*bos);
  if (const auto eos = root.find("eos_token_id")) {
    c.eos.clear();
    if (eos->is_array()) {
      if (eos->value().items().size() > 64) eos->fail("at most 64 ids");
      for (const JsonView& v : eos->items()) c.eos.push_back(id(v));
    } else if (!eos->is_null()) {
      c.eos.push_back(id(*eos));
    }
  }
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

}  // namespace

ModelConfig parse_model_config(std::string_view json, const std::string& path) {
  const JsonValue value = parse_json(json, path, {kMaxConfigBytes, kMaxDepth, 1 << 18},
                                     {"InvalidConfig", "InvalidConfig"});
  const JsonView root(value, path, "InvalidConfig");
  if (!root.is_object()) root.fail("an object");
  ModelConfig c;
  check_architecture(root);
  read_shape(root, c);
  read_rope(root, c);
  read_ids(root, c);
  c.stored_dtype = read_dtype(root);
  return c;
}

std::int64_t ModelConfig::parameters() const {
  const std::int64_t q = std::int64_t{heads} * head_dim;
  const std::int64_t kv = std::int64_t{kv_heads} * head_dim;
  const std::int64_t layer = 2 * hidden + hidden * (2 * q + 2 * kv) + 3 * hidden * intermediate;
  return layers * layer + hidden + vocab * hidden * (tied_embeddings ? 1 : 2);
}

std::int64_t ModelConfig::kv_bytes_per_token(DType dtype) const {
  return 2 * std::int64_t{layers} * kv_heads * head_dim * size_of(dtype);
}

std::int64_t ModelConfig::weight_bytes(DType dtype) const {
  const std::int64_t norms = (2 * std::int64_t{layers} + 1) * hidden;
  const std::int64_t tied_head = tied_embeddings ? vocab * hidden : 0;
  return (parameters() - norms + tied_head) * size_of(dtype) + norms * size_of(DType::kF32);
}

}  // namespace triforce
