// Results of older formats as they would be written today. No other code knows their names.
#pragma once
#include <string_view>

#include "core/strict_json.h"

namespace triforce {

// Returns a format without its version: "triforce-bench.result/".
constexpr std::string_view family_of(std::string_view schema) {
  return schema.substr(0, schema.find('/') + 1);
}

// Rewrites a document, a line or a sweep of the format before kResultSchema and kSweepSchema. There
// passes had the names of their places in a chain: draft, inner_verify, middle_verify and
// outer_verify. Others are left as they are, and so is what the reader will refuse. Of a method
// that is not known here, what was said of the full pass is kept.
void upgrade_result(JsonValue& root);

}  // namespace triforce
