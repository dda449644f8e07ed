// Counts operator new, to prove that a path allocates nothing.
#pragma once
#include <cstdint>

namespace triforce {
// Calls of operator new by all threads since the start of the program.
std::int64_t allocation_count();
}  // namespace triforce
