// Limits of control groups, from written trees of /proc and /sys/fs/cgroup.
#include "host/control_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace triforce {
namespace {

namespace fs = std::filesystem;

class ControlGroupTest : public ::testing::Test {
 protected:
  ControlGroupTest() : root_(::testing::TempDir() + "triforce_cgroup_" + std::to_string(getpid())) {
    fs::remove_all(root_);
  }
  ~ControlGroupTest() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  ControlGroup read() const { return control_group(root_); }

  const std::string root_;
};

TEST_F(ControlGroupTest, NothingThereIsNoLimit) {
  const ControlGroup g = read();
  EXPECT_FALSE(g.memory_left_bytes);
  EXPECT_FALSE(g.processors);
  EXPECT_FALSE(g.throttled_s);
}

// The least of a group and those above it; files that were only read are not in the way.
TEST_F(ControlGroupTest, VersionTwo) {
  write("/proc/self/cgroup", "0::/slice/job\n");
  write("/proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  write("/sys/fs/cgroup/slice/job/memory.max", "1000000\n");
  write("/sys/fs/cgroup/slice/job/memory.current", "700000\n");
  write("/sys/fs/cgroup/slice/job/memory.stat", "anon 100000\nfile 600000\ninactive_file 500000\n");
  write("/sys/fs/cgroup/slice/memory.max", "900000\n");
  write("/sys/fs/cgroup/slice/memory.current", "750000\n");
  write("/sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/slice/cpu.max", "250000 100000\n");
  write("/sys/fs/cgroup/slice/cpu.stat", "usage_usec 9\nnr_throttled 5\nthrottled_usec 1500000\n");
  ControlGroup g = read();
  EXPECT_EQ(g.memory_left_bytes, 150000);
  EXPECT_EQ(g.processors, 2.5);
  EXPECT_EQ(g.throttled_s, 1.5);
  write("/sys/fs/cgroup/slice/memory.max", "max\n");
  g = read();
  EXPECT_EQ(g.memory_left_bytes, 1000000 - (700000 - 500000));
}

TEST_F(ControlGroupTest, VersionOneBesideTwo) {
  write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n2:cpuacct,cpu:/c\n0::/\n");
  write("/proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "400000000\n");
  write("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "100000000\n");
  write("/sys/fs/cgroup/memory/a/b/memory.stat", "cache 1\ntotal_inactive_file 20000000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "3000000000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "10000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.stat", "nr_periods 9\nthrottled_time 9600000000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const ControlGroup g = read();
  EXPECT_EQ(g.memory_left_bytes, 320000000);
  EXPECT_EQ(g.processors, 0.1);
  EXPECT_EQ(g.throttled_s, 9.6);
}

// In a container the group's path is the host's, and the mount shows that group as its root.
TEST_F(ControlGroupTest, AContainerSeesItsGroupAsTheRoot) {
  write("/proc/self/cgroup", "4:memory:/docker/abc\n");
  write("/proc/self/mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n");
  EXPECT_EQ(read().memory_left_bytes, 0);
}

TEST_F(ControlGroupTest, WhatCannotBeReadIsNoLimit) {
  for (const char* text : {"", "0::", "x", "::", "0:", "4:memory", "0::relative\n"}) {
    write("/proc/self/cgroup", text);
    write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup\n- cgroup2\n");
    EXPECT_FALSE(read().memory_left_bytes) << text;
  }
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  for (const char* text : {"", "100000", "x 100000", "-5 100000", "5 0", "1 2 3"}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_FALSE(read().processors) << text;
  }
}

}  // namespace
}  // namespace triforce
