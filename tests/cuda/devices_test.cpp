// Which devices are looked at, which are touched, and what is said of those that cannot be used.
#include "host/devices.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/cached_pages.h"
#include "cuda/cuda_backend.h"
#include "cuda/cuda_test_support.h"
#include "cuda/runtime.h"
#include "model/checkpoint/checkpoint_folder.h"
#include "triforce/weights.h"
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
            "newer); a CUDA Toolkit 12 makes a program for this driver");
  // Within a major version older drivers do.
  limits.driver_version = 12020;
  limits.runtime_version = 12080;
  tf_emulator::set_limits(limits);
  EXPECT_EQ(find_cuda_devices().devices.size(), 1U);
}

// A variable of the environment, which comes back; null: it is not set.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// What is said of a device of 12.0 by a program with code for another one.
CudaDevice of_code_for(int architecture) {
  tf_emulator::Limits limits;
  limits.architecture = 120;
  limits.code_architecture = architecture;
  tf_emulator::set_limits(limits);
  return find_cuda_devices().devices.at(0);
}

TEST_F(EmulatedDevices, WithoutItsMachineCodeItSaysThatTheDriverCompiles) {
  const std::filesystem::path folder = ::testing::TempDir() + "triforce_compute_cache";
  std::filesystem::create_directories(folder / "home");
  std::ofstream(folder / "file") << "no folder";
  const std::string home = folder / "home", file = folder / "file", own = folder / "not/there";
  const Variable of_user("HOME", home.c_str()), path("CUDA_CACHE_PATH", nullptr),
      disable("CUDA_CACHE_DISABLE", nullptr);
  EXPECT_TRUE(of_code_for(120).notes.empty());

  const auto expect_note = [](const std::string& end) {
    const CudaDevice found = of_code_for(90);
    EXPECT_EQ(found.problem, "");
    ASSERT_EQ(found.notes.size(), 1U);
    EXPECT_EQ(found.notes[0],
              "cuda:0: this program has no machine code for sm_120, so the driver compiles its "
              "kernels when they are first used, for up to half a minute; " +
                  end);
  };
  expect_note("\"" + home + "/.nv/ComputeCache\" keeps them for the next start");
  const auto expect_every_start = [&](const std::string& why) {
    expect_note("every start does so again: " + why);
  };
  {
    const Variable other("CUDA_CACHE_PATH", own.c_str());
    expect_note("\"" + own + "\" keeps them for the next start");
    const Variable off("CUDA_CACHE_DISABLE", "1");
    expect_every_start("CUDA_CACHE_DISABLE is 1: unset it");
    const Variable on("CUDA_CACHE_DISABLE", "0");
    expect_note("\"" + own + "\" keeps them for the next start");
  }
  {
    const Variable none("HOME", nullptr);
    expect_every_start(
        "HOME is not set: set it, or CUDA_CACHE_PATH to a folder that can be "
        "written");
    const Variable other("CUDA_CACHE_PATH", own.c_str());
    expect_note("\"" + own + "\" keeps them for the next start");
  }
  // No user can make files there.
  for (const std::string& bad : {file, file + "/cache"}) {
    const Variable other("CUDA_CACHE_PATH", bad.c_str());
    expect_every_start("\"" + bad +
                       "\" cannot be written: set CUDA_CACHE_PATH to a folder that can be written");
  }
  std::filesystem::remove_all(folder);
}

TEST_F(EmulatedDevices, CodeForLaterDevicesAloneIsNone) {
  const CudaDevice found = of_code_for(121);
  EXPECT_EQ(found.problem, "this program holds no code for sm_120");
  EXPECT_TRUE(found.notes.empty());
  EXPECT_NE(failure_of("cuda:0").find("cannot be used: this program holds no code for sm_120"),
            std::string::npos);
}

// cudaMemGetInfo's free leaves out the page cache.
TEST_F(EmulatedDevices, MemoryOfTheHostIsFreeAsFarAsTheHostHasItAvailable) {
  constexpr std::int64_t kMiB = 1 << 20, kFree = 100 * kMiB;
  std::optional<std::int64_t> available = 900 * kMiB;
  const cuda::HostAvailable host = [&] { return available; };
  tf_emulator::Limits limits;
  const auto total = static_cast<std::int64_t>(limits.memory_bytes);
  limits.page_cache_bytes = limits.memory_bytes - kFree;
  tf_emulator::set_limits(limits);
  EXPECT_EQ(cuda::inspect_device(0, host).free_bytes, kFree);  // a card's memory is its own
  EXPECT_FALSE(make_cuda_backend({.host_available = host})->traits().shares_host_memory);

  limits.integrated = true;
  tf_emulator::set_limits(limits);
  EXPECT_EQ(cuda::inspect_device(0, host).free_bytes, 900 * kMiB);
  EXPECT_EQ(cuda::inspect_device(0).free_bytes, kFree);
  const std::unique_ptr<Backend> backend = make_cuda_backend({.host_available = host});
  EXPECT_TRUE(backend->traits().shares_host_memory);
  EXPECT_NE(backend->description().find("multiprocessors in the host's memory"), std::string::npos);
  const std::int64_t left_to_driver = 900 * kMiB - *backend->available_bytes();
  EXPECT_GT(left_to_driver, 0);
  // What the run has reserved is no longer the host's, and is its own.
  backend->reserve_memory(200 * kMiB);
  available = 700 * kMiB;
  EXPECT_NEAR(static_cast<double>(*backend->available_bytes()),
              static_cast<double>(900 * kMiB - left_to_driver), 32.0 * kMiB);
  available = 100 * total;
  EXPECT_EQ(cuda::inspect_device(0, host).free_bytes, total);
  available = std::nullopt;
  EXPECT_EQ(cuda::inspect_device(0, host).free_bytes, 0);  // cache and reserve are all there is
}

// But for pages that small tensors share.
TEST_F(EmulatedDevices, LoadingToMemoryOfTheHostDropsThePagesOfItsFiles) {
  const testing_files::TemporaryFolder folder;
  std::string config(testing_files::kConfig);
  const std::string_view vocabulary = "\"vocab_size\": 20";
  config.replace(config.find(vocabulary), vocabulary.size(), "\"vocab_size\": 4000");
  folder.write("config.json", config);
  folder.write("model.safetensors", testing_files::file_of(testing_files::llama("F32", config)));
  const std::filesystem::path file = folder.path() / "model.safetensors";
  std::vector<std::int64_t> cached;
  for (const bool integrated : {false, true}) {
    tf_emulator::Limits limits;
    limits.integrated = integrated;
    tf_emulator::set_limits(limits);
    if (!can_drop(file)) GTEST_SKIP() << "this file system keeps its pages";
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    static_cast<void>(load_weights(*make_cuda_backend({}), checkpoint, checkpoint.config(),
                                   DType::kF16, MemTag::kTargetWeights, {}));
    cached.push_back(cached_pages(file).value_or(-1));
  }
  EXPECT_GT(cached[0], 250);  // two tables of 500 KiB
  EXPECT_LT(cached[1], 25);
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
