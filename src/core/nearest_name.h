// "did you mean": the name that a misspelt one is closest to.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace triforce {

// The first of `known` that begins with `name`, if that has three letters or more; else the one
// that the fewest changed, missing and surplus letters are from it, at most two or a third of its
// length, and fewer than it has. Empty if none is so near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// "; did you mean PREFIX<nearest>?", or nothing.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known,
                         std::string_view prefix = {});

}  // namespace triforce
