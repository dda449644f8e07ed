#include "host/energy_meter.h"

#include <thread>

#include "host/false_meters.h"

namespace triforce {
namespace {

constexpr const char* kGpu = "0000:17:00.0";
constexpr std::uint64_t kRange = PowercapFolder::kRange;

EnergySource source_of(const PowercapFolder& folder) { return {folder.path(), "", kNvmlLibrary}; }

TEST(EnergyMeter, SumsPackagesAndMemoryAlone) {
  const PowercapFolder folder;
  const EnergyMeter meter(source_of(folder));
  for (const char* zone : {"intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"}) {
    folder.set(zone, 999'999);
  }
  folder.set("intel-rapl:0", 100'000);
  folder.set("intel-rapl:1", 20'000);
  folder.set("intel-rapl:0:1", 3'000);
  folder.set("intel-rapl:1:0", 400);
  const ByDomain joules = meter.joules();
  EXPECT_NEAR(joules.processor.value_or(0), 0.12, 1e-12);
  EXPECT_NEAR(joules.memory.value_or(0), 0.0034, 1e-12);
  EXPECT_FALSE(joules.gpu);
  EXPECT_NEAR(joules.total().value_or(0), 0.1234, 1e-12);
  const std::vector<EnergySensor> sensors = meter.sensors();
  ASSERT_EQ(sensors.size(), 3U);
  EXPECT_EQ(sensors[0].source, "RAPL (" + folder.path() + ")");
  EXPECT_EQ(sensors[1].source, sensors[0].source);
  EXPECT_FALSE(sensors[2].source);
  EXPECT_EQ(sensors[2].unread, "no GPU computes");
}

// A ramp of three times the range, in steps below it.
TEST(EnergyMeter, GoesOnWhereACounterWrapsAround) {
  const PowercapFolder folder;
  folder.set("intel-rapl:0", kRange - 10);
  const EnergyMeter meter(source_of(folder));
  for (std::uint64_t passed = 300'000; passed <= 3'000'000; passed += 300'000) {
    folder.set("intel-rapl:0", (kRange - 10 + passed) % kRange);
    EXPECT_NEAR(meter.joules().processor.value_or(0), static_cast<double>(passed) * 1e-6, 1e-9);
  }
}

// It is looked at before it can wrap around twice, whether anybody asks or not.
TEST(EnergyMeter, SeesWrapsBetweenTwoReadings) {
  const PowercapFolder folder;
  EnergySource source = source_of(folder);
  source.wrap_period = std::chrono::milliseconds(1);
  const EnergyMeter meter(source);
  for (std::uint64_t passed = 400'000; passed <= 2'400'000; passed += 400'000) {
    folder.set("intel-rapl:0", passed % kRange);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_NEAR(meter.joules().processor.value_or(0), 2.4, 1e-9);
}

TEST(EnergyMeter, SaysWhyADomainIsNotRead) {
  const PowercapFolder folder;
  folder.remove("intel-rapl:0:1");
  folder.remove("intel-rapl:1:0");
  std::ofstream(folder.file("intel-rapl:1")) << "much";
  const EnergyMeter meter(source_of(folder));
  EXPECT_FALSE(meter.joules().total());
  EXPECT_EQ(meter.sensors()[0].unread,
            folder.file("intel-rapl:1") + ": expected a number up to max_energy_range_uj");
  EXPECT_EQ(meter.sensors()[1].unread, folder.path() + ": no zone of it");
  std::filesystem::remove(folder.file("intel-rapl:0"));
  EXPECT_EQ(EnergyMeter(source_of(folder)).sensors()[0].unread,
            folder.file("intel-rapl:0") + ": No such file or directory");
  const EnergyMeter nowhere({"/nonexistent", "", kNvmlLibrary});
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_EQ(nowhere.sensors()[i].unread, "/nonexistent: No such file or directory");
  }
}

// As the devices lie, of which the class has links: parts below their packages.
TEST(EnergyMeter, FindsZonesInEachOther) {
  const PowercapFolder folder;
  const std::string devices = folder.path() + "/devices", zones = devices + "/intel-rapl";
  std::filesystem::create_directories(zones);
  std::filesystem::rename(folder.path() + "/intel-rapl:0", zones + "/intel-rapl:0");
  std::filesystem::rename(folder.path() + "/intel-rapl:0:1",
                          zones + "/intel-rapl:0/intel-rapl:0:1");
  for (const std::string& path : {devices, zones}) {
    SCOPED_TRACE(path);
    const EnergyMeter meter({path, "", kNvmlLibrary});
    EXPECT_EQ(meter.joules(), (ByDomain{0, 0, {}}));
  }
}

TEST(EnergyMeter, SaysWhatIsWrongWithAFolder) {
  const PowercapFolder folder;
  const std::string file = folder.file("intel-rapl:0");
  EXPECT_EQ(EnergyMeter({file, "", kNvmlLibrary}).sensors()[0].unread, file + ": Not a directory");
  const std::string range = folder.path() + "/intel-rapl:0/max_energy_range_uj";
  for (const char* text : {"0", "-1", "many"}) {
    std::ofstream(range) << text;
    EXPECT_EQ(EnergyMeter(source_of(folder)).sensors()[0].unread,
              range + ": expected a number above 0");
  }
  std::filesystem::remove_all(folder.path());
  std::filesystem::create_directories(folder.path());
  EXPECT_EQ(EnergyMeter(source_of(folder)).sensors()[1].unread,
            folder.path() + ": no intel-rapl:N, as in virtual machines and containers");
}

TEST(EnergyMeter, SaysThatItMayNotRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const PowercapFolder folder;
  std::filesystem::permissions(folder.file("intel-rapl:0"), std::filesystem::perms::none);
  EXPECT_EQ(EnergyMeter(source_of(folder)).sensors()[0].unread,
            folder.file("intel-rapl:0") + ": Permission denied");
}

// A gap would be a wrong sum.
TEST(EnergyMeter, DoesNotGoOnAfterACounterFailed) {
  const PowercapFolder folder;
  const EnergyMeter meter(source_of(folder));
  std::ofstream(folder.file("intel-rapl:0")) << "";
  EXPECT_FALSE(meter.joules().processor);
  folder.set("intel-rapl:0", 1000);
  EXPECT_FALSE(meter.joules().processor);
  EXPECT_TRUE(meter.joules().memory);
  EXPECT_EQ(meter.sensors()[0].unread, "RAPL (" + folder.path() + "): stopped to answer");
  EXPECT_FALSE(meter.sensors()[0].source);
}

TEST(EnergyMeter, TakesTheCounterOfTheGpu) {
  const EnergyMeter meter({"/nonexistent", kGpu, TF_FAKE_NVML});
  const double first = meter.joules().gpu.value_or(0), second = meter.joules().gpu.value_or(0);
  EXPECT_DOUBLE_EQ(second - first, 0.25);
  EXPECT_EQ(meter.sensors()[2].source, "NVML energy counter");
}

// 30 W in the first sample and 50 W in all others.
TEST(EnergyMeter, SumsSamplesOfPowerWhereThereIsNoCounter) {
  EnergySource source = {"/nonexistent", kGpu, TF_FAKE_OLD_NVML};
  source.power_period = std::chrono::milliseconds(5);
  const auto before = std::chrono::steady_clock::now();
  const EnergyMeter meter(source);
  EXPECT_EQ(meter.sensors()[2].source, "NVML power samples");
  const double first = meter.joules().gpu.value_or(-1);
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double second = meter.joules().gpu.value_or(-1);
  const auto end = std::chrono::steady_clock::now();
  const auto seconds = [](auto passed) { return std::chrono::duration<double>(passed).count(); };
  EXPECT_GE(first, 0);
  EXPECT_LE(first, 50 * seconds(begin - before));
  EXPECT_LE(second - first, 50 * seconds(end - before));
  EXPECT_GE(second - first, 50 * 0.2 - 1e-9);
}

TEST(EnergyMeter, SaysWhyAGpuIsNotRead) {
  for (const auto& [gpu, library] :
       {std::pair{"0000:18:00.0", TF_FAKE_NVML}, std::pair{kGpu, "libno-such-nvml.so.1"}}) {
    const EnergyMeter meter({"/nonexistent", gpu, library});
    EXPECT_FALSE(meter.joules().gpu);
    EXPECT_EQ(meter.sensors()[2].unread,
              std::string("NVML is not there, or does not know GPU ") + gpu);
  }
}

}  // namespace
}  // namespace triforce
