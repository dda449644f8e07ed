#include "host/cpu_model.h"

#include <gtest/gtest.h>

#include <sstream>

namespace triforce {
namespace {

std::string named(const std::string& cpuinfo) {
  std::istringstream in(cpuinfo);
  return cpu_model_name(in);
}

TEST(CpuModel, IsWhatTheProcessorCallsItself) {
  EXPECT_EQ(named("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\n"
                  "model name\t: AMD EPYC 7763 64-Core Processor\n\nprocessor\t: 1\n"
                  "model name\t: another\n"),
            "AMD EPYC 7763 64-Core Processor");
}

TEST(CpuModel, OfArmIsTheNameOfItsPart) {
  const std::string core = "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n\n";
  EXPECT_EQ(named("processor\t: 0\n" + core + "processor\t: 1\n" + core), "Neoverse-V2");
  EXPECT_EQ(named("CPU implementer\t: 0xc0\nCPU part\t: 0xac4\n"), "Ampere-1a");
}

TEST(CpuModel, NamesCoresOfEveryKindOnce) {
  const std::string big = "CPU implementer\t: 0x41\nCPU part\t: 0xd85\n",
                    small = "CPU implementer\t: 0x41\nCPU part\t: 0xd87\n";
  EXPECT_EQ(named(big + small + big + small), "Cortex-X925 + Cortex-A725");
}

TEST(CpuModel, OfAnUnknownPartIsItsNumbers) {
  EXPECT_EQ(named("CPU implementer\t: 0x99\nCPU part\t: 0xd4f\n"),
            "Arm implementer 0x99 part 0xd4f");
}

TEST(CpuModel, IsUnknownWhereNothingSaysIt) {
  EXPECT_EQ(named(""), "unknown");
  EXPECT_EQ(named("model name\t:\n: Neoverse\nCPU part\n"), "unknown");
}

}  // namespace
}  // namespace triforce
