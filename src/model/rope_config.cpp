// The rotary part of config.json. Keys and defaults: transformers modeling_rope_utils;
// Yarn-Llama-2-7b-128k config.json.
#include "model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "triforce/error.h"

namespace triforce {
namespace {

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
  if (!(x > 0 && x <= kMaxRopeFactor)) v->fail("a number in (0, 1e6]");
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

// transformers 5 and the published code use the factor as it stands; versions of transformers 4 use
// this ratio in its place. Of an unscaled length it says nothing.
void note_implied_factor(const JsonView& scaling, ModelConfig& c) {
  const double implied =
      static_cast<double>(c.max_position) / static_cast<double>(c.rope.original_max_position);
  if (implied == 1 || implied == c.rope.factor) return;
  c.notes.push_back(
      fmt::format("config.json: {}.factor {} is used, though max_position_embeddings / "
                  "original_max_position_embeddings is {}, which some versions of transformers use",
                  scaling.path(), c.rope.factor, implied));
}

// The length before scaling; nothing if it is not there. It may stand at the root, where
// transformers 5 finds it first and transformers 4 not at all.
std::optional<std::int64_t> find_original(const JsonView& root, const JsonView& scaling) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const auto outside = root.find_value(kKey), inside = scaling.find_value(kKey);
  if (!outside && !inside) return std::nullopt;
  const std::int64_t length = (inside ? *inside : *outside).integer(1, kMaxPositions);
  if (outside && outside->integer(1, kMaxPositions) != length) {
    outside->fail(fmt::format("the {} of {}", length, inside->path()));
  }
  return length;
}

void read_yarn(const JsonView& root, const JsonView& scaling, ModelConfig& c) {
  RopeScaling& r = c.rope;
  r.kind = RopeScaling::Kind::kYarn;
  // transformers falls back to the model's own length.
  r.original_max_position = find_original(root, scaling).value_or(c.max_position);
  r.beta_fast = positive_or(scaling, "beta_fast", r.beta_fast);
  r.beta_slow = positive_or(scaling, "beta_slow", r.beta_slow);
  if (r.beta_fast < r.beta_slow) scaling.at("beta_fast").fail("at least beta_slow");
  note_implied_factor(scaling, c);
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

void read_llama3(const JsonView& root, const JsonView& scaling, RopeScaling& r) {
  r.kind = RopeScaling::Kind::kLlama3;
  const auto original = find_original(root, scaling);
  if (!original) scaling.at("original_max_position_embeddings");  // throws
  r.original_max_position = *original;
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

void read_scaling(const JsonView& root, const JsonView& scaling, ModelConfig& c) {
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
  if (!(c.rope.factor >= 1 && c.rope.factor <= kMaxRopeFactor)) {
    scaling.at("factor").fail("a number in [1, 1e6]");
  }
  if (kind == "linear") c.rope.kind = RopeScaling::Kind::kLinear;
  if (kind == "yarn") read_yarn(root, scaling, c);
  if (kind == "llama3") read_llama3(root, scaling, c.rope);
}

// `c` with what the dictionary says. One of rope_theta alone scales nothing.
ModelConfig with_dictionary(const JsonView& root, const JsonView& at, ModelConfig c) {
  if (const auto theta = at.find_value("rope_theta")) {
    const double outside = c.rope_theta;
    c.rope_theta = read_theta(*theta);
    if (root.find_value("rope_theta") && outside != c.rope_theta) {
      c.notes.push_back(fmt::format("config.json: {} {} is used, not the rope_theta {} beside it",
                                    theta->path(), c.rope_theta, outside));
    }
  }
  const auto members = at.members();
  const bool only_theta =
      std::ranges::all_of(members, [](const auto& m) { return m.first == "rope_theta"; });
  if (!only_theta) read_scaling(root, at, c);
  return c;
}

// A dictionary that is not empty, which transformers takes for none.
std::optional<JsonView> find_dictionary(const JsonView& root, const char* key) {
  auto at = root.find_value(key);
  return at && !at->members().empty() ? at : std::nullopt;
}

}  // namespace

void unsupported(const JsonView& at, const std::string& reason) {
  throw_input("UnsupportedConfig", "{}: {} is {}: {}", at.source(), at.path(), describe(at.value()),
              reason);
}

void read_rope(const JsonView& root, ModelConfig& c) {
  if (const auto theta = root.find_value("rope_theta")) c.rope_theta = read_theta(*theta);
  check_partial(root);
  const auto scaling = find_dictionary(root, "rope_scaling");
  const auto parameters = find_dictionary(root, "rope_parameters");
  if (!scaling && !parameters) return;
  ModelConfig read = with_dictionary(root, scaling ? *scaling : *parameters, c);
  if (scaling && parameters) {
    const ModelConfig other = with_dictionary(root, *parameters, c);
    if (read.rope != other.rope || read.rope_theta != other.rope_theta) {
      throw_input("UnsupportedConfig",
                  "{}: rope_scaling and rope_parameters: expected one of them, or both to say the "
                  "same, found two that differ",
                  root.source());
    }
  }
  c = std::move(read);
}

}  // namespace triforce
