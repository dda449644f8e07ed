// Limits, errors and the formats' conversions.
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "emulator_test_support.h"

namespace {

using emulator_test::device_array;
using emulator_test::launch;
using emulator_test::ok;

class Api : public emulator_test::Emulator {};

__global__ void nothing() {}
__global__ void fill(int* out) {
  TF_SHARED(int, all);
  all[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[blockIdx.z * gridDim.y + blockIdx.y] = all[blockDim.x - 1] + static_cast<int>(blockIdx.z);
}

TEST_F(Api, LaunchLimits) {
  const auto refused = [&](dim3 grid, dim3 block, std::size_t smem, cudaError_t expected) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = stream_;
    EXPECT_EQ(cudaLaunchKernelEx(&config, nothing), expected);
    EXPECT_EQ(cudaGetLastError(), expected);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  };
  refused(0, 32, 0, cudaErrorInvalidConfiguration);
  refused(1, 0, 0, cudaErrorInvalidConfiguration);
  refused(1, 1025, 0, cudaErrorInvalidConfiguration);
  refused(1, dim3(32, 64), 0, cudaErrorInvalidConfiguration);
  refused(dim3(1, 65536), 32, 0, cudaErrorInvalidConfiguration);
  refused(1, 32, (48 << 10) + 1, cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 164 << 10),
            cudaErrorInvalidValue);
  EXPECT_THROW(launch(nothing, 1, 32, 164 << 10, stream_), triforce::Error);
  cudaGetLastError();
  launch(nothing, 1, 1024, 163 << 10, stream_);
  expect_fine();
}

TEST_F(Api, GridOfSeveralDimensions) {
  int* const out = device_array<int>(6);
  launch(fill, dim3(1, 2, 3), 64, 256, stream_, out);
  int host[6];
  ok(cudaStreamSynchronize(stream_));
  ok(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(host[i], 63 + i / 2);
}

TEST_F(Api, MemoryIsLimitedAndCounted) {
  tf_emulator::Limits limits;
  limits.memory_bytes = 1000;
  tf_emulator::set_limits(limits);
  void *first = nullptr, *second = nullptr;
  ok(cudaMalloc(&first, 600));
  EXPECT_EQ(cudaMalloc(&second, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  std::size_t free_bytes = 0, total = 0;
  ok(cudaMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total, 1000u);
  ok(cudaFree(first));
  EXPECT_EQ(cudaFree(first), cudaErrorInvalidValue);
  EXPECT_EQ(tf_emulator::device_bytes(), 0u);
  ok(cudaMalloc(&second, 1000));
}

TEST_F(Api, LargeAllocationsCostOnlyWhatIsTouched) {
  tf_emulator::Limits limits;
  limits.memory_bytes = std::size_t{90} << 30;
  tf_emulator::set_limits(limits);
  char* memory = nullptr;
  const std::size_t bytes = std::size_t{80} << 30;
  ok(cudaMalloc(&memory, bytes));
  ok(cudaMemset(memory + bytes - 8, 1, 8));
  EXPECT_EQ(cudaMemset(memory + bytes - 8, 1, 9), cudaErrorInvalidValue);
  ok(cudaFree(memory));
}

TEST_F(Api, CopiesOutsideOfAllocationsAreRefused) {
  int* const device = device_array<int>(4);
  int host[5] = {};
  EXPECT_EQ(cudaMemcpy(device, host, 20, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, host, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpyAsync(nullptr, host, 16, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  ok(cudaMemcpy(device, host, 16, cudaMemcpyHostToDevice));
}

TEST_F(Api, HostMemoryIsRegisteredOnceAndByItsFirstByte) {
  constexpr std::size_t kPage = 4096;
  alignas(kPage) static char memory[4 * kPage];
  ok(cudaHostRegister(memory + kPage, kPage + 1, cudaHostRegisterPortable));
  EXPECT_EQ(tf_emulator::registered_bytes(), kPage + 1);
  // Whole pages are: the next range begins on the next one.
  for (const std::size_t offset : {kPage - 8, kPage, kPage + 8, 2 * kPage + 8}) {
    EXPECT_EQ(cudaHostRegister(memory + offset, 16, cudaHostRegisterDefault),
              cudaErrorHostMemoryAlreadyRegistered)
        << offset;
  }
  EXPECT_EQ(cudaHostRegister(memory, 4 * kPage, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  ok(cudaHostRegister(memory, kPage, cudaHostRegisterDefault));
  ok(cudaHostRegister(memory + 3 * kPage, kPage, cudaHostRegisterMapped));
  cudaPointerAttributes attributes{};
  ok(cudaPointerGetAttributes(&attributes, memory + 2 * kPage));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ok(cudaPointerGetAttributes(&attributes, memory + 2 * kPage + 1));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaHostUnregister(memory + kPage + 8), cudaErrorHostMemoryNotRegistered);
  ok(cudaHostUnregister(memory + kPage));
  EXPECT_EQ(cudaHostUnregister(memory + kPage), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(tf_emulator::registered_bytes(), 2 * kPage);
  // A copy lies in one range or in none.
  int* const device = device_array<int>(2 * kPage / sizeof(int));
  EXPECT_EQ(cudaMemcpy(device, memory + kPage - 8, 16, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
}

TEST_F(Api, OnlyHostMemoryThatIsThereIsRegistered) {
  static char memory[64];
  const auto expect = [](void* at, std::size_t bytes, unsigned flags, cudaError_t error) {
    EXPECT_EQ(cudaHostRegister(at, bytes, flags), error);
    EXPECT_EQ(cudaGetLastError(), error);
  };
  expect(nullptr, 64, cudaHostRegisterDefault, cudaErrorInvalidValue);
  expect(memory, 0, cudaHostRegisterDefault, cudaErrorInvalidValue);
  expect(memory, 64, 64, cudaErrorInvalidValue);
  expect(device_array<int>(4), 16, cudaHostRegisterDefault, cudaErrorInvalidValue);
  void* pinned = nullptr;
  ok(cudaMallocHost(&pinned, 64));
  expect(pinned, 64, cudaHostRegisterDefault, cudaErrorHostMemoryAlreadyRegistered);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto map = [] {
    return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* mapped = map();
  ASSERT_EQ(munmap(mapped, kBytes), 0);
  expect(mapped, kBytes, cudaHostRegisterDefault, cudaErrorInvalidValue);
  // As much as the machine can lock.
  tf_emulator::Limits limits;
  limits.register_bytes = kBytes - 1;
  tf_emulator::set_limits(limits);
  mapped = map();
  expect(mapped, kBytes, cudaHostRegisterDefault, cudaErrorMemoryAllocation);
  limits.register_error = cudaErrorOperatingSystem;
  tf_emulator::set_limits(limits);
  expect(mapped, kBytes, cudaHostRegisterDefault, cudaErrorOperatingSystem);
  tf_emulator::set_limits({});
  ok(cudaHostRegister(mapped, kBytes, cudaHostRegisterDefault));
  // Freed too early.
  int* const device = device_array<int>(4);
  ASSERT_EQ(munmap(mapped, kBytes), 0);
  EXPECT_EQ(cudaMemcpy(device, mapped, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostUnregister(mapped), cudaErrorIllegalAddress);
  EXPECT_NE(tf_emulator::last_trap().message.find("freed while it was registered"),
            std::string::npos);
}

TEST_F(Api, NoDriverAndNoDevice) {
  tf_emulator::Limits limits;
  limits.driver_version = 0;
  tf_emulator::set_limits(limits);
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  limits.driver_version = 12080;  // of an older major version than the runtime
  tf_emulator::set_limits(limits);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  limits.driver_version = limits.runtime_version = 12080;
  limits.devices = 0;
  tf_emulator::set_limits(limits);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorNoDevice);
}

TEST_F(Api, CodeOfAnotherArchitectureIsCompiledOrRefused) {
  tf_emulator::Limits limits;
  limits.architecture = 90;
  const auto attributes = [&](int code) {
    limits.code_architecture = code;
    tf_emulator::set_limits(limits);
    cudaFuncAttributes found{};
    ok(cudaFuncGetAttributes(&found, nothing));
    return std::pair(found.ptxVersion, found.binaryVersion);
  };
  EXPECT_EQ(attributes(0), std::pair(90, 90));
  EXPECT_EQ(attributes(80), std::pair(80, 90));
  limits.code_architecture = 100;
  tf_emulator::set_limits(limits);
  cudaFuncAttributes found{};
  EXPECT_EQ(cudaFuncGetAttributes(&found, nothing), cudaErrorNoKernelImageForDevice);
}

TEST_F(Api, Device) {
  cudaDeviceProp prop;
  ok(cudaGetDeviceProperties(&prop, 0));
  int value = 0;
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(value, prop.multiProcessorCount);
  EXPECT_EQ(prop.major * 10 + prop.minor, 80);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  int blocks = 0;
  ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 40 << 10));
  EXPECT_EQ(blocks, 4);
}

// --- formats -------------------------------------------------------------------------------------

// The nearest of all values of the format, the one with an even last bit on a tie: by search.
template <class T>
std::uint16_t nearest(double x, std::uint16_t infinity) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(x);
  const auto value = [](std::uint16_t bits) {
    T t;
    std::memcpy(static_cast<void*>(&t), &bits, 2);
    return static_cast<double>(static_cast<float>(t));
  };
  std::uint16_t low = 0, high = infinity;  // value(low) <= magnitude < value(high)
  if (magnitude == std::numeric_limits<double>::infinity()) return sign | infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value(middle) <= magnitude ? low : high) = middle;
  }
  // Beyond the largest value the next place stands for infinity.
  const double step = value(low) - value(static_cast<std::uint16_t>(low - (low > 0 ? 1 : 0)));
  const double above = high == infinity ? value(low) + step : value(high);
  const double down = magnitude - value(low), up = above - magnitude;
  const bool to_high = up < down || (up == down && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (to_high ? high : low));
}

template <class T>
class Format : public testing::Test {
 protected:
  static constexpr std::uint16_t kInfinity = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80;
  static std::uint16_t bits(T value) {
    std::uint16_t b;
    std::memcpy(&b, &value, 2);
    return b;
  }
};
using Formats = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(Format, Formats);

TYPED_TEST(Format, EveryValueComesBack) {
  for (unsigned i = 0; i < 65536; ++i) {
    const auto b = static_cast<std::uint16_t>(i);
    TypeParam value;
    std::memcpy(static_cast<void*>(&value), &b, 2);
    const float f = static_cast<float>(value);
    if ((b & 0x7fff) > this->kInfinity) {
      ASSERT_TRUE(std::isnan(f));
      ASSERT_EQ(this->bits(TypeParam(f)), 0x7fff);
    } else {
      ASSERT_EQ(this->bits(TypeParam(f)), b);
    }
  }
}

TYPED_TEST(Format, RoundsToNearestEven) {
  // Every value, and around the middle to the next one, and off the middle by one f32 and one f64.
  for (unsigned i = 0; i < this->kInfinity; ++i) {
    const auto b = static_cast<std::uint16_t>(i);
    TypeParam value;
    std::memcpy(static_cast<void*>(&value), &b, 2);
    const auto next_bits = static_cast<std::uint16_t>(i + 1);
    TypeParam next;
    std::memcpy(static_cast<void*>(&next), &next_bits, 2);
    const double low = static_cast<float>(value);
    const double middle = i + 1u == this->kInfinity
                              ? low * (1 + (std::is_same_v<TypeParam, __half> ? 0x1p-12 : 0x1p-9))
                              : (low + static_cast<double>(static_cast<float>(next))) / 2;
    for (const double x : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e300)}) {
      ASSERT_EQ(this->bits(TypeParam(x)), nearest<TypeParam>(x, this->kInfinity)) << i;
      ASSERT_EQ(this->bits(TypeParam(-x)), nearest<TypeParam>(-x, this->kInfinity)) << i;
    }
    const auto f = static_cast<float>(middle);
    for (const float x : {f, std::nextafter(f, 0.0F), std::nextafter(f, 1e38F)}) {
      ASSERT_EQ(this->bits(TypeParam(x)),
                nearest<TypeParam>(static_cast<double>(x), this->kInfinity))
          << i;
    }
  }
}

TEST(Half, FusedMultiplyAddRoundsOnce) {
  // 1 + 2^-10 squared is 1 + 2^-9 + 2^-20; with -(2^-9 + 1) the last term remains.
  const __half a(1.0F + 0x1p-10F);
  EXPECT_EQ(static_cast<float>(__hfma(a, a, __half(-1.0F - 0x1p-9F))), 0x1p-20F);
  // Just above a tie in the 11th bit, by an amount that f32 would lose.
  EXPECT_EQ(static_cast<float>(__hfma(__half(0x1p-12F), __half(0x1p-12F), __half(1.0F))), 1.0F);
  EXPECT_EQ(static_cast<float>(__hfma(__half(1.0F + 0x1p-10F), __half(0x1p-11F), __half(1.0F))),
            1.0F + 0x1p-10F);
}

}  // namespace
