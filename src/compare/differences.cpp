#include "compare/differences.h"

#include <algorithm>

namespace triforce {
namespace {

bool is_null(const ParamValue& value) { return std::holds_alternative<std::monostate>(value); }

// Calls visit(param, c, other) for each param that only one of two cases has.
template <class Visit>
void for_each_alone(const CaseResult& a, const CaseResult& b, const Visit& visit) {
  for (const auto& [c, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    for (const Param& p : c->params) {
      if (find_param(other->params, p.first) == nullptr) visit(p, *c);
    }
  }
}

template <class T>
std::string text_of(const T& x) {
  return fmt::format("{}", x);
}
template <class T>
std::string text_of(const std::optional<T>& x) {
  constexpr std::size_t kDigits = 12;  // of a hash
  return x ? fmt::format("{}", *x).substr(0, kDigits) : std::string("none");
}

}  // namespace

Differences::Differences(const Measured& base, const Measured& other, const CaseRules& rules,
                         std::string side, bool unknown)
    : side_(std::move(side)) {
  const CaseResult &a = *base.result, &b = *other.result;
  if (b.status != CaseStatus::kOk) add("status", to_string(a.status), to_string(b.status));
  add("method", a.method, b.method);
  add_params(a, b, rules, unknown);
  if (a.gammas && b.gammas) {
    add("gamma", a.gammas->gamma, b.gammas->gamma);
    add("inner gamma", a.gammas->inner_gamma, b.gammas->inner_gamma);
  }
  add_model("target", a.target, b.target);
  add_model("draft", a.draft, b.draft);
  add("sha256 of the data", a.data.sha256, b.data.sha256);
  add("prompts", a.data.n_prompts, b.data.n_prompts);
  const ResultContext &before = base.run->context, &now = other.run->context;
  add("sm", before.sm, now.sm);
  if (!before.sm && !now.sm) add("isa", before.isa, now.isa);
}

std::string Differences::text() const {
  constexpr std::size_t kShown = 3;
  if (found_.empty()) return "";
  const std::size_t n = std::min(found_.size(), kShown);
  return fmt::format("differs in: {}{}",
                     fmt::join(found_.begin(), found_.begin() + std::ptrdiff_t(n), "; "),
                     found_.size() > n ? fmt::format("; and {} more", found_.size() - n) : "");
}

void Differences::add(std::string_view what, const std::string& before, const std::string& now) {
  if (before == now) return;
  found_.push_back(fmt::format("{} (base: {}, {}: {})", what, before, side_, now));
}

template <class T>
void Differences::add(std::string_view what, const T& before, const T& now) {
  if (before != now) add(what, text_of(before), text_of(now));
}

void Differences::add_params(const CaseResult& a, const CaseResult& b, const CaseRules& rules,
                             bool unknown) {
  for (const auto& [name, value] : a.params) {
    const bool gamma = name == "gamma" || name == "inner_gamma";  // what auto came to counts
    const ParamValue* const now = find_param(b.params, name);
    if (now == nullptr || !rules.decides(name, a) || (gamma && a.gammas && b.gammas)) {
      continue;
    }
    add(name, to_text(value, "none"), to_text(*now, "none"));
  }
  for_each_alone(a, b, [&](const Param& p, const CaseResult& c) {
    const bool known = rules.knows(p.first);
    if (known ? !rules.decides(p.first, c) || rules.is_default(p, c)
              : !unknown || is_null(p.second)) {
      return;
    }
    const std::string value = to_text(p.second, "none") + (known ? "" : ", unknown to this build");
    constexpr const char* kNone = "no such option";
    add(p.first, &c == &a ? value : kNone, &c == &a ? kNone : value);
  });
}

void Differences::add_model(const std::string& role, const std::optional<ModelInfo>& before,
                            const std::optional<ModelInfo>& now) {
  if (!before || !now) return;
  add(role + " type", before->dtype, now->dtype);
  add(role + " parameters", before->n_params, now->n_params);
  add("config of the " + role, before->config_sha256, now->config_sha256);
  add("weights of the " + role, before->weights_digest, now->weights_digest);
  add("tokenizer of the " + role, before->tokenizer_sha256, now->tokenizer_sha256);
  add("random seed of the " + role, before->random_seed, now->random_seed);
}

bool same_but_for_defaults(const Measured& base, const Measured& other, const CaseRules& rules) {
  const CaseResult &a = *base.result, &b = *other.result;
  ParamNames left_out;
  bool unknown = false;
  for_each_alone(a, b, [&](const Param& p, const CaseResult& c) {
    if (!rules.knows(p.first)) {
      unknown = unknown || !is_null(p.second);
    } else if (rules.decides(p.first, c) && rules.is_default(p, c)) {
      left_out.insert(p.first);
    }
  });
  // If there is no such option, the ids differ by something else.
  if (unknown || left_out.empty()) return false;
  return rules.key(a, base.run->context, left_out) == rules.key(b, other.run->context, left_out);
}

}  // namespace triforce
