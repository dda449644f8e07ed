// Large blocks of host memory, in huge pages where the system grants them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace triforce {

// Anonymous memory of at least `bytes` > 0, whole huge pages and aligned to 2 MiB; it reads as
// zeros and takes no memory before it is touched. Null if the system refuses.
std::byte* map_pages(std::int64_t bytes) noexcept;
void unmap_pages(std::byte* p, std::int64_t bytes) noexcept;

// Makes the pages of such a block present by up to `threads` threads, at most 32 and as many as can
// be started. They take huge pages in turn, so that on a machine of several memory nodes the block
// lies on all of them.
void touch_pages(std::byte* p, std::int64_t bytes, int threads) noexcept;

}  // namespace triforce
