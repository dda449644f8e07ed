// devices.h of a program that was built with CUDA.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "core/parse_number.h"
#include "cuda/cuda_backend.h"
#include "cuda/nccl.h"
#include "cuda/runtime.h"
#include "host/devices.h"
#include "host/machine.h"

namespace triforce {
namespace {

// The emulated device is for tests that ask for it.
#ifdef TF_CUDA_EMULATED
constexpr bool kTakenByAuto = false;
#else
constexpr bool kTakenByAuto = true;
#endif

CudaDevice describe(const cuda::DeviceInfo& d) {
  return {d.ordinal, d.name, fmt::format("sm_{}{}", d.major, d.minor), d.memory_bytes, d.free_bytes,
          d.problem, d.notes};
}

std::optional<std::int64_t> available_host_bytes() {
  const std::optional<MemoryState> state = memory_state();
  return state ? std::optional(state->available_bytes) : std::nullopt;
}

CudaDevice inspect(int ordinal) {
  return describe(cuda::inspect_device(ordinal, available_host_bytes));
}

CudaSession open(const CudaDevice& device, std::optional<DType> dtype,
                 std::shared_ptr<HostAttention> host_attention) {
  CudaOptions options;
  options.host_attention = std::move(host_attention);
  options.device = device.ordinal;
  options.host_available = available_host_bytes;
  options.dtype = dtype.value_or(options.dtype);
  std::unique_ptr<Backend> backend = make_cuda_backend(options);
  int driver = 0, runtime = 0;
  TF_CUDA(cudaDriverGetVersion(&driver));
  TF_CUDA(cudaRuntimeGetVersion(&runtime));
  std::array<char, 32> bus_id{};
  TF_CUDA(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device.ordinal));
  return {std::move(backend),
          {device.name, device.architecture, cuda::version_text(driver),
           cuda::version_text(runtime), bus_id.data()},
          device.notes};
}

}  // namespace

CudaDevices find_cuda_devices() {
  CudaDevices found;
  found.built = true;
  const int count = cuda::count_devices(&found.reason);
  for (int i = 0; i < count; ++i) found.devices.push_back(inspect(i));
  return found;
}

std::optional<CudaSession> open_cuda(const std::string& device, std::optional<DType> dtype,
                                     const LocalRank& rank,
                                     std::shared_ptr<HostAttention> host_attention) {
  if (device == "cpu" || (device == "auto" && !kTakenByAuto)) return std::nullopt;
  std::string reason;
  const int count = cuda::count_devices(&reason);
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::kDevice, "NoCuda", fmt::format("--device {}: {}", device, why));
  };
  if (device == "auto") {
    int usable = 0;
    for (int i = 0; i < count; ++i) {
      const CudaDevice found = inspect(i);
      if (found.problem.empty() && usable++ == rank.device)
        return open(found, dtype, std::move(host_attention));
    }
    if (usable == 0) return std::nullopt;
    refuse(fmt::format("expected {} usable devices for --tp, found {}", rank.devices, usable));
  }
  if (count == 0) refuse(reason);
  const auto first = device == "cuda" ? 0 : parse_integer(device.substr(5)).value_or(-1);
  if (first < 0 || first >= count) refuse(fmt::format("expected a device of 0 to {}", count - 1));
  if (first + rank.devices > count) {
    refuse(fmt::format("expected {} devices for --tp, found {} from this one on", rank.devices,
                       count - first));
  }
  const CudaDevice wanted = inspect(static_cast<int>(first) + rank.device);
  if (!wanted.problem.empty()) {
    refuse(fmt::format("{} ({}) cannot be used: {}", wanted.name, wanted.architecture,
                       wanted.problem));
  }
  return open(wanted, dtype, std::move(host_attention));
}

std::unique_ptr<Communicator> connect_devices(Backend& backend, RankLinks& links) {
  const std::vector<std::uint8_t> found = links.gather_values<std::uint8_t>(has_nccl() ? 1 : 0);
  if (std::ranges::find(found, 0) != found.end()) return nullptr;
  NcclOptions options{links.shard(), {}, links.timeout(), [&links] { links.check(); }};
  if (links.shard().rank == 0) options.id = make_nccl_id();
  links.broadcast_value(options.id);
  return make_nccl_communicator(backend, std::move(options));
}

}  // namespace triforce
