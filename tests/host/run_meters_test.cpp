// What ranks of a run know of each other's processors and energy.
#include "host/run_meters.h"

#include <ctime>

#include "host/false_meters.h"

namespace triforce {
namespace {

void burn(double for_s) {
  const std::clock_t begin = std::clock();
  while (static_cast<double>(std::clock() - begin) < for_s * CLOCKS_PER_SEC) {
  }
}

// Three ranks, the last on a machine of its own: what ranks of a machine do is not others' work
// there, and what passes on the other machine is told apart.
TEST(RunMeters, RanksOfAMachineAreNotOthers) {
  const StatFile stats[2] = {StatFile("first"), StatFile("second")};
  for (const StatFile& stat : stats) stat.write(0, 0, 0, 0);
  const auto ends = testing::run_ranks(3, [&](RankLinks& links) -> std::string {
    const int rank = links.shard().rank;
    const RunMeters meters(links, stats[rank == 2 ? 1 : 0].source());
    if (rank != 0) {
      burn(0.1 * rank);
      links.meet();
      follow(links, {}, [&] { return meters.of_rank(); });
      return "followed";
    }
    links.meet();
    const std::vector<LoadTimes> machines = meters.load(gather_readings);
    dismiss(links);
    if (machines.size() != 2) return fmt::format("{} machines", machines.size());
    EXPECT_EQ(machines[0].processes, 2);
    EXPECT_EQ(machines[1].processes, 1);
    EXPECT_GE(machines[0].own, 0.09);  // rank 1 of the first machine
    EXPECT_GE(machines[1].own, 0.18);
    EXPECT_GT(machines[0].processors, 0);
    EXPECT_EQ(machines[0].processors, machines[1].processors);
    return "seen";
  });
  EXPECT_EQ(ends[0].value, "seen") << ends[0].what;
  for (const std::size_t r : {1U, 2U}) EXPECT_EQ(ends[r].value, "followed") << ends[r].what;
}

TEST(RunMeters, IsNotKnownWhereARankDoesNotSay) {
  const StatFile stat("first");
  stat.write(0, 0, 0, 0);
  const auto ends = testing::run_ranks(2, [&](RankLinks& links) -> std::string {
    MeterSource source = stat.source();
    if (links.shard().rank == 1) source.proc_stat = "/nonexistent";
    const RunMeters meters(links, source);
    if (links.shard().rank != 0) {
      follow(links, {}, [&] { return meters.of_rank(); });
      return "followed";
    }
    const std::size_t n = meters.load(gather_readings).size();
    dismiss(links);
    return std::to_string(n);
  });
  EXPECT_EQ(ends[0].value, "0") << ends[0].what;
}

// Ranks of a machine read the same counters, which count once; a GPU that two ranks compute with
// does, too. Each rank here reads 2 J of its machine and, of the fake NVML, 0.25 J a reading.
TEST(RunMeters, EnergyOfAMachineAndOfAGpuCountsOnce) {
  const StatFile stats[2] = {StatFile("first"), StatFile("second")};
  for (const StatFile& stat : stats) stat.write(0, 0, 0, 0);
  const PowercapFolder folders[2] = {PowercapFolder("first"), PowercapFolder("second")};
  const auto ends = testing::run_ranks(3, [&](RankLinks& links) -> std::string {
    const int rank = links.shard().rank, machine = rank == 2 ? 1 : 0;
    MeterSource source = stats[machine].source();
    source.energy.powercap = folders[machine].path();
    source.energy.pci_bus_id = "0000:17:00.0";
    source.energy.nvml = TF_FAKE_NVML;
    RunMeters meters(links, source);
    links.meet();
    if (rank == 0) {
      for (const PowercapFolder& folder : folders) {
        folder.set("intel-rapl:0", 500'000);
        folder.set("intel-rapl:1", 500'000);
        folder.set("intel-rapl:0:1", 250'000);
      }
    }
    links.meet();
    if (rank != 0) {
      follow(links, {}, [&] { return meters.of_rank(); });
      return "followed";
    }
    const ByDomain first = meters.joules(gather_readings), second = meters.joules(gather_readings);
    dismiss(links);
    EXPECT_EQ(first.processor, 2.0);
    EXPECT_EQ(first.memory, 0.5);
    EXPECT_EQ((second - first).processor, 0.0);
    EXPECT_EQ((second - first).gpu, 0.5);  // of two GPUs
    return "seen";
  });
  EXPECT_EQ(ends[0].value, "seen") << ends[0].what;
}

TEST(RunMeters, ADomainThatARankDoesNotReadIsNotKnown) {
  const StatFile stats[2] = {StatFile("first"), StatFile("second")};
  for (const StatFile& stat : stats) stat.write(0, 0, 0, 0);
  const PowercapFolder folders[2] = {PowercapFolder("first"), PowercapFolder("second")};
  folders[1].remove("intel-rapl:0:1");
  folders[1].remove("intel-rapl:1:0");
  const auto ends = testing::run_ranks(2, [&](RankLinks& links) -> std::string {
    const auto rank = static_cast<std::size_t>(links.shard().rank);
    MeterSource source = stats[rank].source();
    source.energy.powercap = folders[rank].path();
    RunMeters meters(links, source);
    const ByDomain watts = meters.measure_idle_watts();
    EXPECT_EQ(watts.processor, 0.0);
    EXPECT_FALSE(watts.memory || watts.gpu);
    if (rank != 0) {
      follow(links, {}, [&] { return meters.of_rank(); });
      return "followed";
    }
    EXPECT_FALSE(meters.joules(gather_readings).memory);
    dismiss(links);
    return "seen";
  });
  for (const auto& end : ends) EXPECT_NE(end.value, "") << end.what;
}

TEST(RunMeters, IdlePowerIsThatOfASecond) {
  const PowercapFolder folder;
  RankLinks links = no_links();
  MeterSource source;
  source.energy.powercap = folder.path();
  RunMeters meters(links, source);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    folder.set("intel-rapl:0", 800'000);
  });
  const auto begin = std::chrono::steady_clock::now();
  const ByDomain watts = meters.measure_idle_watts();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  writer.join();
  ASSERT_TRUE(watts.processor);
  EXPECT_GE(seconds, 1.0);
  EXPECT_NEAR(*watts.processor * seconds, 0.8, 0.1);
  EXPECT_EQ(watts.memory, 0.0);
}

TEST(RunMeters, NobodyWaitsWhereNothingIsRead) {
  RankLinks links = no_links();
  MeterSource source;
  source.energy.powercap = "/nonexistent";
  RunMeters meters(links, source);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(meters.measure_idle_watts(), ByDomain{});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace triforce
