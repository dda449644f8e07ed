// The passes that there are: a model over one kind of cache, or no model, one table row each. What
// a method runs is a chain of them (method.h); how what one keeps is made, planned and filled is
// src/decode/pass_cache.h.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "triforce/enum_names.h"

namespace triforce {

// Which model a pass runs. kNone: what it proposes is looked up.
enum class Net : std::uint8_t { kTarget, kDrafter, kNone };

// A row of kPassTable.
enum class Pass : std::uint8_t {
  kFull,
  kRetrieval,
  kStreaming,
  kQuantised,
  kDraft,
  kLookup,
  kCount
};
inline constexpr std::size_t kPassKinds = static_cast<std::size_t>(Pass::kCount);
// The target over all tokens: the baseline's pass, and the last of each lossless method.
inline constexpr Pass kFullPass = Pass::kFull;

struct PassSpec {
  Pass pass;
  const char* name;
  const char* label;  // for tables: the model and its cache
  Net net;
  bool has_budget;  // its cache holds --budget tokens
  bool selects;     // which chunks of the full cache its cache holds is selected
  // What results call the time to fill its cache after a prompt, and say of it.
  const char *fill_name, *fill_description;
  const char* ms_name;  // what the figure of one such pass is called (CaseMetric)
};
// In the order in which their caches are made and filled: the full cache first, from which others
// take rows.
inline constexpr std::array<PassSpec, kPassKinds> kPassTable = {{
    {Pass::kFull, "full", "target, full cache (ar, outer verify)", Net::kTarget, false, false,
     "prefill_ms",
     "prefill of the target, median over the prompts, ms; shared by all methods and repetitions",
     "full-ms"},
    {Pass::kRetrieval, "retrieval", "target, retrieval cache", Net::kTarget, true, true,
     "retrieval_build_ms", "after that, scoring, selecting and gathering the retrieval cache, ms",
     "retrieval-ms"},
    {Pass::kStreaming, "streaming", "target, streaming cache", Net::kTarget, true, false,
     "streaming_prefill_ms", "prefill of the target's streaming cache, ms", "streaming-ms"},
    {Pass::kQuantised, "quantised", "target, quantised cache", Net::kTarget, false, false,
     "quantised_fill_ms", "quantising the rows of the full cache, ms", "quantised-ms"},
    {Pass::kDraft, "draft", "drafter, streaming cache", Net::kDrafter, false, false,
     "draft_prefill_ms", "prefill of the drafter, ms", "draft-ms"},
    {Pass::kLookup, "lookup", "lookup in the sequence, no model", Net::kNone, false, false,
     "lookup_index_ms", "indexing the prompt for lookups, ms", "lookup-ms"},
}};
constexpr const PassSpec& spec_of(Pass p) { return kPassTable[static_cast<std::size_t>(p)]; }
constexpr auto names_of(Pass /*any*/) {
  std::array<const char*, kPassKinds> names{};
  for (const PassSpec& p : kPassTable) names[static_cast<std::size_t>(p.pass)] = p.name;
  return names;
}
// The row of that name; null: none.
constexpr const PassSpec* find_pass(std::string_view name) {
  for (const PassSpec& p : kPassTable) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

// One value for each pass of the table.
template <class T>
struct PerPass {
  std::array<T, kPassKinds> values{};
  T& operator[](Pass p) { return values[static_cast<std::size_t>(p)]; }
  const T& operator[](Pass p) const { return values[static_cast<std::size_t>(p)]; }
};

}  // namespace triforce
