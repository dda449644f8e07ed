// Replaces operator new of the program it is linked into: counts the calls, and lets one fail.
#pragma once
#include <cstdint>

namespace triforce {

// Calls of operator new by all threads since the start of the program.
std::int64_t allocation_count();
// Lets operator new fail once, after `n` calls that succeed; negative: never.
void fail_allocation_after(std::int64_t n);

}  // namespace triforce
