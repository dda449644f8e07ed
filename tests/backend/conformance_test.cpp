// The conformance suite over every backend of this program; `selftest` runs it over one.
#include "selftest/conformance.h"

#include <gtest/gtest.h>

#include "backend/backends.h"

namespace triforce {
namespace {

class ConformanceTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(ConformanceTest, EveryOperation) {
  const std::unique_ptr<Backend> backend = GetParam().make();
  int checks = 0;
  selftest::run_conformance(*backend, GetParam().conformance, [&](const selftest::Check& check) {
    EXPECT_TRUE(check.passed) << check.group << ": " << check.name << ": " << check.figure;
    ++checks;
  });
  EXPECT_GT(checks, 35);
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceTest, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace triforce
