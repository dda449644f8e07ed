#include "app/commands.h"
#include "app/output.h"
#include "core/fields.h"
#include "cpu/context.h"
#include "host/devices.h"
#include "host/machine.h"

namespace triforce {
namespace {

std::string table() {
  std::string out = fmt::format("cpu      {}\n", cpu_model_name());
  out += fmt::format("threads  {} (--threads)\nlevels  ", available_threads());
  for (const std::string& name : isa_levels(true)) out += fmt::format(" {}", name);
  out += fmt::format(" (--cpu-isa; default {})\n", to_string(cpu::best_isa()));
  if (const std::optional<MemoryState> memory = memory_state()) {
    out += fmt::format("memory   {:.1f} GB, {:.1f} GB available\n",
                       static_cast<double>(memory->total_bytes) / 1e9,
                       static_cast<double>(memory->available_bytes) / 1e9);
  }
  const CudaDevices cuda = find_cuda_devices();
  for (const CudaDevice& d : cuda.devices) {
    out += fmt::format("cuda:{:<3} {} ({}), {:.1f} GB", d.ordinal, d.name, d.architecture,
                       static_cast<double>(d.memory_bytes) / 1e9);
    if (d.free_bytes) {
      out += fmt::format(", {:.1f} GB free", static_cast<double>(*d.free_bytes) / 1e9);
    }
    out += d.problem.empty() ? fmt::format(" (--device cuda:{})\n", d.ordinal)
                             : fmt::format("; cannot be used: {}\n", d.problem);
  }
  if (cuda.devices.empty()) out += fmt::format("cuda     none: {}\n", cuda.reason);
  return out;
}

// What the JSON says.
struct DeviceEntry {
  std::string device, model;
  std::optional<int> threads;
  std::vector<std::string> isa;
  std::optional<std::string> default_isa, architecture;
  bool usable = true;
  std::optional<std::string> problem;
  std::optional<std::int64_t> memory_bytes, available_bytes;
};
template <class V>
void fields(V& v, DeviceEntry& d) {
  v("device", d.device, "value of --device");
  v("model", d.model, "processor or GPU");
  v("threads", d.threads, "cores this process may run on; null: a GPU");
  v("isa", d.isa, "instruction-set levels of the processor, values of --cpu-isa");
  v("default_isa", d.default_isa, "the level taken by default; null: a GPU");
  v("architecture", d.architecture, "of a GPU, such as sm_90");
  v("usable", d.usable, "whether --device can take it");
  v("problem", d.problem, "why not; null: it can");
  v("memory_bytes", d.memory_bytes, "memory, bytes");
  v("available_bytes", d.available_bytes, "of that, free now, bytes");
}
struct DeviceList {
  bool cuda = false;
  std::vector<DeviceEntry> devices;
};
template <class V>
void fields(V& v, DeviceList& l) {
  v.constant("schema", "triforce-bench.devices/1", "format of this document");
  v("cuda", l.cuda, "whether this program was built with CUDA");
  v("devices", l.devices, "the processor, then the GPUs");
}

DeviceList list_of_devices() {
  DeviceEntry cpu;
  cpu.device = "cpu";
  cpu.model = cpu_model_name();
  cpu.threads = available_threads();
  cpu.isa = isa_levels(true);
  cpu.default_isa = to_string(cpu::best_isa());
  if (const std::optional<MemoryState> memory = memory_state()) {
    cpu.memory_bytes = memory->total_bytes;
    cpu.available_bytes = memory->available_bytes;
  }
  const CudaDevices cuda = find_cuda_devices();
  DeviceList list{cuda.built, {std::move(cpu)}};
  for (const CudaDevice& d : cuda.devices) {
    DeviceEntry gpu;
    gpu.device = fmt::format("cuda:{}", d.ordinal);
    gpu.model = d.name;
    gpu.architecture = d.architecture;
    gpu.usable = d.problem.empty();
    if (!d.problem.empty()) gpu.problem = d.problem;
    gpu.memory_bytes = d.memory_bytes;
    gpu.available_bytes = d.free_bytes;
    list.devices.push_back(std::move(gpu));
  }
  return list;
}

}  // namespace

ExitCode list_devices_command(const RunConfig& config) {
  print_out(config.json_to_stdout ? to_json_text(list_of_devices()) + "\n" : table());
  return ExitCode::kOk;
}

}  // namespace triforce
