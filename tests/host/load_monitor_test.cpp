// What a run says of the machine's other work: from a written /proc/stat, and from the real one.
#include "host/load_monitor.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace triforce {
namespace {

using ::testing::TempDir;

// A /proc/stat in which every processor of this process has the same ticks.
class StatFile {
 public:
  ~StatFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  void write(long user, long system, long idle, long steal) const {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
    std::ofstream file(path_);
    file << "cpu  1 2 3\n";
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      const bool is_mine = CPU_ISSET(i, &mine) != 0;
      if (!is_mine && i >= CPU_COUNT(&mine) + 1) continue;
      // What others do where this process cannot run does not count.
      file << "cpu" << i << ' ' << (is_mine ? user : 999999) << " 0 " << system << ' ' << idle
           << " 0 0 0 " << steal << " 0 0\n";
    }
    file << "intr 1 2 3\n";
  }

 private:
  std::string path_ = TempDir() + "triforce_stat_" + std::to_string(getpid());
};

TEST(LoadMonitor, TellsWhatOthersDidFromWhatWasStolen) {
  const StatFile stat;
  stat.write(1000, 500, 7000, 30);
  const LoadMonitor monitor(stat.path());
  EXPECT_FALSE(monitor.observed()) << "no time has passed";
  stat.write(1000 + 40000, 500 + 10000, 7000 + 40000, 30 + 10000);
  const auto load = monitor.observed();
  ASSERT_TRUE(load);
  EXPECT_GE(load->processors, 1);
  const double n = load->processors;
  // This process did next to nothing of it.
  EXPECT_NEAR(load->other, 0.5 * n, 0.01 * n);
  EXPECT_NEAR(load->stolen, 0.1 * n, 1e-9);
  EXPECT_LT(load->own, 0.01 * n);
}

TEST(LoadMonitor, SaysNothingWhereTheSystemDoesNot) {
  EXPECT_FALSE(LoadMonitor("/nonexistent").observed());
  const StatFile stat;
  std::ofstream(stat.path()) << "cpu0 1 2\n";
  EXPECT_FALSE(LoadMonitor(stat.path()).observed());
  std::ofstream(stat.path()) << "no processors\n";
  EXPECT_FALSE(LoadMonitor(stat.path()).observed());
}

// Busy for half a second on one processor: that much is its own, whatever others do.
TEST(LoadMonitor, CountsItsOwnTime) {
  if (access("/proc/stat", R_OK) != 0) GTEST_SKIP() << "no /proc/stat";
  const LoadMonitor monitor;
  const std::clock_t begin = std::clock();
  while (std::clock() - begin < CLOCKS_PER_SEC / 2) {
  }
  const auto load = monitor.observed();
  ASSERT_TRUE(load);
  EXPECT_GT(load->own, 0.02);
  EXPECT_LT(load->own, 1.3);
  EXPECT_LE(load->own + load->other + load->stolen, load->processors + 0.3);
}

TEST(Disturbances, AreLoadsThatTakeWhatTheThreadsNeed) {
  const auto of = [](double other, double stolen, int threads) {
    return disturbances({.processors = 4, .own = 1, .other = other, .stolen = stolen}, threads);
  };
  EXPECT_TRUE(of(0, 0, 4).empty());
  EXPECT_TRUE(of(0.3, 0.05, 4).empty());
  EXPECT_TRUE(of(1.9, 0, 2).empty()) << "two processors are left for two threads";
  EXPECT_TRUE(of(0, 0, 64).empty()) << "more threads than processors are not other work";
  EXPECT_EQ(of(2.5, 0, 2),
            (std::vector<std::string>{"other processes kept 2.5 of 4 processors busy, and this one "
                                      "computes with 2 threads"}));
  EXPECT_EQ(
      of(0, 1, 1),
      (std::vector<std::string>{"the hypervisor gave 25% of the processors' time to others"}));
  EXPECT_EQ(of(4, 0.2, 1).size(), 2U);
}

}  // namespace
}  // namespace triforce
