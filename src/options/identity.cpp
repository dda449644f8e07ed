#include "options/identity.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/sha256.h"
#include "options/option_kinds.h"
#include "options/options.h"

namespace triforce {
namespace {

bool decides(Role role, const MethodSpec& method) {
  switch (role) {
    case Role::kDecides:
      return true;
    case Role::kDecidesProposed:
      return method.speculates();
    case Role::kDecidesInner:
      return method.levels() > 1;
    case Role::kDecidesSelected:
      return method.selects();
    case Role::kDecidesChunks:
      return method.selects() || method.has_drafter();
    case Role::kDecidesBudget:
      return method.has_budget();
    case Role::kDecidesOwnDrafts:
      return method.drafts_by_target();
    case Role::kDecidesQuantised:
      return method.uses(Pass::kQuantised);
    case Role::kDecidesDrafted:
      return method.has_drafter();
    case Role::kDecidesLookedUp:
      return method.looks_up();
    case Role::kNames:
    case Role::kMeasures:
    case Role::kRecords:
    case Role::kOutputs:
      return false;
  }
  return false;
}

std::string digest_of(const std::string& key) { return sha256_hex(key).substr(0, 16); }

// Lines "name=value" in the order they are added. No value has a line end: names, numbers, hex.
class Key {
 public:
  template <class T>
  Key& add(std::string_view name, const T& value) {
    text_ += fmt::format("{}={}\n", name, value);
    return *this;
  }
  template <class T>
  Key& add(std::string_view name, const std::optional<T>& value) {
    return value ? add(name, *value) : *this;
  }
  const std::string& text() const { return text_; }
  std::string digest() const { return digest_of(text_); }

 private:
  std::string text_;
};

void add_model(Key& key, std::string_view role, const ModelInfo& m) {
  key.add("model", role).add("arch", m.arch).add("layers", m.layers).add("hidden", m.hidden);
  key.add("vocab", m.vocab).add("heads", m.heads).add("kv_heads", m.kv_heads);
  key.add("head_dim", m.head_dim).add("dtype", m.dtype).add("n_params", m.n_params);
  key.add("config_sha256", m.config_sha256).add("weights_digest", m.weights_digest);
  key.add("tokenizer_sha256", m.tokenizer_sha256).add("random_seed", m.random_seed);
  if (m.generation_eos)
    key.add("generation_eos", fmt::format("{}", fmt::join(*m.generation_eos, ",")));
  // Random weights have no digest, and a preset has no file: its name stands for its configuration.
  if (m.random_seed && !m.config_sha256) key.add("name", m.name);
}

// Whether chunks are selected of what a cache of the case holds.
bool has_chunks(const MethodSpec& method, const CaseResult& c) {
  const ParamValue* const cache = find_param(c.params, "draft_cache");
  const bool drafter_has = cache != nullptr && to_text(*cache) == to_string(DraftCache::kRetrieval);
  return method.selects() || (method.has_drafter() && drafter_has);
}

}  // namespace

RunConfig resolved(RunConfig config, const Session& session) {
  config.dtype = session.dtype;
  config.threads = session.threads;
  config.cpu_isa = to_string(session.isa);
  if (config.device == "auto") config.device = session.gpu ? "cuda" : "cpu";
  return config;
}

bool decides_tokens(std::string_view param, const MethodSpec& method) {
  const Option* const o = find_option(kRun, param);
  return o != nullptr && decides(o->role, method);
}

bool decides_tokens(std::string_view param, const CaseResult& c) {
  const std::optional<Method> known = parse_method(c.method);
  if (!known || !decides_tokens(param, spec_of(*known))) return false;
  return param != "chunk_size" || has_chunks(spec_of(*known), c);
}

bool is_default(const Param& param, const CaseResult& c) {
  static const RunConfig kPair = make_config(kRun, {}),
                         kOther = make_config(kRun, {{"target", "any"}});
  const Option* const o = find_option(kRun, param.first);
  if (o == nullptr || !o->value.get) return false;
  const bool other = is_given(c.params, "target") || is_given(c.params, "random_weights");
  return o->value.get(other ? kOther : kPair) == param.second;
}

bool is_column(std::string_view param) {
  const Option* const o = find_option(kRun, param);
  return o == nullptr || o->role != Role::kOutputs;
}

std::string case_id_of(const CaseResult& c, const ResultContext& context) {
  return digest_of(case_key_of(c, context));
}

std::string case_key_of(const CaseResult& c, const ResultContext& context,
                        const ParamNames& left_out) {
  const std::optional<Method> method = parse_method(c.method);
  TF_CHECK(method, "method {}", c.method);
  const MethodSpec& spec = spec_of(*method);
  Key key;
  key.add("method", c.method);
  for (const auto& [name, value] : c.params) {
    if (!decides_tokens(name, c) || left_out.contains(name)) continue;
    // Cases that are older than these options are as those that leave them out.
    constexpr std::array<std::string_view, 7> kNewer = {
        "tree",     "inner_tree",     "rope_scaling", "draft_weights",
        "key_rank", "outlier_chunks", "turn"};
    if (std::ranges::find(kNewer, name) != kNewer.end() && is_default({name, value}, c)) continue;
    if (name == "tree" && c.tuning) {  // of auto the tree that was chosen; a chain is its gamma
      const auto& tree = c.tuning->chosen.tree;
      if (tree) key.add(name, parents_text(*tree));
    } else if (c.tuning && c.tuning->chosen.budget && name == "budget") {
      key.add(name, *c.tuning->chosen.budget);
    } else if (c.gammas && name == "gamma") {
      key.add(name, c.gammas->gamma);
    } else if (c.gammas && name == "inner_gamma") {
      key.add(name, c.gammas->inner_gamma);
    } else {
      key.add(name, to_text(value));
    }
  }
  // The second rule of --synthetic-acceptance: by the first the drafter alone had the outer rate.
  if (is_given(c.params, "synthetic_acceptance") && spec.levels() == 1 && spec.has_drafter()) {
    key.add("synthetic_rule", 2);
  }
  if (c.target) add_model(key, "target", *c.target);
  if (c.draft && spec.has_drafter()) add_model(key, "draft", *c.draft);
  // Whose attention it is decides bits; where the rows of one processor's are does not.
  if (c.memory.host_kv_heads.value_or(0) > 0) {
    key.add("near_kv_heads", c.memory.near_kv_heads).add("host_kv_heads", c.memory.host_kv_heads);
  }
  key.add("data", c.data.sha256).add("n_prompts", c.data.n_prompts);
  key.add("bytes_as_ids", c.data.bytes_as_ids);
  if (context.sm) {
    key.add("sm", context.sm);
  } else {
    key.add("isa", context.isa);
  }
  return key.text();
}

std::string timing_id_of(const CaseResult& c, const ResultContext& context) {
  Key key;
  key.add("case", c.case_id).add("threads", context.threads).add("cpu", context.cpu_model);
  key.add("gpu", context.gpu_name).add("backend", context.backend);
  key.add("communication", context.communication);
  if (c.batch) key.add("batch", c.batch->prompts);
  return key.digest();
}

}  // namespace triforce
