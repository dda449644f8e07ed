#include "core/host_pages.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <exception>
#include <fstream>
#include <thread>

#include "core/rounding.h"

namespace triforce {
namespace {

constexpr std::size_t kPageBytes = kHugePage;
constexpr std::size_t kMostThreads = 32;

std::size_t huge_pages(std::int64_t bytes) {
  return static_cast<std::size_t>(ceil_div(bytes, kHugePage));
}

void touch(std::byte* huge_page) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(huge_page, kPageBytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  constexpr std::size_t kPage = 4096;
  for (std::size_t i = 0; i < kPageBytes; i += kPage) {
    const_cast<volatile std::byte*>(huge_page)[i] = {};
  }
}

}  // namespace

// Over-maps by one huge page and trims, since mmap promises only page alignment.
std::byte* map_pages(std::int64_t bytes) noexcept {
  const std::size_t size = huge_pages(bytes) * kPageBytes, want = size + kPageBytes;
  void* raw = mmap(nullptr, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(raw);
  const std::size_t front = -reinterpret_cast<std::uintptr_t>(raw) % kPageBytes;
  if (front != 0) munmap(base, front);
  munmap(base + front + size, kPageBytes - front);
  madvise(base + front, size, MADV_HUGEPAGE);  // a hint: refusal changes speed only
  return base + front;
}

void unmap_pages(std::byte* p, std::int64_t bytes) noexcept {
  munmap(p, huge_pages(bytes) * kPageBytes);
}

void prefer_node(std::byte* p, std::int64_t bytes, int node) noexcept {
  unsigned long nodes = 0;
  constexpr int kNodes = 8 * sizeof(nodes);
  if (node < 0 || node >= kNodes) return;
  nodes = 1UL << node;
  // A wish: a system that refuses changes speed only.
  static_cast<void>(
      syscall(SYS_mbind, p, huge_pages(bytes) * kPageBytes, MPOL_PREFERRED, &nodes, kNodes + 1, 0));
}

int node_of_pci_device(std::string id, const std::string& devices) {
  for (char& c : id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::ifstream file(devices + "/" + id + "/numa_node");
  int node = kNoNode;
  return file >> node && node >= 0 ? node : kNoNode;
}

void touch_pages(std::byte* p, std::int64_t bytes, int threads) noexcept {
  const std::size_t pages = huge_pages(bytes);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < pages; i = next++) touch(p + i * kPageBytes);
  };
  const std::size_t wanted = std::min({static_cast<std::size_t>(threads), pages, kMostThreads});
  std::array<std::thread, kMostThreads> helpers;
  try {
    for (std::size_t i = 1; i < wanted; ++i) helpers[i] = std::thread(work);
  } catch (const std::exception&) {  // fewer, then
  }
  work();
  for (std::thread& helper : helpers) {
    if (helper.joinable()) helper.join();
  }
}

}  // namespace triforce
