// RULER's synthetic tasks (arXiv 2404.06654, section 3 and appendix A): what a model still finds,
// follows and counts in a long text. Questions of how much a small cache loses.
//
//   needles     secret numbers of things, in sentences between the lines of a synthetic document
//   ruler-vt    variables of which each is set to the one before, between such lines
//   ruler-cwe   a list in which ten words stand more often than all others
//   ruler-fwe   a list whose k-th word stands 1 / k^2 times as often as its first
//
// Numbers and frequencies are the published ones. The words and the documents around them are this
// project's: words of lists are made of syllables, so scores compare methods, not papers.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "data/prompt_collector.h"

namespace triforce {

enum class RulerTask : std::uint8_t {
  kSingle,         // one needle
  kMultiKey,       // four things with a number each, one is asked for
  kMultiValue,     // four numbers of one thing
  kMultiQuery,     // four things with a number each, all are asked for
  kVariables,      // variable tracking: one chain of five
  kCommonWords,    // ten words 30 times each, others 3 times
  kFrequentWords,  // three words of Zipf's law with exponent 2
};
// As --dataset takes them.
constexpr auto names_of(RulerTask /*any*/) {
  return std::array{"ruler-niah-single",
                    "ruler-niah-multikey",
                    "ruler-niah-multivalue",
                    "ruler-niah-multiquery",
                    "ruler-vt",
                    "ruler-cwe",
                    "ruler-fwe"};
}
std::optional<RulerTask> find_ruler_task(std::string_view name);

// Prompts of the task, each a pure function of (seed, number): an introduction, text or list of
// just as many tokens as there is room for, and the question with the beginning of its answer.
// Variables and common words come with a short example, as published. Prompt::expected is what the
// answer must hold. Throws Error(kUsage) for a prefill without room for that, or if fewer tokens
// will be generated than the answer has; Error(kBadInput): NoTokenizer, InvalidDataset where a line
// has no ids.
void make_ruler(RulerTask task, const DatasetRequest& request, PromptCollector& collect,
                DataInfo& info);

}  // namespace triforce
