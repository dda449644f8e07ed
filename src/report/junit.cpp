#include "report/junit.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "report/printers.h"
#include "triforce/format.h"

namespace triforce {
namespace {

using Outcome = JunitCase::Outcome;

// For an attribute between double quotes.
std::string escaped(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return replaced(printable(text), {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
}

// By outcome; none for what has passed.
constexpr std::array<std::string_view, 4> kElements = {"", "failure", "error", "skipped"};

}  // namespace

std::string to_junit(const std::string& suite, const std::vector<JunitCase>& cases) {
  const auto count = [&](Outcome outcome) {
    return std::ranges::count_if(cases, [&](const JunitCase& c) { return c.outcome == outcome; });
  };
  const std::string totals = fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\"", cases.size(),
                                         count(Outcome::kFailed), count(Outcome::kError));
  // Suites alone count what was skipped: <testsuites> has no such attribute.
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {}>\n"
      "  <testsuite name=\"{}\" {} skipped=\"{}\">\n",
      totals, escaped(suite), totals, count(Outcome::kSkipped));
  for (const JunitCase& c : cases) {
    out += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                       escaped(c.group), escaped(c.name), c.seconds);
    const std::string_view element = kElements.at(static_cast<std::size_t>(c.outcome));
    out += element.empty() ? "/>\n"
                           : fmt::format(">\n      <{} message=\"{}\"/>\n    </testcase>\n",
                                         element, escaped(c.message));
  }
  return out + "  </testsuite>\n</testsuites>\n";
}

}  // namespace triforce
