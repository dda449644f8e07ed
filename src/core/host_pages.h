// Large blocks of host memory, in huge pages where the system grants them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace triforce {

inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

// Anonymous memory of at least `bytes` > 0, whole huge pages and aligned to 2 MiB; it reads as
// zeros and takes no memory before it is touched. Null if the system refuses.
std::byte* map_pages(std::int64_t bytes) noexcept;
void unmap_pages(std::byte* p, std::int64_t bytes) noexcept;

// Asks that pages of such a block which are not present yet come from one memory node as long as
// that has some. kNoNode, or a system that has no nodes: nothing.
inline constexpr int kNoNode = -1;
void prefer_node(std::byte* p, std::int64_t bytes, int node) noexcept;

// The memory node beside a PCI device, kNoNode if the system does not say. `id`: as
// "0000:3B:00.0", `devices`: the system's folder of them.
int node_of_pci_device(std::string id, const std::string& devices = "/sys/bus/pci/devices");

// Makes the pages of such a block present by up to `threads` threads, at most 32 and as many as can
// be started. They take huge pages in turn: on a machine of several memory nodes a block that
// prefers none lies on all of them.
void touch_pages(std::byte* p, std::int64_t bytes, int threads) noexcept;

}  // namespace triforce
