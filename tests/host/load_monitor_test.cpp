// What a run says of the machines' other work: from a written /proc/stat, and from the real one.
#include "host/load_monitor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "host/false_meters.h"

namespace triforce {
namespace {

// A run of one process, whose times come from a file.
struct Alone {
  explicit Alone(MeterSource source) : meters(links, std::move(source)) {}
  RankLinks links = no_links();
  RunMeters meters;
  LoadMonitor monitor{[this] { return meters.load(gather_readings); }};
};

TEST(LoadMonitor, TellsWhatOthersDidFromWhatWasStolen) {
  const StatFile stat;
  Alone a(stat.source());
  stat.write(1000, 500, 7000, 30);
  EXPECT_FALSE(a.monitor.observed()) << "nothing was watched";
  a.monitor.resume();
  EXPECT_FALSE(a.monitor.observed()) << "no time has passed";
  stat.write(1000 + 40000, 500 + 10000, 7000 + 40000, 30 + 10000);
  for (const bool paused : {false, true}) {
    if (paused) a.monitor.pause();
    const auto load = a.monitor.observed();
    ASSERT_TRUE(load);
    EXPECT_GE(load->processors, 1);
    EXPECT_EQ(load->processes, 1);
    const double n = load->processors;
    // This process did next to nothing of it.
    EXPECT_NEAR(load->other, 0.5 * n, 0.01 * n);
    EXPECT_NEAR(load->stolen, 0.1 * n, 1e-9);
    EXPECT_LT(load->own, 0.01 * n);
  }
}

// A quota that stops the process is nobody else's work, and no idle time of its own.
TEST(LoadMonitor, SaysWhatAQuotaTookAway) {
  const StatFile stat;
  const std::string root = stat.path() + "_root";
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  write("/sys/fs/cgroup/cpu.stat", "throttled_usec 7000000\n");
  MeterSource source = stat.source();
  source.control_group_root = root;
  Alone a(source);
  stat.write(0, 0, 0, 0);
  a.monitor.resume();
  stat.write(1000, 0, 1000, 0);  // twenty seconds of each processor
  write("/sys/fs/cgroup/cpu.stat", "throttled_usec 17000000\n");
  const auto load = a.monitor.observed();
  std::filesystem::remove_all(root);
  ASSERT_TRUE(load);
  EXPECT_NEAR(load->throttled.value_or(0), 0.5, 1e-9);
  const std::vector<std::string> reasons = disturbances({4, 1, 0, 0, 1, 0.5}, 2);
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_NE(reasons[0].find("quota of the control group stopped 0.5 processors"),
            std::string::npos);
  EXPECT_TRUE(disturbances({4, 1, 0, 0, 1, 0.05}, 2).empty());
}

// What happens while another case is at work is not this one's.
TEST(LoadMonitor, SeesOnlyWhatIsWatched) {
  const StatFile stat;
  Alone a(stat.source());
  long busy = 0, idle = 0;
  const auto pass = [&](long more_busy, long more_idle) {
    busy += more_busy;
    idle += more_idle;
    stat.write(busy, 0, idle, 0);
  };
  pass(0, 0);
  for (int i = 0; i < 3; ++i) {
    a.monitor.resume();
    pass(10000, 30000);
    a.monitor.pause();
    pass(50000, 0);
  }
  const auto load = a.monitor.observed();
  ASSERT_TRUE(load);
  EXPECT_NEAR(load->other, 0.25 * load->processors, 0.01 * load->processors);
}

TEST(LoadMonitor, SaysNothingWhereTheSystemDoesNot) {
  const StatFile stat;
  for (const char* text : {"", "cpu0 1 2\n", "no processors\n"}) {
    std::ofstream(stat.path()) << text;
    Alone a(stat.source());
    a.monitor.resume();
    EXPECT_FALSE(a.monitor.observed()) << text;
    // Nor of the whole where it once did not say.
    a.monitor.pause();
    stat.write(0, 0, 0, 0);
    a.monitor.resume();
    stat.write(50000, 0, 50000, 0);
    EXPECT_FALSE(a.monitor.observed()) << text;
  }
  Alone missing({"/nonexistent", "/nonexistent", "/nonexistent"});
  missing.monitor.resume();
  EXPECT_FALSE(missing.monitor.observed());
}

// Busy for half a second on one processor: that much is its own, whatever others do.
TEST(LoadMonitor, CountsItsOwnTime) {
  if (access("/proc/stat", R_OK) != 0) GTEST_SKIP() << "no /proc/stat";
  Alone a({});
  a.monitor.resume();
  const std::clock_t begin = std::clock();
  while (std::clock() - begin < CLOCKS_PER_SEC / 2) {
  }
  const auto load = a.monitor.observed();
  ASSERT_TRUE(load);
  EXPECT_GT(load->own, 0.02);
  EXPECT_LT(load->own, 1.3);
  EXPECT_LE(load->own + load->other + load->stolen, load->processors + 0.3);
}

// Of several machines, that which others took the most of.
TEST(LoadMonitor, TakesTheMachineThatWasDisturbedMost) {
  std::vector<LoadTimes> now(2);
  now[0].processors = 4;
  now[1].processors = 8;
  LoadMonitor monitor([&] { return now; });
  monitor.resume();
  now[0].busy += 120, now[0].own += 80, now[0].idle += 280;
  now[1].busy += 600, now[1].own += 100, now[1].idle += 100, now[1].stolen += 100;
  now[1].processes = now[0].processes = 2;
  monitor.pause();
  const auto load = monitor.observed();
  ASSERT_TRUE(load);
  EXPECT_EQ(load->processors, 8);
  EXPECT_EQ(load->processes, 2);
  EXPECT_NEAR(load->own, 1, 1e-9);
  EXPECT_NEAR(load->other, 5, 1e-9);
  EXPECT_NEAR(load->stolen, 1, 1e-9);
  now.pop_back();  // a machine is gone
  monitor.resume();
  EXPECT_FALSE(monitor.observed());
}

TEST(Disturbances, AreLoadsThatTakeWhatTheThreadsNeed) {
  const auto of = [](double other, double stolen, int threads, int processes = 1) {
    return disturbances(
        {.processors = 4, .own = 1, .other = other, .stolen = stolen, .processes = processes},
        threads);
  };
  EXPECT_TRUE(of(0, 0, 4).empty());
  EXPECT_TRUE(of(0.3, 0.05, 4).empty());
  EXPECT_TRUE(of(1.9, 0, 2).empty()) << "two processors are left for two threads";
  EXPECT_TRUE(of(0, 0, 64).empty()) << "more threads than processors are not other work";
  EXPECT_EQ(of(2.5, 0, 2),
            (std::vector<std::string>{"other processes kept 2.5 of 4 processors busy, and this one "
                                      "computes with 2 threads"}));
  EXPECT_EQ(of(1.9, 0, 2, 2),
            (std::vector<std::string>{"other processes kept 1.9 of 4 processors busy, and 2 ranks "
                                      "compute with 2 threads each"}));
  EXPECT_EQ(
      of(0, 1, 1),
      (std::vector<std::string>{"the hypervisor gave 25% of the processors' time to others"}));
  EXPECT_EQ(of(4, 0.2, 1).size(), 2U);
  // Of results that do not say how many processes there were.
  EXPECT_TRUE(disturbances({.processors = 4, .other = 1.9}, 2).empty());
}

// The one place where people read the limits has those of the program.
TEST(Disturbances, TheManualHasTheLimits) {
  std::ifstream file(std::string(TF_SOURCE_DIR) + "/data/schema/README.md");
  std::string readme, word;
  while (file >> word) readme += (readme.empty() ? "" : " ") + word;
  for (const std::string& said :
       {fmt::format("left the threads less than {:.0f}% of what they need",
                    100 * (1 - kUsualShareOfOthers)),
        fmt::format("gave more than {:.0f}% of the processors' time to others",
                    100 * kUsualStolenShare)}) {
    EXPECT_NE(readme.find(said), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace triforce
