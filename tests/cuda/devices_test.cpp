// Which devices are looked at, which are touched, and what is said of those that cannot be used.
#include "host/devices.h"

#include "cuda/cuda_backend.h"
#include "cuda/cuda_test_support.h"
#ifdef TF_CUDA_EMULATED
#include "tf_emulator.h"
#endif

namespace triforce {
namespace {

TEST(Devices, AreListed) {
  const CudaDevices found = find_cuda_devices();
  EXPECT_TRUE(found.built);
  ASSERT_FALSE(found.devices.empty()) << found.reason;
  const CudaDevice& first = found.devices[0];
  EXPECT_FALSE(first.name.empty());
  EXPECT_EQ(first.architecture.rfind("sm_", 0), 0U) << first.architecture;
  EXPECT_GT(first.memory_bytes, 0);
  EXPECT_LE(first.free_bytes.value(), first.memory_bytes);
  EXPECT_EQ(first.problem, "");
}

#ifdef TF_CUDA_EMULATED
class EmulatedDevices : public ::testing::Test {
 protected:
  EmulatedDevices() { tf_emulator::reset(); }
  ~EmulatedDevices() override { tf_emulator::reset(); }
  // A machine of several devices, one of which another process has for itself.
  static void set(int devices, int busy) {
    tf_emulator::Limits limits;
    limits.devices = devices;
    limits.busy_device = busy;
    tf_emulator::set_limits(limits);
  }
  static std::string failure_of(const std::string& device) {
    try {
      static_cast<void>(open_cuda(device, {}));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kDevice);
      return e.what();
    }
    return "no failure";
  }
};

TEST_F(EmulatedDevices, OnlyTheWantedOneIsTouched) {
  set(3, 0);
  {
    const std::optional<CudaSession> session = open_cuda("cuda:1", DType::kF16);
    ASSERT_TRUE(session);
    EXPECT_EQ(session->gpu.pci_bus_id, "0000:02:00.0");
  }
  EXPECT_EQ(tf_emulator::counters().contexts, 0b010U);
}

TEST_F(EmulatedDevices, ABusyOneIsRefusedInOneLineAndListedWithTheReason) {
  set(3, 1);
  const std::string said = failure_of("cuda:1");
  EXPECT_NE(said.find("--device cuda:1: Emulated CUDA device (sm_80) cannot be used"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("busy or unavailable"), std::string::npos) << said;
  EXPECT_EQ(tf_emulator::counters().contexts, 0U);

  const CudaDevices found = find_cuda_devices();
  ASSERT_EQ(found.devices.size(), 3U);
  EXPECT_EQ(found.devices[0].problem, "");
  EXPECT_EQ(found.devices[2].problem, "");
  EXPECT_NE(found.devices[1].problem.find("busy or unavailable"), std::string::npos);
  EXPECT_EQ(found.devices[1].name, found.devices[0].name);
  EXPECT_FALSE(found.devices[1].free_bytes);
}

TEST_F(EmulatedDevices, WithoutADriverItSaysSo) {
  tf_emulator::Limits limits;
  limits.driver_version = 0;
  tf_emulator::set_limits(limits);
  EXPECT_EQ(find_cuda_devices().reason, "no NVIDIA driver");
  EXPECT_EQ(failure_of("cuda"), "--device cuda: no NVIDIA driver");
  EXPECT_THROW(static_cast<void>(make_cuda_backend({})), Error);
}

TEST_F(EmulatedDevices, WithAnOldDriverItSaysWhatIsNeeded) {
  tf_emulator::Limits limits;
  limits.driver_version = 12080;
  tf_emulator::set_limits(limits);
  EXPECT_EQ(find_cuda_devices().reason,
            "the NVIDIA driver is for CUDA 12.8, this program needs one for CUDA 13.0 (580 or "
            "newer)");
  // Within a major version older drivers do.
  limits.driver_version = 12020;
  limits.runtime_version = 12080;
  tf_emulator::set_limits(limits);
  EXPECT_EQ(find_cuda_devices().devices.size(), 1U);
}

TEST_F(EmulatedDevices, KernelsAreLoadedWhenTheyAreUsedUnlessTheUserSaysOtherwise) {
  unsetenv("CUDA_MODULE_LOADING");
  static_cast<void>(find_cuda_devices());
  EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "LAZY");
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  static_cast<void>(find_cuda_devices());
  EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "EAGER");
  unsetenv("CUDA_MODULE_LOADING");
}

TEST_F(EmulatedDevices, WithADriverAndNoDeviceItSaysSo) {
  set(0, -1);
  EXPECT_EQ(find_cuda_devices().reason, "no CUDA device was found");
  EXPECT_EQ(failure_of("cuda:0"), "--device cuda:0: no CUDA device was found");
}
#endif

}  // namespace
}  // namespace triforce
