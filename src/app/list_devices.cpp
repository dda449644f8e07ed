#include "app/commands.h"
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
  return out + "cuda     none: this program was built without CUDA\n";
}

JsonValue json() {
  const std::optional<MemoryState> memory = memory_state();
  JsonValue device = JsonValue::object();
  device.set("device", "cpu").set("model", cpu_model_name()).set("threads", available_threads());
  device.set("isa", isa_levels(true)).set("default_isa", cpu::to_string(cpu::best_isa()));
  device.set("memory_bytes", memory ? JsonValue(memory->total_bytes) : JsonValue());
  device.set("available_bytes", memory ? JsonValue(memory->available_bytes) : JsonValue());
  JsonValue out = JsonValue::object();
  out.set("schema", "triforce-bench.devices/1").set("cuda", false);
  out.set("devices", JsonValue::array().push(std::move(device)));
  return out;
}

}  // namespace

ExitCode list_devices_command(const RunConfig& config) {
  print_out(config.json_to_stdout ? write_json(json()) + "\n" : table());
  return ExitCode::kOk;
}

}  // namespace triforce
