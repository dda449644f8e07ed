#include "report/junit.h"

#include <algorithm>
#include <string_view>

#include "report/printers.h"
#include "triforce/format.h"

namespace triforce {
namespace {

using Outcome = JunitCase::Outcome;

// For an attribute between double quotes.
std::string escaped(const std::string& text) {
  std::string out, line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  for (const char c : printable(line)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string_view element_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "";
    case Outcome::kFailed:
      return "failure";
    case Outcome::kError:
      return "error";
    case Outcome::kSkipped:
      return "skipped";
  }
  return "";
}

}  // namespace

std::string to_junit(const std::string& suite, const std::vector<JunitCase>& cases) {
  const auto count = [&](Outcome outcome) {
    return std::count_if(cases.begin(), cases.end(),
                         [&](const JunitCase& c) { return c.outcome == outcome; });
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
    const std::string_view element = element_of(c.outcome);
    out += element.empty() ? "/>\n"
                           : fmt::format(">\n      <{} message=\"{}\"/>\n    </testcase>\n",
                                         element, escaped(c.message));
  }
  return out + "  </testsuite>\n</testsuites>\n";
}

}  // namespace triforce
