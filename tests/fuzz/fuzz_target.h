// What every fuzz target allows: an answer, or an Error of bad input or usage, and the same twice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "triforce/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace triforce::fuzz {

inline void require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz target: %s\n", what);
  std::abort();
}

// The kind of the Error `call` throws, empty if none. Everything else that is thrown escapes.
template <class Call>
std::string outcome(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    require(e.code() == ExitCode::kBadInput || e.kind() == "Usage", e.what());
    require(!e.kind().empty(), "an error without a kind");
    const std::string_view text = e.what();
    require(text.find_first_of("\n\r") == std::string_view::npos, "a message of several lines");
    require(text.size() < 4096, "a message of over 4096 bytes");
    return e.kind();
  }
  return {};
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace triforce::fuzz
