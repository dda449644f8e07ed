// The one exception type of the project and the exit codes it maps to.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "triforce/format.h"

namespace triforce {

// Process exit codes; stable, documented in scripts/README.md.
enum class ExitCode : std::uint8_t {
  kOk = 0,
  kRegression = 1,
  kUsage = 2,
  kBadInput = 3,
  kResources = 4,
  kDevice = 5,
  kCommunication = 6,
  kNumeric = 7,
  kInconclusive = 8,
  kInternal = 70,
  kInterrupted = 130,
};

// Anything the program cannot continue from. `what()` is one line that names the item, what was
// expected and what was found; `kind()` is a stable CamelCase class such as "InvalidOffset".
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string kind, const std::string& message)
      : std::runtime_error(message), code_(code), kind_(std::move(kind)) {}
  ExitCode code() const { return code_; }
  const std::string& kind() const { return kind_; }

 private:
  ExitCode code_;
  std::string kind_;
};

// Returns the error of that code with which call() ended; nullopt: it ended without one. Errors of
// other codes pass.
template <class Call>
std::optional<Error> error_of(ExitCode code, const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    if (e.code() != code) throw;
    return e;
  }
  return std::nullopt;
}

template <class... Args>
[[noreturn]] [[gnu::cold]] void throw_usage(fmt::format_string<Args...> f, Args&&... args) {
  throw Error(ExitCode::kUsage, "Usage", fmt::format(f, std::forward<Args>(args)...));
}
// Bad file contents: `kind` is the error class of the table in tests/cases.
template <class... Args>
[[noreturn]] [[gnu::cold]] void throw_input(const char* kind, fmt::format_string<Args...> f,
                                            Args&&... args) {
  throw Error(ExitCode::kBadInput, kind, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] [[gnu::cold]] void throw_resources(const char* kind, fmt::format_string<Args...> f,
                                                Args&&... args) {
  throw Error(ExitCode::kResources, kind, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] [[gnu::cold]] void throw_numeric(fmt::format_string<Args...> f, Args&&... args) {
  throw Error(ExitCode::kNumeric, "Numeric", fmt::format(f, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] [[gnu::cold]] inline void check_failed(const char* file, int line, const char* cond,
                                                    const std::string& detail) {
  throw Error(ExitCode::kInternal, "Internal",
              fmt::format("{}:{}: internal check failed: {}{}{}", file, line, cond,
                          detail.empty() ? "" : ": ", detail));
}
inline std::string check_text() { return {}; }
template <class... Args>
std::string check_text(fmt::format_string<Args...> f, Args&&... args) {
  return fmt::format(f, std::forward<Args>(args)...);
}
}  // namespace detail
}  // namespace triforce

// Contracts between the parts of this program; always on. TF_CHECK(cond) or
// TF_CHECK(cond, "format {}", value). Throws Error with exit code 70.
#define TF_CHECK(cond, ...)                                          \
  (static_cast<bool>(cond)                                           \
       ? void(0)                                                     \
       : ::triforce::detail::check_failed(__FILE__, __LINE__, #cond, \
                                          ::triforce::detail::check_text(__VA_ARGS__)))

// Contracts in inner loops: debug builds only.
#ifdef NDEBUG
#define TF_DCHECK(cond, ...) void(0)
#else
#define TF_DCHECK(cond, ...) TF_CHECK(cond __VA_OPT__(, ) __VA_ARGS__)
#endif
