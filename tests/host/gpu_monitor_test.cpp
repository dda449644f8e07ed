#include "host/gpu_monitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace triforce {
namespace {

constexpr const char* kGpu = "0000:17:00.0";

// What `monitor` saw once its mean clock is that of four samples or more, or after ten seconds.
GpuObservation after_four_samples(const GpuMonitor& monitor) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::seconds(10); Clock::now() < end;) {
    const GpuObservation seen = monitor.observed();
    if (seen.clocks && seen.clocks->min == 1200 && seen.clocks->mean >= 1570) return seen;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return monitor.observed();
}

TEST(GpuMonitor, KeepsTheRangeOfClocksEveryReasonAndTheFastestLink) {
  const GpuMonitor monitor(kGpu, TF_FAKE_NVML);
  EXPECT_EQ(monitor.observed().throttle_reasons, std::vector<std::string>());  // idle
  const GpuObservation seen = after_four_samples(monitor);
  ASSERT_TRUE(seen.clocks && seen.throttle_reasons);
  EXPECT_EQ(seen.clocks->min, 1200);
  EXPECT_EQ(seen.clocks->max, 1980);
  EXPECT_NEAR(seen.clocks->mean, 1585, 15);
  EXPECT_EQ(*seen.throttle_reasons, (std::vector<std::string>{kPowerCap, "sw_thermal_slowdown"}));
  EXPECT_EQ(seen.pcie, "gen5 x16");
}

TEST(GpuMonitor, TakesWhatAnOldDriverSays) {
  const GpuMonitor monitor(kGpu, TF_FAKE_OLD_NVML);
  const GpuObservation seen = monitor.observed();
  ASSERT_TRUE(seen.clocks);
  EXPECT_EQ(seen.clocks->mean, 1500);
  EXPECT_EQ(seen.throttle_reasons, std::vector<std::string>());
  EXPECT_FALSE(seen.pcie);
}

TEST(GpuMonitor, SaysNothingWithoutTheLibraryOrOfAnotherGpu) {
  for (const auto& [gpu, library] :
       {std::pair{kGpu, "libno-such-nvml.so.1"}, std::pair{"0000:18:00.0", TF_FAKE_NVML},
        std::pair{kGpu, "libm.so.6"}}) {
    const GpuObservation seen = GpuMonitor(gpu, library).observed();
    EXPECT_FALSE(seen.clocks || seen.throttle_reasons || seen.pcie) << library;
  }
}

}  // namespace
}  // namespace triforce
