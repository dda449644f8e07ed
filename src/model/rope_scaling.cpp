// Keys and defaults: transformers modeling_rope_utils; Yarn-Llama-2-7b-128k config.json.
#include "model/rope_scaling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/utf8.h"

namespace triforce {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr std::int64_t kMaxPosition = 16'777'216;

// Every key that is understood, so that one that changes the angles is never passed over.
constexpr std::array<std::string_view, 15> kKnownKeys = {"type",
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

[[noreturn]] void unsupported(const JsonView& at, const std::string& reason) {
  throw_input("UnsupportedConfig", "{}: {} is {}: {}", at.source(), at.path(), describe(at.value()),
              reason);
}

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
std::string kind_name(const JsonView& scaling) {
  const auto now = scaling.find_value("rope_type");
  const auto old = scaling.find_value("type");
  if (!now && !old)
    throw_input("InvalidConfig", "{}: {}.rope_type is missing", scaling.source(), scaling.path());
  if (now && old && now->string() != old->string()) now->fail("the same as type");
  return now ? now->string() : old->string();
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

void check_keys(const JsonView& scaling) {
  for (const auto& [key, value] : scaling.members()) {
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), key) == kKnownKeys.end()) {
      unsupported(value, "this key of the rotary embedding is not known");
    }
  }
  const auto partial = scaling.find_value("partial_rotary_factor");
  if (partial && partial->number() != 1.0) unsupported(*partial, "only 1 is supported");
}

void read_scaling(const JsonView& scaling, ModelConfig& c) {
  const std::string kind = kind_name(scaling);
  const JsonView at =
      scaling.find_value("rope_type") ? scaling.at("rope_type") : scaling.at("type");
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

}  // namespace

void read_rope(const JsonView& root, ModelConfig& c) {
  if (const auto theta = root.find_value("rope_theta")) c.rope_theta = read_theta(*theta);
  const auto partial = root.find_value("partial_rotary_factor");
  if (partial && partial->number() != 1.0) unsupported(*partial, "only 1 is supported");
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

}  // namespace triforce
