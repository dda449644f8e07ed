#include "sweep/case_facts.h"

#include <algorithm>

#include "core/fields.h"

namespace triforce {
namespace {

constexpr const char* kTextOptions[] = {"dataset", "prefill", "prompts", "seed", "target"};

template <class T>
std::string shown(const T& value) {
  if constexpr (Optional<T>) {
    return value ? fmt::format("{}", *value) : "none";
  } else {
    return fmt::format("{}", value);
  }
}

std::optional<FactDifference> model_difference(const char* role, const ModelInfo& a,
                                               const ModelInfo& b) {
  if (a.name != b.name) return std::nullopt;  // an axis
  const std::string of = fmt::format("{} {}: ", role, a.name);
  if (a.config_sha256 != b.config_sha256) {
    return FactDifference{of + "config.json", shown(a.config_sha256), shown(b.config_sha256)};
  }
  if (a.tokenizer_sha256 != b.tokenizer_sha256) {
    return FactDifference{of + "tokenizer", shown(a.tokenizer_sha256), shown(b.tokenizer_sha256)};
  }
  // Not loaded: no digest yet.
  if (a.dtype == b.dtype && a.weights_digest && b.weights_digest &&
      a.weights_digest != b.weights_digest) {
    return FactDifference{of + "weights", shown(a.weights_digest), shown(b.weights_digest)};
  }
  return std::nullopt;
}

}  // namespace

CaseFacts facts_of(const ResultContext& context, const std::optional<ModelInfo>& target,
                   const std::optional<ModelInfo>& draft, const DataInfo& data,
                   const std::vector<Param>& params) {
  CaseFacts facts{context.gpu_name, context.driver, context.cuda, target, draft, data, {}};
  for (const char* const name : kTextOptions) {
    const ParamValue* const found = find_param(params, name);
    if (found != nullptr) facts.text.emplace_back(name, *found);
  }
  return facts;
}

std::optional<CaseFacts> facts_of(const RunResult& result) {
  if (result.cases.empty()) return std::nullopt;
  const CaseResult& first = result.cases.front();
  const auto drafts =
      std::ranges::find_if(result.cases, [](const CaseResult& c) { return c.draft.has_value(); });
  return facts_of(result.context, first.target,
                  drafts == result.cases.end() ? std::nullopt : drafts->draft, first.data,
                  first.params);
}

std::optional<FactDifference> find_difference(const CaseFacts& a, const CaseFacts& b) {
  if (a.gpu_name && b.gpu_name) {
    if (a.gpu_name != b.gpu_name) return FactDifference{"GPU", *a.gpu_name, *b.gpu_name};
    if (a.driver != b.driver) return FactDifference{"driver", shown(a.driver), shown(b.driver)};
    if (a.cuda != b.cuda) return FactDifference{"CUDA runtime", shown(a.cuda), shown(b.cuda)};
  }
  if (a.target && b.target) {
    if (auto found = model_difference("target", *a.target, *b.target)) return found;
  }
  if (a.text == b.text && a.data.sha256 && b.data.sha256 && a.data.sha256 != b.data.sha256) {
    return FactDifference{fmt::format("data {}: SHA-256", a.data.kind), *a.data.sha256,
                          *b.data.sha256};
  }
  if (!a.draft || !b.draft) return std::nullopt;
  return model_difference("drafter", *a.draft, *b.draft);
}

bool KnownFacts::add(std::int64_t number, CaseFacts facts) {
  std::string text = to_json_text(facts, JsonStyle::kCompact);
  const bool known = std::ranges::any_of(known_, [&](const Known& k) { return k.text == text; });
  if (known) return false;
  known_.push_back({number, std::move(facts), std::move(text)});
  return true;
}

void KnownFacts::check(const CaseFacts& facts, const std::string& name) const {
  for (const Known& k : known_) {
    if (const auto found = find_difference(k.facts, facts)) {
      throw_input("JournalMismatch", "{}: {}: expected {} as in case {}, found {}", name,
                  found->what, found->before, k.number, found->now);
    }
  }
}

}  // namespace triforce
