// Memory, staging and recorded passes.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>

#include "cuda/cuda_test_support.h"
#include "cuda/graph_cache.h"
#include "cuda/transfer.h"
#ifdef TF_CUDA_EMULATED
#include "tf_emulator.h"
#endif

namespace triforce::cuda {
namespace {

// Against a plain map of what is taken.
TEST(FreeList, NeverGivesTheSameBytesTwiceAndJoinsWhatComesBack) {
  constexpr std::int64_t kBytes = 1000;
  FreeList list(kBytes);
  std::map<std::int64_t, std::int64_t> taken;  // offset -> bytes
  std::mt19937 random(7);
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const std::int64_t bytes = 1 + static_cast<std::int64_t>(random() % 120);
      const std::int64_t offset = list.take(bytes);
      if (offset < 0) {
        EXPECT_LT(list.largest(), bytes);
        continue;
      }
      ASSERT_LE(offset + bytes, kBytes);
      const auto next = taken.lower_bound(offset);
      ASSERT_TRUE(next == taken.end() || offset + bytes <= next->first);
      if (next != taken.begin()) {
        const auto before = std::prev(next);
        ASSERT_LE(before->first + before->second, offset);
      }
      taken.emplace(offset, bytes);
    } else if (!taken.empty()) {
      const auto it =
          std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      list.give_back(it->first, it->second);
      taken.erase(it);
    }
  }
  for (const auto& [offset, bytes] : taken) list.give_back(offset, bytes);
  EXPECT_EQ(list.largest(), kBytes);
}

TEST(CudaAllocator, MemoryIsZeroedCountedAndUsedAgain) {
  CudaAllocator a(0);
  a.reserve(1 << 20);
  void* first = nullptr;
  {
    Buffer b(a, 3000, Place::kDevice, MemTag::kProbs);
    first = b.data();
    EXPECT_EQ(a.ledger(MemTag::kProbs).live_bytes, 3000);
    TF_CUDA(cudaMemset(b.data(), 0xff, 3000));
    TF_CUDA(cudaDeviceSynchronize());
  }
  EXPECT_EQ(a.total(Place::kDevice).live_bytes, 0);
  EXPECT_EQ(a.total(Place::kDevice).peak_bytes, 3000);
  const Buffer b(a, 2000, Place::kDevice, MemTag::kProbs);
  EXPECT_EQ(b.data(), first);
  std::vector<std::uint8_t> bytes(2000, 1);
  TF_CUDA(cudaMemcpy(bytes.data(), b.data(), bytes.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), 2000);
  // Beyond the reserve.
  const Buffer large(a, 2 << 20, Place::kDevice, MemTag::kKvFull);
  EXPECT_NE(large.data(), nullptr);
  const Buffer pinned(a, 100, Place::kPinned, MemTag::kWorkspace);
  EXPECT_EQ(a.total(Place::kPinned).live_bytes, 100);
  EXPECT_EQ(static_cast<const char*>(pinned.data())[99], 0);
}

TEST(CudaAllocator, PiecesEndWithWhatTheyHold) {
  constexpr int kMiB = 1 << 20;
  CudaAllocator a(0);
  const auto on_device = [&](std::int64_t mib) {
    return Buffer(a, mib * kMiB, Place::kDevice, MemTag::kWorkspace);
  };
  const auto free_mib = [] {
    std::size_t free_bytes = 0, total_bytes = 0;
    TF_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    return static_cast<double>(free_bytes) / kMiB;
  };
  const Buffer kept = on_device(1);
  const double all = free_mib();
  constexpr double kTolerance = 8;  // the driver's granularity
  for (int mib = 40; mib < 60; ++mib) {
    const Buffer b = on_device(mib);
    EXPECT_NEAR(free_mib(), all - mib, kTolerance);
  }
  EXPECT_NEAR(free_mib(), all, kTolerance);
  // A reserve stays while nothing is in it.
  a.reserve(64 * kMiB);
  EXPECT_EQ(a.idle_bytes(), 64 * kMiB);
  Buffer b = on_device(60);
  EXPECT_EQ(a.idle_bytes(), 0);
  b = Buffer();
  EXPECT_NEAR(free_mib(), all - 64, kTolerance);
  // The next one takes its place, or follows it if it is in use.
  a.reserve(96 * kMiB);
  EXPECT_NEAR(free_mib(), all - 96, kTolerance);
  b = on_device(90);
  a.reserve(40 * kMiB);
  EXPECT_NEAR(free_mib(), all - 136, kTolerance);
  b = Buffer();
  EXPECT_NEAR(free_mib(), all - 40, kTolerance);
  a.reserve(0);
  EXPECT_EQ(a.idle_bytes(), 0);
  EXPECT_NEAR(free_mib(), all, kTolerance);
}

TEST(CudaAllocator, TooMuchIsRefusedWithWhatIsFree) {
  CudaAllocator a(0);
  std::size_t free_bytes = 0, total_bytes = 0;
  TF_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  try {
    a.reserve(static_cast<std::int64_t>(total_bytes) + 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kResources);
    EXPECT_NE(std::string(e.what()).find(std::to_string(total_bytes)), std::string::npos)
        << e.what();
  }
  // The failure has left nothing behind.
  EXPECT_NE(Buffer(a, 64, Place::kDevice, MemTag::kProbs).data(), nullptr);
}

TEST(CudaAllocator, PinnedBlocksOfAnySizeAreZeroedPageLockedAndReadByCopies) {
  CudaAllocator a(0);
  for (const std::int64_t bytes :
       {std::int64_t{64}, kRegisteredBytes - 2048, kRegisteredBytes, 3 * kRegisteredBytes + 100}) {
    for (int again = 0; again < 2; ++again) {
      const Buffer b(a, bytes, Place::kPinned, MemTag::kKvFull);
      auto* data = static_cast<std::uint8_t*>(b.data());
      EXPECT_EQ(std::count(data, data + bytes, 0), bytes) << bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, 0U);
      for (const std::int64_t at : {std::int64_t{0}, bytes - 1}) {
        cudaPointerAttributes attributes{};
        TF_CUDA(cudaPointerGetAttributes(&attributes, data + at));
        EXPECT_EQ(attributes.type, cudaMemoryTypeHost) << bytes << " at " << at;
        EXPECT_EQ(attributes.devicePointer, data + at);
      }
      data[bytes - 1] = 7;
      const Buffer to(a, 1, Place::kDevice, MemTag::kWorkspace);
      TF_CUDA(cudaMemcpy(to.data(), data + bytes - 1, 1, cudaMemcpyHostToDevice));
      std::uint8_t got = 0;
      TF_CUDA(cudaMemcpy(&got, to.data(), 1, cudaMemcpyDeviceToHost));
      EXPECT_EQ(got, 7);
    }
  }
  EXPECT_EQ(a.total(Place::kPinned).live_bytes, 0);
}

// A copy that the host has not waited for still finds the memory it reads.
TEST(CudaAllocator, PinnedBlocksOutliveTheWorkThatUsesThem) {
  CudaAllocator a(0);
  const Stream stream = make_stream();
  const OnDevice<std::uint8_t> target(a, {0});
  Buffer b(a, kRegisteredBytes, Place::kPinned, MemTag::kKvFull);
  *static_cast<std::uint8_t*>(b.data()) = 9;
  TF_CUDA(cudaMemcpyAsync(target.data(), b.data(), 1, cudaMemcpyHostToDevice, stream.get()));
  b = Buffer();
  EXPECT_EQ(target.values()[0], 9);
}

#ifdef TF_CUDA_EMULATED
// Of address space that this process has mapped.
std::int64_t mapped_bytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}
#endif

TEST(CudaAllocator, PinnedMemoryThatIsNotThereIsRefused) {
  CudaAllocator a(0);
  const auto expect_refused = [&](std::int64_t bytes) {
    try {
      const Buffer b(a, bytes, Place::kPinned, MemTag::kKvFull);
      FAIL() << bytes;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kResources);
      EXPECT_NE(std::string(e.what()).find("kv_full: "), std::string::npos) << e.what();
    }
    EXPECT_EQ(a.total(Place::kPinned).live_bytes, 0);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  };
  expect_refused(std::int64_t{1} << 60);
#ifdef TF_CUDA_EMULATED
  // Registration refuses, in all ways that drivers have, and cudaHostAlloc has no more either;
  // nothing stays mapped or registered.
  for (const cudaError_t error :
       {cudaErrorMemoryAllocation, cudaErrorOperatingSystem, cudaErrorNotSupported}) {
    tf_emulator::Limits limits;
    limits.register_bytes = kRegisteredBytes;
    limits.register_error = error;
    limits.pinned_bytes = kRegisteredBytes;
    tf_emulator::set_limits(limits);
    // Often enough that a leak shows beside the stacks of threads, which are kept for the next.
    constexpr int kTimes = 32;
    const std::int64_t before = mapped_bytes();
    for (int i = 0; i < kTimes; ++i) expect_refused(2 * kRegisteredBytes);
    EXPECT_LT(mapped_bytes() - before, kTimes * kRegisteredBytes);
    EXPECT_EQ(tf_emulator::registered_bytes(), 0U);
    const Buffer fits(a, kRegisteredBytes, Place::kPinned, MemTag::kKvFull);
    EXPECT_EQ(tf_emulator::registered_bytes(), static_cast<std::size_t>(kRegisteredBytes));
  }
  tf_emulator::set_limits({});
#endif
}

#ifdef TF_CUDA_EMULATED
// A block that could be registered is the driver's, and goes back as it came when limits change.
void expect_pinned_by_driver(const tf_emulator::Limits& limits) {
  tf_emulator::set_limits(limits);
  CudaAllocator a(0);
  const std::size_t before = tf_emulator::pinned_bytes();
  {
    const Buffer b(a, kRegisteredBytes, Place::kPinned, MemTag::kKvFull);
    EXPECT_EQ(tf_emulator::registered_bytes(), 0U);
    EXPECT_EQ(tf_emulator::pinned_bytes() - before, static_cast<std::size_t>(kRegisteredBytes));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    tf_emulator::set_limits({});
  }
  EXPECT_EQ(tf_emulator::pinned_bytes(), before);
}

// As in gVisor, in WSL, under a limit of locked memory.
TEST(CudaAllocator, PinnedMemoryIsTheDriversWhereItCannotBeRegistered) {
  for (const cudaError_t error : {cudaErrorNotSupported, cudaErrorInvalidValue,
                                  cudaErrorMemoryAllocation, cudaErrorOperatingSystem}) {
    tf_emulator::Limits limits;
    limits.register_bytes = 0;
    limits.register_error = error;
    expect_pinned_by_driver(limits);
  }
}

TEST(CudaAllocator, PinnedMemoryIsTheDriversWhereRegisteredMemoryHasAnotherAddress) {
  tf_emulator::Limits limits;
  limits.registered_pointers = false;
  expect_pinned_by_driver(limits);
}
#endif

// More pieces than slots: a slot that was reused too early would carry another piece's bytes.
TEST(Transfer, CarriesEveryPiece) {
  constexpr std::int64_t kElements = (std::int64_t{75} << 20) / sizeof(std::int32_t);
  CudaAllocator a(0);
  const Stream stream = make_stream();
  const HostWait wait;
  Transfer transfer(a, stream.get(), wait);
  std::vector<std::int32_t> from(kElements);
  std::iota(from.begin(), from.end(), 0);
  const OnDevice<std::int32_t> target(a, std::vector<std::int32_t>(kElements));
  transfer.upload(make_view(target.data(), DType::kI32, {kElements}),
                  make_view(from.data(), DType::kI32, {kElements}));
  TF_CUDA(cudaStreamSynchronize(stream.get()));
  EXPECT_TRUE(target.values() == from);
}

constexpr Backend::PassKey kPass = {.model = 1, .caches = {2}, .kind = 3};

// Every replay reads what is in memory then, not what was there when it was recorded.
TEST(GraphCache, RunsThenRecordsThenReplays) {
  CudaAllocator a(0);
  const Stream stream = make_stream();
  const OnDevice<int> from(a, {0}), to(a, {0});
  GraphCache graphs;
  int calls = 0;
  const auto body = [&] {
    ++calls;
    TF_CUDA(cudaMemcpyAsync(to.data(), from.data(), sizeof(int), cudaMemcpyDeviceToDevice,
                            stream.get()));
  };
  for (int i = 1; i <= 5; ++i) {
    to_device(from.data(), &i, sizeof(int));
    graphs.run(kPass, stream.get(), body);
    TF_CUDA(cudaStreamSynchronize(stream.get()));
    EXPECT_EQ(to.values()[0], i);
    EXPECT_EQ(calls, std::min(i, 2));
  }
  EXPECT_EQ(graphs.recorded(), 1U);
  graphs.set_enabled(false);
  graphs.run(kPass, stream.get(), body);
  EXPECT_EQ(calls, 3);
  graphs.clear();
  EXPECT_EQ(graphs.recorded(), 0U);
  // It ends with either of its leases, and with no other.
  graphs.set_enabled(true);
  for (const std::uint64_t lease : {kPass.model, kPass.caches.front()}) {
    for (int i = 0; i < 2; ++i) graphs.run(kPass, stream.get(), body);
    graphs.forget(kPass.kind);
    EXPECT_EQ(graphs.recorded(), 1U);
    graphs.forget(lease);
    EXPECT_EQ(graphs.recorded(), 0U);
  }
}

TEST(GraphCache, AFailedRecordingLeavesTheStreamUsable) {
  CudaAllocator a(0);
  const Stream stream = make_stream();
  GraphCache graphs;
  graphs.run(kPass, stream.get(), [] {});
  EXPECT_THROW(graphs.run(kPass, stream.get(), [] { throw std::runtime_error("stop"); }),
               std::runtime_error);
  TF_CUDA(cudaStreamSynchronize(stream.get()));
  graphs.run(kPass, stream.get(), [] {});
  EXPECT_EQ(graphs.recorded(), 1U);
}

}  // namespace
}  // namespace triforce::cuda
