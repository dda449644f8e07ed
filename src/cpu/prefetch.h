// Requests ahead of the loads of kernels that stream through memory.
#pragma once

namespace triforce::cpu {

// Asks for the line at p, which need not be readable, for the second-level cache: what is in use
// and what comes next would push each other out of a first-level cache of 32 KiB (AMD Zen 4: a pass
// of 8 rows takes up to 1.6 times as long that way), and from the second level the hardware brings
// it in time.
[[gnu::always_inline]] inline void prefetch_line(const void* p) {
  constexpr int kToRead = 0, kSecondLevel = 2;
  __builtin_prefetch(p, kToRead, kSecondLevel);
}

}  // namespace triforce::cpu
