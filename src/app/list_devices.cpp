#include "app/commands.h"
#include "app/devices.h"
#include "app/machine.h"
#include "app/output.h"
#include "core/strict_json.h"
#include "cpu/context.h"

namespace triforce {
namespace {

std::string table() {
  std::string out = fmt::format("cpu      {}\n", cpu_model_name());
  out += fmt::format("threads  {} (--threads)\nlevels  ", available_threads());
  for (const std::string& name : isa_levels(true)) out += fmt::format(" {}", name);
  out += fmt::format(" (--cpu-isa; default {})\n", cpu::to_string(cpu::best_isa()));
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

JsonValue json() {
  const std::optional<MemoryState> memory = memory_state();
  JsonValue device = JsonValue::object();
  device.set("device", "cpu").set("model", cpu_model_name()).set("threads", available_threads());
  device.set("isa", isa_levels(true)).set("default_isa", cpu::to_string(cpu::best_isa()));
  device.set("memory_bytes", memory ? JsonValue(memory->total_bytes) : JsonValue());
  device.set("available_bytes", memory ? JsonValue(memory->available_bytes) : JsonValue());
  JsonValue devices = JsonValue::array().push(std::move(device));
  const CudaDevices cuda = find_cuda_devices();
  for (const CudaDevice& d : cuda.devices) {
    JsonValue card = JsonValue::object();
    card.set("device", fmt::format("cuda:{}", d.ordinal)).set("model", d.name);
    card.set("architecture", d.architecture).set("usable", d.problem.empty());
    card.set("problem", d.problem.empty() ? JsonValue() : JsonValue(d.problem));
    card.set("memory_bytes", d.memory_bytes);
    card.set("available_bytes", d.free_bytes ? JsonValue(*d.free_bytes) : JsonValue());
    devices.push(std::move(card));
  }
  JsonValue out = JsonValue::object();
  out.set("schema", "triforce-bench.devices/1").set("cuda", cuda.built);
  out.set("devices", std::move(devices));
  return out;
}

}  // namespace

ExitCode list_devices_command(const RunConfig& config) {
  print_out(config.json_to_stdout ? write_json(json()) + "\n" : table());
  return ExitCode::kOk;
}

}  // namespace triforce
