// Files that say what the kernel would: tests write them.
#pragma once
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "host/run_meters.h"
#include "ranks/rank_engine.h"

namespace triforce {

// A /proc/stat in which every processor of this process has the same ticks, and the id of a
// machine.
class StatFile {
 public:
  explicit StatFile(const std::string& name = "")
      : path_(::testing::TempDir() + "triforce_stat_" + std::to_string(getpid()) + name) {
    std::ofstream(path_ + "_id") << name << '\n';
  }
  ~StatFile() {
    unlink(path_.c_str());
    unlink((path_ + "_id").c_str());
  }
  const std::string& path() const { return path_; }
  MeterSource source() const { return {path_, path_ + "_id", {}}; }
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
  std::string path_;
};

// RAPL's folder, with zones as a server has them: two packages with a part each, their memory and
// the whole platform.
class PowercapFolder {
 public:
  static constexpr std::uint64_t kRange = 1'000'000;  // uJ

  explicit PowercapFolder(const std::string& name = "")
      : path_(::testing::TempDir() + "triforce_powercap_" + std::to_string(getpid()) + name) {
    std::filesystem::create_directories(path_ + "/dtpm");  // of another kind
    add("intel-rapl:0", "package-0");
    add("intel-rapl:0:0", "core");
    add("intel-rapl:0:1", "dram");
    add("intel-rapl:1", "package-1");
    add("intel-rapl:1:0", "dram");
    add("intel-rapl:2", "psys");
    add("intel-rapl-mmio:0", "package-0");  // the same package once more
  }
  ~PowercapFolder() { std::filesystem::remove_all(path_); }
  PowercapFolder(const PowercapFolder&) = delete;
  PowercapFolder& operator=(const PowercapFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& zone) const { return path_ + "/" + zone + "/energy_uj"; }
  void set(const std::string& zone, std::uint64_t microjoules) const {
    const std::string whole = file(zone) + ".new";
    std::ofstream(whole) << microjoules << '\n';
    std::filesystem::rename(whole, file(zone));
  }
  void remove(const std::string& zone) const { std::filesystem::remove_all(path_ + "/" + zone); }

 private:
  void add(const std::string& zone, const std::string& name) const {
    std::filesystem::create_directory(path_ + "/" + zone);
    std::ofstream(path_ + "/" + zone + "/name") << name << '\n';
    std::ofstream(path_ + "/" + zone + "/max_energy_range_uj") << kRange << '\n';
    set(zone, 0);
  }

  std::string path_;
};

inline RankLinks no_links() {
  return {Shard{}, std::vector<Descriptor>(1), std::chrono::seconds(1)};
}

}  // namespace triforce
