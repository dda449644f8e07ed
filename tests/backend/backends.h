// The backends that the suites of this folder run over.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "selftest/conformance.h"

namespace triforce {

struct BackendCase {
  std::string name;
  std::function<std::unique_ptr<Backend>()> make;
  selftest::Conformance conformance;  // what its arithmetic promises
};
// Those of this test program: the reference and every CPU level of this processor, or CUDA in f16
// and bf16.
std::vector<BackendCase> backends();

}  // namespace triforce
