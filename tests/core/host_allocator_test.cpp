#include "core/host_allocator.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/host_pages.h"

namespace triforce {
namespace {

TEST(HostPages, EveryPageIsPresentWhateverTheNumberOfThreads) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  for (const std::int64_t bytes : {std::int64_t{1}, kHugePage, 5 * kHugePage - 1}) {
    for (const int threads : {1, 3, 100}) {
      std::byte* p = map_pages(bytes);
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % kHugePage, 0U);
      touch_pages(p, bytes, threads);
      std::vector<unsigned char> resident(static_cast<std::size_t>((bytes + page - 1) / page));
      ASSERT_EQ(mincore(p, static_cast<std::size_t>(bytes), resident.data()), 0);
      EXPECT_TRUE(
          std::all_of(resident.begin(), resident.end(), [](auto bits) { return (bits & 1) != 0; }))
          << bytes << " bytes, " << threads << " threads";
      EXPECT_TRUE(std::all_of(p, p + bytes, [](std::byte b) { return b == std::byte{0}; }));
      unmap_pages(p, bytes);
      EXPECT_NE(mincore(p, static_cast<std::size_t>(bytes), resident.data()), 0);
    }
  }
  EXPECT_EQ(map_pages(std::int64_t{1} << 60), nullptr);
}

TEST(HostPages, PreferAMemoryNode) {
  constexpr std::int64_t kBytes = kHugePage;
  std::byte* p = map_pages(kBytes);
  ASSERT_NE(p, nullptr);
  prefer_node(p, kBytes, kNoNode);
  int policy = -1;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, p, MPOL_F_ADDR) == 0) {  // else: no nodes
    EXPECT_EQ(policy, MPOL_DEFAULT);
    prefer_node(p, kBytes, 0);
    unsigned long nodes = 0;
    ASSERT_EQ(syscall(SYS_get_mempolicy, &policy, &nodes, 8 * sizeof(nodes) + 1, p, MPOL_F_ADDR),
              0);
    EXPECT_EQ(policy, MPOL_PREFERRED);
    EXPECT_EQ(nodes, 1U);
  }
  touch_pages(p, kBytes, 1);
  unmap_pages(p, kBytes);
}

TEST(HostPages, ThePciDeviceSaysItsMemoryNode) {
  const std::filesystem::path devices = testing::TempDir() + "pci_devices";
  const auto say = [&](const std::string& id, const std::string& node) {
    std::filesystem::create_directories(devices / id);
    std::ofstream(devices / id / "numa_node") << node << "\n";
  };
  say("0000:3b:00.0", "1");
  say("0000:af:00.0", "-1");
  EXPECT_EQ(node_of_pci_device("0000:3B:00.0", devices), 1);
  EXPECT_EQ(node_of_pci_device("0000:AF:00.0", devices), kNoNode);
  EXPECT_EQ(node_of_pci_device("0000:00:00.0", devices), kNoNode);
  std::filesystem::remove_all(devices);
}

TEST(HostAllocator, BlocksAreAlignedZeroedAndWritable) {
  HostAllocator a;
  for (const std::int64_t bytes :
       {1, 63, 64, 65, 4096, 65535, 65536, (4 << 20) - 1, 4 << 20, (6 << 20) + 3}) {
    for (int again = 0; again < 2; ++again) {  // a reused block must be zeroed too
      void* p = a.allocate(bytes, Place::kHost, MemTag::kWorkspace);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0U);
      auto* begin = static_cast<std::byte*>(p);
      EXPECT_TRUE(std::all_of(begin, begin + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::fill(begin, begin + bytes, std::byte{0xff});
      a.release(p, bytes, Place::kHost, MemTag::kWorkspace);
    }
  }
}

TEST(HostAllocator, BlocksOfMiddleSizeShareHugePages) {
  constexpr std::int64_t kBlock = 3 << 20;
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "they are apart, so that the sanitizer sees their ends";
#endif
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto is_mapped = [&](const void* p) {
    const auto at = reinterpret_cast<std::uintptr_t>(p) / page * page;
    unsigned char resident = 0;
    return mincore(reinterpret_cast<void*>(at), page, &resident) == 0 && (resident & 1) != 0;
  };
  HostAllocator a;
  std::vector<void*> blocks;
  for (int i = 0; i < 11; ++i) {  // one more than a region of 32 MiB has room for
    blocks.push_back(a.allocate(kBlock - 64 * i - 1, Place::kHost, MemTag::kTargetWeights));
    auto* begin = static_cast<std::byte*>(blocks.back());
    const std::int64_t bytes = kBlock - 64 * i - 1;
    EXPECT_TRUE(is_mapped(begin + bytes - 1));  // not at a first use
    EXPECT_TRUE(std::all_of(begin, begin + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(begin, begin + bytes, static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks[0]) % kHugePage, 0U);
  for (std::size_t i = 1; i < 10; ++i) {
    EXPECT_EQ(static_cast<std::byte*>(blocks[i]) - static_cast<std::byte*>(blocks[i - 1]),
              kBlock - 64 * (static_cast<std::int64_t>(i) - 1));
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks[10]) % kHugePage, 0U);
  for (int i = 0; i < 11; ++i) {  // none of them was written by another
    const auto* begin = static_cast<const std::byte*>(blocks[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(std::all_of(begin, begin + kBlock - 64 * i - 1,
                            [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
  }
  a.release(blocks[10], kBlock - 64 * 10 - 1, Place::kHost, MemTag::kTargetWeights);
  EXPECT_FALSE(is_mapped(blocks[10]));  // the only one of the second region
  for (int i = 9; i > 0; --i) {
    a.release(blocks[static_cast<std::size_t>(i)], kBlock - 64 * i - 1, Place::kHost,
              MemTag::kTargetWeights);
  }
  EXPECT_TRUE(is_mapped(blocks[0]));
  a.release(blocks[0], kBlock - 1, Place::kHost, MemTag::kTargetWeights);
  EXPECT_FALSE(is_mapped(blocks[0]));
}

TEST(HostAllocator, LedgersCountByTagAndPlace) {
  HostAllocator a;
  {
    const Buffer kv(a, 1000, Place::kPinned, MemTag::kKvFull);
    {
      const Buffer more(a, 500, Place::kHost, MemTag::kKvFull);
      const Buffer probs(a, 70, Place::kHost, MemTag::kProbs);
      const Buffer none(a, 0, Place::kHost, MemTag::kProbs);
      EXPECT_TRUE(none.empty());
    }
    EXPECT_EQ(a.ledger(MemTag::kKvFull).live_bytes, 1000);
    EXPECT_EQ(a.ledger(MemTag::kKvFull).peak_bytes, 1500);
    EXPECT_EQ(a.ledger(MemTag::kKvFull).allocations, 2);
    EXPECT_EQ(a.ledger(MemTag::kProbs).peak_bytes, 70);
    EXPECT_EQ(a.total(Place::kPinned).live_bytes, 1000);
    EXPECT_EQ(a.total(Place::kHost).live_bytes, 0);
    EXPECT_EQ(a.total(Place::kHost).peak_bytes, 570);
    EXPECT_EQ(a.total(Place::kHost).allocations, 2);
    a.reset_peaks();
    const Buffer later(a, 20, Place::kHost, MemTag::kProbs);
    EXPECT_EQ(a.ledger(MemTag::kKvFull).peak_bytes, 1000);
    EXPECT_EQ(a.ledger(MemTag::kProbs).peak_bytes, 20);
    EXPECT_EQ(a.total(Place::kPinned).peak_bytes, 1000);
    EXPECT_EQ(a.total(Place::kHost).peak_bytes, 20);
  }
  EXPECT_EQ(a.ledger(MemTag::kKvFull).live_bytes, 0);
  EXPECT_EQ(a.total(Place::kPinned).live_bytes, 0);
}

TEST(HostAllocator, OutOfMemoryIsAnErrorThatLeavesTheLedgerAlone) {
  HostAllocator small(1000);
  const Buffer first(small, 600, Place::kHost, MemTag::kKvFull);
  const auto expect_error = [](HostAllocator& a, std::int64_t bytes) {
    const std::int64_t before = a.total(Place::kHost).live_bytes;
    try {
      const Buffer b(a, bytes, Place::kHost, MemTag::kWorkspace);
      FAIL() << bytes;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kResources);
      EXPECT_EQ(e.kind(), "OutOfMemory");
    }
    EXPECT_EQ(a.total(Place::kHost).live_bytes, before);
  };
  expect_error(small, 401);
  EXPECT_NO_THROW(Buffer(small, 400, Place::kHost, MemTag::kWorkspace));
  HostAllocator all;
  expect_error(all, std::int64_t{1} << 60);  // more than any address space
}

}  // namespace
}  // namespace triforce
