// Cases of one sweep can stand beside each other only if these facts are the same: devices, models,
// text.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "triforce/report.h"

namespace triforce {

struct CaseFacts {
  std::optional<std::string> gpu_name, driver, cuda;
  std::optional<ModelInfo> target, draft;
  DataInfo data;
  std::vector<Param> text;  // the options that choose the prompts
};
void fields(auto& v, CaseFacts& f) {
  v("gpu_name", f.gpu_name, "GPU; null: none, or not known");
  v("driver", f.driver, "CUDA version of the driver");
  v("cuda", f.cuda, "CUDA runtime version");
  v("target", f.target, "null: not known");
  v("draft", f.draft, "null: none, or not known");
  v("data", f.data, "the prompts");
  v("text", f.text, "the options that choose them");
}

// `params`: of the case. Weights that were not loaded have no digest and are like any.
CaseFacts facts_of(const ResultContext& context, const std::optional<ModelInfo>& target,
                   const std::optional<ModelInfo>& draft, const DataInfo& data,
                   const std::vector<Param>& params);
// nullopt: it has no case.
std::optional<CaseFacts> facts_of(const RunResult& result);

// A difference is what two CaseFacts say differently of the same thing. Models with different
// names, or different prompts, are not the same thing.
struct FactDifference {
  std::string what, before, now;
};
std::optional<FactDifference> find_difference(const CaseFacts& before, const CaseFacts& now);

// KnownFacts holds the facts that are known, each once.
class KnownFacts {
 public:
  // false: they were known. `number`: of the case that they are of.
  bool add(std::int64_t number, CaseFacts facts);
  // Throws Error(kBadInput, "JournalMismatch") where these differ; `name` begins the message.
  void check(const CaseFacts& facts, const std::string& name) const;

 private:
  struct Known {
    std::int64_t number = 0;
    CaseFacts facts;
    std::string text;  // of the facts
  };
  std::vector<Known> known_;
};

}  // namespace triforce
