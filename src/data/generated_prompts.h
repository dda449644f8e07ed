// The data sets that are made, not read.
#pragma once
#include "data/prompt_collector.h"

namespace triforce {

// synthetic_document()s, from the first one on.
void make_synthetic(const DatasetRequest& request, const Encode& encode, PromptCollector& collect,
                    DataInfo& info);

// A random key of kPassKeyChars url-safe characters (as many as 256 random bytes have in base64), a
// pure function of (seed, index).
inline constexpr std::size_t kPassKeyChars = 342;
std::string pass_key(std::uint64_t seed, std::uint64_t index);

// The pass key retrieval of arXiv 2404.11912, Table 1: synthetic documents, in each of them at
// request.needle_depth a sentence that tells a key, and at the end a question whose answer is that
// key. Throws Error(kUsage) for a prefill without room for both, and if more tokens will be
// generated than the shortest key has: acceptance is then that of copied tokens alone.
void make_needles(const DatasetRequest& request, const Encode& encode, PromptCollector& collect,
                  DataInfo& info);

}  // namespace triforce
