#include "app/commands.h"
#include "app/output.h"
#include "core/strict_json.h"
#include "core/utf8.h"
#include "model/checkpoint_summary.h"

namespace triforce {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Names come from the file: control characters and malformed bytes must not reach a terminal.
std::string shown(const std::string& name) {
  const std::string quoted_name = quote_text(name, 256);
  return quoted_name == fmt::format("\"{}\"", name) ? name : quoted_name;
}

std::string table(const CheckpointSummary& s) {
  std::string out = fmt::format("{}\n", s.path);
  out += fmt::format("files             {}\n", fmt::join(s.files, ", "));
  if (s.config) {
    for (const auto& [label, value] : config_lines(*s.config)) {
      out += fmt::format("{:<17} {}\n", label, value);
    }
    out += fmt::format("config sha256     {}\n", s.config_sha256);
  }
  out += fmt::format("tensors           {}, {} elements, {} bytes\n\n", s.tensors.size(),
                     s.elements, s.bytes);
  std::size_t width = 4;
  for (const auto& row : s.tensors) width = std::max(width, shown(row.name).size());
  out += fmt::format("{:<{}}  {:<8} {:>14}  shape\n", "name", width, "dtype", "bytes");
  for (const auto& row : s.tensors) {
    out += fmt::format("{:<{}}  {:<8} {:>14}  {}\n", shown(row.name), width, row.dtype, row.bytes,
                       shape_text(row.shape));
  }
  for (const std::string& warning : s.warnings) out += fmt::format("warning: {}\n", warning);
  return out;
}

JsonValue json(const CheckpointSummary& s) {
  JsonValue tensors = JsonValue::array();
  for (const auto& row : s.tensors) {
    JsonValue tensor = JsonValue::object();
    tensor.set("name", row.name).set("dtype", row.dtype).set("shape", row.shape);
    tensors.push(std::move(tensor.set("bytes", row.bytes)));
  }
  JsonValue config;
  if (s.config) {
    config = JsonValue::object();
    for (const auto& [label, value] : config_lines(*s.config)) config.set(label, value);
  }
  JsonValue out = JsonValue::object();
  out.set("schema", "triforce-bench.inspect/1").set("path", s.path).set("files", s.files);
  out.set("config", std::move(config));
  out.set("config_sha256", s.config ? JsonValue(s.config_sha256) : JsonValue());
  out.set("elements", s.elements).set("bytes", s.bytes).set("warnings", s.warnings);
  out.set("tensors", std::move(tensors));
  return out;
}

}  // namespace

ExitCode inspect_command(const RunConfig& config) {
  const CheckpointSummary summary = summarize_checkpoint(config.inspect_path);
  print_out(config.json_to_stdout ? write_json(json(summary)) + "\n" : table(summary));
  return ExitCode::kOk;
}

}  // namespace triforce
