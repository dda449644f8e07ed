// The methods that can be measured, one table entry each. Names, composition, buffers, traffic,
// predictions and the columns of reports follow from the entry; nothing else asks which method it
// is dealing with.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "triforce/metrics.h"
#include "triforce/pass.h"

namespace triforce {

enum class Method : std::uint8_t {
  kAutoregressive,
  kTriForce,
  kRetrieval,
  kStreaming,
  kStreamingHierarchy,
  kDraft,
  kLookup,
  kLookupHierarchy,
  kQuantised,
  kQuantisedHierarchy,
  kLossyRetrieval,
  kLossyStreaming,
  kLossyQuantised
};
// The method that the others are compared with, and the one that is measured by default.
inline constexpr Method kBaselineMethod = Method::kAutoregressive;
inline constexpr Method kDefaultMethod = Method::kTriForce;

// Tokens asked of the proposer per outer and per inner verification (the paper's gamma2, gamma1).
struct Gammas {
  int gamma = 6, inner_gamma = 1;
};

// A method is a chain of passes, innermost first: the first one proposes, each other one verifies
// what comes from below. Where the last one is the target over its full cache, the output is the
// target's; else it is that of a small cache, and nothing repairs what that left out.
//
//   {full}                     autoregressive: nothing proposes
//   {draft, full}              the drafter proposes, one level
//   {draft, retrieval, full}   TriForce: two levels, "inner" and "outer"
//   {draft, streaming, retrieval, full}   three levels: "inner", "middle" and "outer"
//   {lookup, full}             the sequence itself proposes, without a model
//   {streaming}                the target over a streaming cache alone, lossy
struct MethodSpec {
  static constexpr int kMaxPasses = kLevelNames.size() + 1;
  Method method;
  const char* name;
  const char* summary;  // what proposes, and what verifies it
  std::array<Pass, kMaxPasses> chain;
  int n_passes;
  // Per-token acceptance of each level, innermost first, that the paper reports for Llama2-7B-128K
  // at temperature 0.6 (arXiv 2404.11912, Table 2); what a plan assumes. NaN: it reports none.
  std::array<double, kMaxPasses - 1> paper_alpha;

  std::span<const Pass> passes() const {
    return std::span(chain).first(static_cast<std::size_t>(n_passes));
  }
  Pass pass(int i) const { return chain[static_cast<std::size_t>(i)]; }
  Pass proposer() const { return pass(0); }
  bool is_baseline() const { return method == kBaselineMethod; }
  // Whether the full cache has the last word.
  bool is_lossless() const { return passes().back() == kFullPass; }
  // Levels of verification; level l in [0, levels()) verifies with verifier(l), 0 is the innermost.
  int levels() const { return n_passes - 1; }
  Pass verifier(int level) const { return pass(level + 1); }
  bool is_outermost(int level) const { return level + 1 == levels(); }
  const char* level_name(int level) const {
    return triforce::level_name(static_cast<std::size_t>(level),
                                static_cast<std::size_t>(levels()));
  }
  // Tokens that level asks of the one below per verification.
  int step(int level, const Gammas& g) const {
    return is_outermost(level) ? g.gamma : g.inner_gamma;
  }
  // The phase that the i-th pass of the chain is timed under.
  Phase phase(int i) const { return phase_of(pass(i)); }
  // The pass whose tokens the last one of the chain verifies; nullopt: nothing is verified.
  std::optional<Pass> verified() const {
    return n_passes < 2 ? std::nullopt : std::optional(pass(n_passes - 2));
  }
  bool uses(Pass pass) const {
    return any_pass([&](const PassSpec& p) { return p.pass == pass; });
  }
  bool speculates() const { return levels() > 0; }
  bool has_drafter() const {
    return any_pass([](const PassSpec& p) { return p.net == Net::kDrafter; });
  }
  // Whether what it proposes is looked up, which no model does: always a chain, or nothing.
  bool looks_up() const { return spec_of(proposer()).net == Net::kNone; }
  // Whether the target itself drafts, or verifies before the full cache does.
  bool drafts_by_target() const {
    return any_pass([](const PassSpec& p) { return p.net == Net::kTarget && p.pass != kFullPass; });
  }
  bool has_budget() const {
    return any_pass([](const PassSpec& p) { return p.has_budget; });
  }
  bool selects() const {
    return any_pass([](const PassSpec& p) { return p.selects; });
  }
  template <class Wanted>
  bool any_pass(const Wanted& wanted) const {
    const auto of_chain = passes();
    return std::ranges::any_of(of_chain, [&](Pass p) { return wanted(spec_of(p)); });
  }
};

// In the order of the help text, the baseline first.
std::span<const MethodSpec> method_table();
const MethodSpec& spec_of(Method m);
const char* to_string(Method m);  // "ar", "triforce", "retrieval", ...
std::optional<Method> parse_method(std::string_view name);
// A question to methods: &MethodSpec::has_drafter, say.
using MethodFilter = std::function<bool(const MethodSpec&)>;
// "ar, triforce, ...", for messages: those that are wanted. Empty filter: all.
std::string method_names(const MethodFilter& wanted = {});
// Passes of the method's proposer in a generation: one for each level of a draft, and of lookups
// one a round; with nothing to propose to, one a token.
std::int64_t passes_of_proposer(const MethodSpec& method, const RunMetrics& run);
// Whether one of the methods is wanted.
bool any_method(std::span<const Method> methods, const MethodFilter& wanted);

}  // namespace triforce
