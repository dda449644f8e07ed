// Options with several values: every combination of them is a case of its own, made of the option
// texts that a command line would have for it alone.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options/options.h"

namespace triforce {

// Most cases of a sweep, and so most values of an option: without --yes, and with it.
inline constexpr std::size_t kMaxCases = 10000, kMaxCasesMeant = 1000000;
// "10000 cases without --yes": one of the two as messages say it.
std::string limit_text(std::size_t limit, std::string_view of);

// The values that a text stands for, of options that sweep (Option::sweeps): items between commas;
// of numbers also "a-b", "a-b+step" and "a-b*factor", ends included: "1k-16k*2" is 1024, 2048, ...,
// 16384. One value is the text as it is. Throws Error(kUsage), naming the option: an empty item or
// range, a value given twice, one that the option refuses, more than `max_values`, one of the two
// limits.
std::vector<std::string> expand_values(const Option& option, const Given& given,
                                       std::size_t max_values);

// An AxisPoint is one combination of values.
struct AxisPoint {
  std::vector<std::pair<std::string, std::string>> axes;  // option and value: those that vary
  GivenOptions given;                                     // of this case
  std::string machine;  // that its recipe is meant for (RecipePart); empty: none is named
};
// Returns all combinations of the values given, in the order of option_table(); the last option
// varies fastest. If no option has several values, it is one point without axes. Throws as
// expand_values(), and for more than max_points combinations, one of the two limits.
std::vector<AxisPoint> expand_axes(Command command, const GivenOptions& given,
                                   std::size_t max_points);

}  // namespace triforce
