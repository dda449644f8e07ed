// The operands of an instruction as text, and what they are in a function.
#pragma once
#include <string>
#include <vector>

#include "module.h"

namespace tf_ptx::detail {

struct Operands {
  std::vector<std::string> text;  // in order; {a,b} is one

  virtual ~Operands() = default;
  // The register an operand names, or one that holds the constant it is; `bytes` as
  // Register::bytes, of what reads a constant. Throws std::runtime_error for a name that is not
  // declared.
  virtual Register value(const std::string& operand, std::uint8_t bytes) = 0;
  virtual Address address(const std::string& operand, Space space) = 0;
  // Of a call: results and parameters are matched with the function's when all are known.
  virtual void call(Instruction& out) = 0;
  virtual void branch(Instruction& out, const std::string& label) = 0;

  static std::vector<std::string> elements(const std::string& operand);  // of {a,b}, else itself
  static std::uint64_t number(const std::string& constant);
};

}  // namespace tf_ptx::detail
