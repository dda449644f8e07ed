// Reads one JSON text that core/fields.h wrote back into its struct, for the readers of results.
#pragma once
#include <string>
#include <string_view>

#include "core/fields.h"

namespace triforce {

// Strict, as read_value(); limits and messages of a broken text are of this error class. `absent`
// gets the members that the text lacks and that were read as null; it may be null. `upgrade`
// rewrites what was parsed before it is read; null: nothing. Throws Error(kBadInput, error_kind).
template <class T>
T read_json_text(std::string_view text, const std::string& source, const JsonLimits& limits,
                 const char* error_kind, AbsentMembers* absent = nullptr,
                 void (*upgrade)(JsonValue&) = nullptr) {
  JsonValue root = parse_json(text, source, limits, {error_kind, error_kind, error_kind});
  if (upgrade != nullptr) upgrade(root);
  T x;
  read_value(JsonView(root, source, error_kind, absent), x);
  return x;
}

}  // namespace triforce
