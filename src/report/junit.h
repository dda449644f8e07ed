// JUnit XML: what CI systems show of tests.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace triforce {

struct JunitCase {
  enum class Outcome : std::uint8_t { kPassed, kFailed, kError, kSkipped };
  std::string group;  // "classname": what was tested
  std::string name;   // of what
  Outcome outcome = Outcome::kPassed;
  std::string message;  // one line; shown of what has not passed
  double seconds = 0;
};

// Writes one <testsuite> in a <testsuites>. Characters that XML 1.0 cannot have become '?'.
std::string to_junit(const std::string& suite, const std::vector<JunitCase>& cases);

}  // namespace triforce
