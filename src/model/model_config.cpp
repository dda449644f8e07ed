// config.json of a Llama as Hugging Face transformers writes it, versions 4 and 5.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>

#include "core/checked.h"
#include "core/strict_json.h"
#include "core/utf8.h"
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

// The rotary part. Keys and defaults: transformers modeling_rope_utils; Yarn-Llama-2-7b-128k
// config.json.

constexpr double kMaxFactor = 1e6;
constexpr std::int64_t kMaxPosition = 16'777'216;

// Every key that is understood, so that one that changes the angles is never passed over.
constexpr std::string_view kRopeKeys[] = {"type",
                                          "rope_type",
                                          "rope_theta",
                                          "factor",
                                          "original_max_position_embeddings",
                                          "beta_fast",
                                          "beta_slow",
                                          "attention_factor",
                                          "mscale",
                                          "mscale_all_dim",
                                          "low_freq_factor",
                                          "high_freq_factor",
                                          "finetuned",
                                          "truncate",
                                          "partial_rotary_factor"};

double read_theta(const JsonView& at) {
  const double theta = at.number();
  if (!(theta > 0 && theta <= 1e12)) at.fail("a number in (0, 1e12]");
  return theta;
}

double positive_or(const JsonView& scaling, const char* key, double fallback) {
  const auto v = scaling.find_value(key);
  if (!v) return fallback;
  const double x = v->number();
  if (!(x > 0 && x <= kMaxFactor)) v->fail("a number in (0, 1e6]");
  return x;
}

// The spelling of the kind: "rope_type", or "type" of older files; both only if they agree.
JsonView kind_of(const JsonView& scaling) {
  const auto now = scaling.find_value("rope_type");
  const auto old = scaling.find_value("type");
  if (!now && !old)
    throw_input("InvalidConfig", "{}: {}.rope_type is missing", scaling.source(), scaling.path());
  if (now && old && now->string() != old->string()) now->fail("the same as type");
  return now ? *now : *old;
}

// 0.1 m ln(factor) + 1, YaRN's attention temperature (arXiv 2309.00071, section 3.4).
double yarn_mscale(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

void read_yarn(const JsonView& scaling, ModelConfig& c) {
  RopeScaling& r = c.rope;
  r.kind = RopeScaling::Kind::kYarn;
  // transformers falls back to the model's own length.
  const auto original = scaling.find_value("original_max_position_embeddings");
  r.original_max_position = original ? original->integer(1, kMaxPosition) : c.max_position;
  r.beta_fast = positive_or(scaling, "beta_fast", r.beta_fast);
  r.beta_slow = positive_or(scaling, "beta_slow", r.beta_slow);
  if (r.beta_fast < r.beta_slow) scaling.at("beta_fast").fail("at least beta_slow");
  if (const auto t = scaling.find_value("truncate"); t && !t->boolean()) {
    unsupported(*t, "only correction ranges rounded to whole dimensions are supported");
  }
  if (scaling.find_value("attention_factor")) {
    r.attention_factor = positive_or(scaling, "attention_factor", 1.0);
  } else if (scaling.find_value("mscale") && scaling.find_value("mscale_all_dim")) {
    r.attention_factor = yarn_mscale(r.factor, positive_or(scaling, "mscale", 1.0)) /
                         yarn_mscale(r.factor, positive_or(scaling, "mscale_all_dim", 1.0));
  }
}

void read_llama3(const JsonView& scaling, RopeScaling& r) {
  r.kind = RopeScaling::Kind::kLlama3;
  r.original_max_position = scaling.at("original_max_position_embeddings").integer(1, kMaxPosition);
  scaling.at("low_freq_factor");
  scaling.at("high_freq_factor");
  r.low_freq_factor = positive_or(scaling, "low_freq_factor", r.low_freq_factor);
  r.high_freq_factor = positive_or(scaling, "high_freq_factor", r.high_freq_factor);
  if (r.high_freq_factor <= r.low_freq_factor) {
    scaling.at("high_freq_factor").fail("more than low_freq_factor");
  }
}

void check_partial(const JsonView& at) {
  const auto partial = at.find_value("partial_rotary_factor");
  if (partial && partial->number() != 1.0) unsupported(*partial, "only 1 is supported");
}

void check_keys(const JsonView& scaling) {
  for (const auto& [key, value] : scaling.members()) {
    if (std::find(std::begin(kRopeKeys), std::end(kRopeKeys), key) == std::end(kRopeKeys)) {
      unsupported(value, "this key of the rotary embedding is not known");
    }
  }
  check_partial(scaling);
}

void read_scaling(const JsonView& scaling, ModelConfig& c) {
  const JsonView at = kind_of(scaling);
  const std::string& kind = at.string();
  if (kind == "dynamic" || kind == "ntk") {
    unsupported(at, "its angles change with the length, so that cached keys would be wrong");
  }
  if (kind != "default" && kind != "linear" && kind != "yarn" && kind != "llama3") {
    unsupported(at, "only default, linear, yarn and llama3 are supported");
  }
  check_keys(scaling);
  if (kind == "default") return;
  c.rope.factor = scaling.at("factor").number();
  if (!(c.rope.factor >= 1 && c.rope.factor <= kMaxFactor)) {
    scaling.at("factor").fail("a number in [1, 1e6]");
  }
  if (kind == "linear") c.rope.kind = RopeScaling::Kind::kLinear;
  if (kind == "yarn") read_yarn(scaling, c);
  if (kind == "llama3") read_llama3(scaling, c.rope);
}

// Sets rope_theta and rope from `rope_theta` and `rope_scaling`, or from `rope_parameters` of
// transformers 5. Needs max_position. Throws Error(kBadInput): InvalidConfig, UnsupportedConfig.
void read_rope(const JsonView& root, ModelConfig& c) {
  if (const auto theta = root.find_value("rope_theta")) c.rope_theta = read_theta(*theta);
  check_partial(root);
  const auto scaling = root.find_value("rope_scaling");
  const auto parameters = root.find_value("rope_parameters");
  if (parameters) {
    if (const auto theta = parameters->find_value("rope_theta")) c.rope_theta = read_theta(*theta);
    read_scaling(*parameters, c);
  }
  if (scaling && !parameters) {
    read_scaling(*scaling, c);
  } else if (scaling) {
    throw_input("UnsupportedConfig", "{}: has both rope_scaling and rope_parameters",
                root.source());
  }
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
