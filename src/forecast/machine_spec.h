// Machines that a run may be planned for: what their GPUs, bus and host achieve. Some are built in,
// others are read from a file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triforce {

struct MachineSpec {
  std::string id;    // what --machine calls a built-in one; empty: from a file
  std::string name;  // with the memory that its GPUs are known by: "RTX 4090 24 GB"
  int gpus = 1;      // alike; a run uses all, one rank each
  std::int64_t gpu_memory_bytes = 0;
  double gpu_gbs = 0;                        // achieved
  double bus_gbs = 0, bus_together_gbs = 0;  // from page-locked memory; one GPU alone, all at once
  std::int64_t host_memory_bytes = 0;
  double host_gbs = 0;  // achieved, what the bus reads included
  double pass_overhead_ms = 0, kernel_gap_ms = 0;
  double gather_ms = 0;
  // The GPU's memory is the host's, of which the system takes its part first.
  bool unified_memory = false;
};
// The members of a machine file.
void fields(auto& v, MachineSpec& m) {
  v("name", m.name, "the machine, with the memory that its GPUs are known by");
  v("gpus", m.gpus, "GPUs, all alike; a run uses all of them, one rank each");
  v("gpu_memory_bytes", m.gpu_memory_bytes, "memory of each GPU, bytes");
  v("gpu_gbs", m.gpu_gbs, "bandwidth that kernels achieve in the memory of a GPU, GB/s");
  v("bus_gbs", m.bus_gbs, "from page-locked host memory to one GPU alone, GB/s");
  v("bus_together_gbs", m.bus_together_gbs, "the same to all GPUs at once, GB/s");
  v("host_memory_bytes", m.host_memory_bytes, "memory of the host, bytes");
  v("host_gbs", m.host_gbs,
    "what bus and processor together achieve in the memory of the host, GB/s");
  v("pass_overhead_ms", m.pass_overhead_ms, "of a pass besides its bytes and kernels, ms");
  v("kernel_gap_ms", m.kernel_gap_ms, "of each kernel of a pass besides its bytes, ms");
  v("gather_ms", m.gather_ms, "of an all-gather between the GPUs, ms");
  v("unified_memory", m.unified_memory,
    "whether the memory of the GPU is the host's, where what either takes counts for both");
}

// In the order in which plans show them.
const std::vector<MachineSpec>& builtin_machines();
std::string machine_ids();  // "a100-80g, h100, ...", for messages
// A machine file: all members of fields() but unified_memory, which is false without, or "like"
// with the id of a built-in machine and those in which it differs; without a name it is that
// machine's after "like". Throws Error(kBadInput, "InvalidMachine" or what parse_json() says) with
// one line that names `source` and the key.
MachineSpec parse_machine(std::string_view text, const std::string& source);
// What --machine names: a built-in machine in any case of its letters, or a file. Empty: all that
// are built in. Throws as parse_machine(), Error(kBadInput, "FileNotFound") for neither, and as
// read_file().
std::vector<MachineSpec> find_machines(const std::string& name);

}  // namespace triforce
