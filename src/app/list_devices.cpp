#include <span>

#include "app/commands.h"
#include "app/output.h"
#include "app/prepare.h"
#include "core/fields.h"
#include "cpu/workers.h"
#include "host/cpu_model.h"
#include "host/devices.h"
#include "host/machine.h"

namespace triforce {
namespace {

struct DeviceEntry {
  std::string device, model;
  std::optional<int> threads;
  std::vector<std::string> isa;
  std::optional<std::string> default_isa, architecture;
  bool usable = true;
  std::optional<std::string> problem;
  std::optional<std::int64_t> memory_bytes, available_bytes;
  std::vector<std::string> notes;
};
void fields(auto& v, DeviceEntry& d) {
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
  v("notes", d.notes, "what a run on it should know, one line each");
}
struct DeviceList {
  bool cuda = false;
  std::vector<DeviceEntry> devices;
  std::string reason;  // why there is no GPU
};
void fields(auto& v, DeviceList& l) {
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
  DeviceList list{cuda.built, {std::move(cpu)}, cuda.reason};
  for (const CudaDevice& d : cuda.devices) {
    DeviceEntry gpu;
    gpu.device = fmt::format("cuda:{}", d.ordinal);
    gpu.model = d.name;
    gpu.architecture = d.architecture;
    gpu.usable = d.problem.empty();
    if (!d.problem.empty()) gpu.problem = d.problem;
    gpu.memory_bytes = d.memory_bytes;
    gpu.available_bytes = d.free_bytes;
    gpu.notes = d.notes;
    list.devices.push_back(std::move(gpu));
  }
  return list;
}

std::string table(const DeviceList& list) {
  const auto gb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  const DeviceEntry& cpu = list.devices.front();
  std::string out = fmt::format("cpu      {}\nthreads  {} (--threads)\n", cpu.model, *cpu.threads);
  out += fmt::format("levels   {} (--cpu-isa; default {})\n", fmt::join(cpu.isa, " "),
                     *cpu.default_isa);
  if (cpu.memory_bytes) {
    out += fmt::format("memory   {:.1f} GB, {:.1f} GB available\n", gb(*cpu.memory_bytes),
                       gb(*cpu.available_bytes));
  }
  for (const DeviceEntry& d : std::span(list.devices).subspan(1)) {
    out += fmt::format("{:<8} {} ({}), {:.1f} GB", d.device, d.model, *d.architecture,
                       gb(*d.memory_bytes));
    if (d.available_bytes) out += fmt::format(", {:.1f} GB free", gb(*d.available_bytes));
    out += d.usable ? fmt::format(" (--device {})\n", d.device)
                    : fmt::format("; cannot be used: {}\n", *d.problem);
    for (const std::string& note : d.notes) out += fmt::format("! {}\n", note);
  }
  if (list.devices.size() == 1) out += fmt::format("cuda     none: {}\n", list.reason);
  return out;
}

}  // namespace

ExitCode list_devices_command(const RunConfig& config) {
  OutputFiles files(output_requests(config));
  const DeviceList list = list_of_devices();
  return write_document(config, files, to_json_text(list) + "\n", table(list));
}

}  // namespace triforce
