#include <algorithm>
#include <limits>

#include "triforce/error.h"
#include "triforce/method.h"

namespace triforce {
namespace {

template <std::size_t N>
constexpr MethodSpec spec(Method method, const char* name, const char* summary,
                          const Pass (&chain)[N],
                          decltype(MethodSpec::paper_alpha) paper_alpha = {}) {
  MethodSpec made{method, name, summary, {}, N, paper_alpha};
  std::copy_n(chain, N, made.chain.begin());
  return made;
}

constexpr double kNotReported = std::numeric_limits<double>::quiet_NaN();

// StreamingLLM without the hierarchy is not in the paper's Table 2: its acceptance is taken to be
// that with it, since the outer level verifies the same distribution of proposals.
constexpr MethodSpec kTable[] = {
    spec(Method::kAutoregressive, "ar", "nothing proposes: one token per pass of the target",
         {Pass::kFull}),
    spec(Method::kTriForce, "triforce", "drafter, verified by the target with its retrieval cache",
         {Pass::kDraft, Pass::kRetrieval, Pass::kFull}, {0.4036, 0.9137}),
    spec(Method::kRetrieval, "retrieval", "target with its retrieval cache",
         {Pass::kRetrieval, Pass::kFull}, {0.9126}),
    spec(Method::kStreaming, "streaming", "target with a streaming cache",
         {Pass::kStreaming, Pass::kFull}, {0.8745}),
    spec(Method::kStreamingHierarchy, "streaming-hierarchy",
         "drafter, verified by the target with a streaming cache",
         {Pass::kDraft, Pass::kStreaming, Pass::kFull}, {0.4036, 0.8745}),
    spec(Method::kDraft, "draft", "drafter alone", {Pass::kDraft, Pass::kFull}, {0.4036}),
    spec(Method::kLookup, "lookup", "what followed earlier in the sequence",
         {Pass::kLookup, Pass::kFull}, {kNotReported}),
    spec(Method::kLookupHierarchy, "lookup-hierarchy",
         "what followed earlier, verified by the target with its retrieval cache",
         {Pass::kLookup, Pass::kRetrieval, Pass::kFull}, {kNotReported, 0.9137}),
    spec(Method::kQuantised, "quantised", "target with a quantised copy of its full cache",
         {Pass::kQuantised, Pass::kFull}, {kNotReported}),
    spec(Method::kQuantisedHierarchy, "quantised-hierarchy",
         "drafter, verified by the target with a quantised copy of its full cache",
         {Pass::kDraft, Pass::kQuantised, Pass::kFull}, {0.4036, kNotReported}),
    spec(Method::kLossyRetrieval, "lossy-retrieval",
         "nothing verifies the target with its retrieval cache: not lossless", {Pass::kRetrieval}),
    spec(Method::kLossyStreaming, "lossy-streaming",
         "nothing verifies the target with a streaming cache: not lossless", {Pass::kStreaming}),
    spec(Method::kLossyQuantised, "lossy-quantised",
         "nothing verifies the target with a quantised cache: not lossless", {Pass::kQuantised}),
};

}  // namespace

std::span<const MethodSpec> method_table() { return kTable; }

const MethodSpec& spec_of(Method m) {
  const auto it = std::find_if(std::begin(kTable), std::end(kTable),
                               [&](const MethodSpec& s) { return s.method == m; });
  TF_CHECK(it != std::end(kTable), "method {}", static_cast<int>(m));
  return *it;
}

const char* to_string(Method m) { return spec_of(m).name; }

std::optional<Method> parse_method(std::string_view name) {
  for (const MethodSpec& s : kTable)
    if (s.name == name) return s.method;
  return std::nullopt;
}

std::string method_names(const MethodFilter& wanted) {
  std::string names;
  for (const MethodSpec& s : kTable) {
    if (!wanted || wanted(s)) names += (names.empty() ? "" : ", ") + std::string(s.name);
  }
  return names;
}

std::int64_t passes_of_proposer(const MethodSpec& method, const RunMetrics& run) {
  if (!method.speculates()) return run.rounds;
  const LevelCounters& lowest = run.levels.front();
  return method.looks_up() ? lowest.rounds : lowest.requested;
}

bool any_method(std::span<const Method> methods, const MethodFilter& wanted) {
  return std::ranges::any_of(methods, [&](Method m) { return wanted(spec_of(m)); });
}

}  // namespace triforce
