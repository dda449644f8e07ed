// Differences are what makes two measurements different cases.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compare/match.h"
#include "triforce/case_rules.h"

namespace triforce {

// An option that one side does not have counts as its default there.
class Differences {
 public:
  // `side`: how `other` is called beside "base". `unknown`: whether options that this build does
  // not know count where one side alone has a value of them; nobody knows what they decide.
  Differences(const Measured& base, const Measured& other, const CaseRules& rules,
              std::string side = "new", bool unknown = false);

  std::size_t count() const { return found_.size(); }
  // "differs in: temp (base: 0.6, new: 0.2); sinks (base: no such option, new: 32)", three of them
  // at most; empty: nothing was found.
  std::string text() const;

 private:
  void add(std::string_view what, const std::string& before, const std::string& now);
  template <class T>
  void add(std::string_view what, const T& before, const T& now);
  void add_params(const CaseResult& a, const CaseResult& b, const CaseRules& rules, bool unknown);
  void add_model(const std::string& role, const std::optional<ModelInfo>& before,
                 const std::optional<ModelInfo>& now);

  std::string side_;
  std::vector<std::string> found_;
};

// Returns whether two cases with different ids are the same but for some options. These are options
// that one side does not know and that are at their default on the other.
bool same_but_for_defaults(const Measured& base, const Measured& other, const CaseRules& rules);

}  // namespace triforce
