// Kernel launches: the limits of the device, then a place in the stream.
#include <algorithm>

#include "api.h"
#include "block.h"
#include "ptx_launch.h"

namespace tf_emulator::detail {
namespace {

constexpr std::size_t kSharedWithoutOptIn = 48 << 10;
constexpr int kEarlyFrom = 90;  // the architecture from which there is dependent launch

BlockRunner& block_runner() {
  thread_local BlockRunner runner;
  return runner;
}

bool within(dim3 value, unsigned x, unsigned y, unsigned z) {
  return value.x >= 1 && value.y >= 1 && value.z >= 1 && value.x <= x && value.y <= y &&
         value.z <= z;
}

cudaError_t check_shape(const Runtime& state, const cudaLaunchConfig_t& config,
                        const void* function) {
  if (!within(config.gridDim, 0x7fffffffu, 65535, 65535) ||
      !within(config.blockDim, 1024, 1024, 64) ||
      config.blockDim.x * config.blockDim.y * config.blockDim.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  const auto opted = state.dynamic_shared.find(function);
  const std::size_t allowed =
      opted == state.dynamic_shared.end() ? kSharedWithoutOptIn : opted->second;
  if (config.dynamicSmemBytes > allowed) return cudaErrorInvalidValue;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const bool known = config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization;
    if (!known || state.limits.architecture < kEarlyFrom) return cudaErrorNotSupported;
  }
  return cudaSuccess;
}

bool may_begin_early(const cudaLaunchConfig_t& config) {
  return config.numAttrs > 0 && config.attrs[0].val.programmaticStreamSerializationAllowed != 0;
}

}  // namespace

cudaError_t launch_kernel(const cudaLaunchConfig_t& config, KernelCall kernel) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  TF_EMULATOR_TRY(call->fail(check_shape(*call.operator->(), config, kernel.function)));
  const LaunchShape shape{{config.gridDim.x, config.gridDim.y, config.gridDim.z},
                          {config.blockDim.x, config.blockDim.y, config.blockDim.z},
                          config.dynamicSmemBytes,
                          may_begin_early(config),
                          call->limits.architecture >= kEarlyFrom};
  const auto run = [shape, kernel = std::move(kernel)] {
    Runtime& state = runtime();
    BlockRunner& runner = block_runner();
    const std::uint64_t before = runner.switches(), accesses = runner.reach().accesses;
    ++state.counters.launches;
    LaunchedKernel& launched = state.launched[kernel.function];
    launched.threads = std::max(launched.threads, shape.block.x * shape.block.y * shape.block.z);
    launched.shared_bytes = std::max(launched.shared_bytes, shape.shared_bytes);
    state.counters.early_launches += shape.early ? 1 : 0;
    const auto host_body = [&](Journal* journal) {
      runner.reach().journal = journal;
      return runner.run(shape, kernel, state.blocks) ? TrapReport{} : runner.report();
    };
    const TrapReport report =
        launches_ptx() ? launch_ptx(shape, kernel, host_body) : host_body(nullptr);
    if (report.kind != Trap::kNone) state.set_trap(report);
    state.counters.fiber_switches += runner.switches() - before;
    state.counters.accesses += runner.reach().accesses - accesses;
  };
  return call->enqueue(config.stream, run, nullptr,
                       shape.early ? Kind::kEarlyKernel : Kind::kKernel);
}

cudaError_t set_function_attribute(const void* function, cudaFuncAttribute attribute, int value) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (function == nullptr) return call->fail(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > call->limits.shared_optin_bytes) {
    return call->fail(cudaErrorInvalidValue);
  }
  call->dynamic_shared[function] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t function_attributes(cudaFuncAttributes* attributes, const void* function) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (function == nullptr) return call->fail(cudaErrorInvalidDeviceFunction);
  if (call->limits.code_architecture > call->limits.architecture) {
    return call->fail(cudaErrorNoKernelImageForDevice);
  }
  const auto opted = call->dynamic_shared.find(function);
  const std::size_t shared =
      opted == call->dynamic_shared.end() ? kSharedWithoutOptIn : opted->second;
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 64;  // made up: fits 1024 threads
  const int device = call->limits.architecture, code = call->limits.code_architecture;
  attributes->binaryVersion = device;
  attributes->ptxVersion = code == 0 ? device : code;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(shared);
  return cudaSuccess;
}

cudaError_t function_name_of(const char** name, const void* function) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  static std::map<const void*, std::string> names;
  std::string& known = names[function];
  if (known.empty()) known = linker_name(function);
  if (name == nullptr || known.empty()) return call->fail(cudaErrorInvalidDeviceFunction);
  *name = known.c_str();
  return cudaSuccess;
}

cudaError_t occupancy(int* blocks, const void* function, int block_size, std::size_t smem_bytes) {
  const Call call;
  TF_EMULATOR_TRY(call->ready());
  if (function == nullptr || block_size < 1 || block_size > 1024) {
    return call->fail(cudaErrorInvalidValue);
  }
  // As sm_80, registers aside: 2048 threads, 32 blocks, 1 KiB of shared memory per block reserved.
  const std::size_t per_multiprocessor = call->limits.shared_optin_bytes + 1024;
  const int by_threads = 2048 / ((block_size + 31) / 32 * 32);
  const int by_shared = static_cast<int>(per_multiprocessor / (smem_bytes + 1024));
  *blocks = std::min({by_threads, by_shared, 32});
  return cudaSuccess;
}

}  // namespace tf_emulator::detail

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return tf_emulator::detail::function_name_of(name, function);
}
