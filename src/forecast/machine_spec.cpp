#include "forecast/machine_spec.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/fields.h"
#include "core/file.h"
#include "core/nearest_name.h"
#include "core/utf8.h"

namespace triforce {
namespace {

constexpr std::int64_t kMaxFileBytes = 1 << 16;
constexpr std::size_t kMaxName = 40;
constexpr int kMaxGpus = 64;
constexpr std::int64_t kMinMemoryBytes = std::int64_t{1} << 32;  // more than is left free
constexpr std::int64_t kMaxMemoryBytes = std::int64_t{1} << 50;
constexpr double kMinGbs = 0.1, kMaxGbs = 1e6;
constexpr double kMaxOverheadMs = 1e3;

// GPUs keep a little of the memory they are known by; these are what their drivers report.
constexpr std::int64_t gib(double n) { return static_cast<std::int64_t>(n * 1024 * 1024 * 1024); }

constexpr std::string_view kLike = "like";

// Reads what fields() lists; the unit that ends a name says which values are possible. Members that
// are not there stay as they are where the file is like a built-in machine.
class MachineReader {
 public:
  MachineReader(const JsonView& at, bool is_like) : at_(at), is_like_(is_like) {
    if (is_like) seen_.push_back(kLike);
  }
  void operator()(std::string_view name, std::string& text, const char* /*description*/) {
    if (!takes(name)) return;
    const JsonView at = at_.at(name);
    text = at.string();
    const bool plain = std::ranges::all_of(text, [](unsigned char c) {
      return c >= ' ' && c < 0x7f;  // it is printed
    });
    if (text.empty() || text.size() > kMaxName || !plain) {
      at.fail(fmt::format("1 to {} printable ASCII characters", kMaxName));
    }
  }
  void operator()(std::string_view name, int& count, const char* /*description*/) {
    if (takes(name)) count = static_cast<int>(at_.at(name).integer(1, kMaxGpus));
  }
  void operator()(std::string_view name, std::int64_t& bytes, const char* /*description*/) {
    if (takes(name)) bytes = at_.at(name).integer(kMinMemoryBytes, kMaxMemoryBytes);
  }
  void operator()(std::string_view name, double& value, const char* /*description*/) {
    const bool rate = name.ends_with("_gbs");
    if (takes(name))
      value = at_.at(name).number(rate ? kMinGbs : 0, rate ? kMaxGbs : kMaxOverheadMs);
  }
  void operator()(std::string_view name, bool& value, const char* /*description*/) {
    seen_.push_back(name);
    if (const std::optional<JsonView> at = at_.find(name)) value = at->boolean();
  }
  // Refuses members that nobody asked for.
  void finish() const { at_.only(seen_); }

 private:
  bool takes(std::string_view name) {
    seen_.push_back(name);
    return !is_like_ || at_.find(name).has_value();
  }
  const JsonView& at_;
  bool is_like_;
  std::vector<std::string_view> seen_;
};

// The built-in machine of that id, which is no longer it.
MachineSpec like(const JsonView& at) {
  const std::string id = at.string();
  const std::vector<MachineSpec>& known = builtin_machines();
  const auto it = std::ranges::find_if(known, [&](const MachineSpec& m) { return m.id == id; });
  if (it == known.end()) at.fail("one of " + machine_ids());
  MachineSpec m = *it;
  m.id.clear();
  m.name = fmt::format("{} {}", kLike, m.name);
  return m;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

// GPUs: about 89% of the vendor's bandwidth, as good decode kernels reach. Three were measured:
// h200, 96%, by this program; b200, 6.6 of 7.7 TB/s, by asynchronous copies (SemiAnalysis,
// "Dissecting Nvidia Blackwell"); gb10, 231 of 273 GB/s, by a kernel that reads (antirez/ds4 #773).
// What a pass and each of its kernels take besides is by scripts/cuda_model.py
// (bench/results/cuda_model.md). Its H200 and RTX 4090 stand for h100, l40 and 2xrtx4090.
// Bus: 16 lanes of PCIe 4.0 or 5.0 at 80%. Hosts, which are assumed: two channels of DDR5 (rtx4090,
// rtx5090), eight of DDR4 (a100-80g, l40, 2xrtx4090) or of DDR5 (h100, h200, b200, pro6000).
// gb10: processor and GPU share one memory, which a copy reads and writes.
const std::vector<MachineSpec>& builtin_machines() {
  static const std::vector<MachineSpec> kMachines = {
      {"a100-80g", "A100 80 GB", 1, gib(79.25), 1790, 25, 25, gib(512), 165, 0.0505, 0.00310,
       0.012},
      {"h100", "H100 80 GB", 1, gib(79.6), 3000, 50, 50, gib(512), 250, 0.0446, 0.00260, 0.012},
      {"h200", "H200 141 GB", 1, gib(140.4), 4600, 55, 55, gib(512), 250, 0.0446, 0.00260, 0.012},
      {"b200", "B200 180 GB", 1, gib(178.3), 6600, 55, 55, gib(512), 250, 0.0431, 0.00269, 0.012},
      {"l40", "L40 48 GB", 1, gib(44.99), 770, 25, 25, gib(256), 165, 0.0441, 0.00264, 0.012},
      {"rtx4090", "RTX 4090 24 GB", 1, gib(23.99), 930, 25, 25, gib(128), 72, 0.0441, 0.00264,
       0.012},
      {"2xrtx4090", "2x RTX 4090 24 GB", 2, gib(23.99), 930, 25, 50, gib(256), 165, 0.0441, 0.00264,
       0.012},
      {"rtx5090", "RTX 5090 32 GB", 1, gib(31.36), 1595, 50, 50, gib(128), 72, 0.0458, 0.00237,
       0.012},
      {"pro6000", "RTX PRO 6000 96 GB", 1, gib(94.97), 1595, 50, 50, gib(256), 250, 0.0440, 0.00235,
       0.012},
      {"gb10", "GB10 128 GB", 1, gib(121.6), 231, 115, 115, gib(121.6), 231, 0.0471, 0.00222, 0.012,
       true},
  };
  return kMachines;
}

std::string machine_ids() {
  std::string ids;
  for (const MachineSpec& m : builtin_machines()) ids += (ids.empty() ? "" : ", ") + m.id;
  return ids;
}

MachineSpec parse_machine(std::string_view text, const std::string& source) {
  const JsonValue value = parse_json(text, source, {.max_bytes = kMaxFileBytes});
  const JsonView root(value, source, "InvalidMachine");
  const std::optional<JsonView> other = root.find(kLike);
  MachineSpec m = other ? like(*other) : MachineSpec{};
  MachineReader reader(root, other.has_value());
  fields(reader, m);
  reader.finish();
  if (m.unified_memory && m.gpus > 1) {
    throw_input("InvalidMachine", "{}: unified_memory: expected one GPU, found {}", source, m.gpus);
  }
  const std::optional<JsonView> together = root.find("bus_together_gbs");
  if (m.gpus == 1 && !together) m.bus_together_gbs = m.bus_gbs;  // one alone is all of them
  if (m.bus_together_gbs < m.bus_gbs || m.bus_together_gbs > m.gpus * m.bus_gbs) {
    const std::string expected =
        fmt::format("bus_gbs to gpus times bus_gbs, {} to {}", m.bus_gbs, m.gpus * m.bus_gbs);
    if (together) together->fail(expected);
    throw_input("InvalidMachine", "{}: bus_together_gbs: expected {}, found none, and {} of {}",
                source, expected, m.bus_together_gbs, other->string());
  }
  return m;
}

std::vector<MachineSpec> find_machines(const std::string& name) {
  const std::vector<MachineSpec>& known = builtin_machines();
  if (name.empty()) return known;
  const auto it =
      std::ranges::find_if(known, [&](const MachineSpec& m) { return m.id == lower(name); });
  if (it != known.end()) return {*it};
  std::error_code error;
  if (!std::filesystem::exists(name, error)) {
    std::vector<std::string> ids;
    for (const MachineSpec& m : known) ids.push_back(m.id);
    throw_input("FileNotFound", "--machine: expected a file or one of {}, found {}{}",
                machine_ids(), quote_text(name), did_you_mean(lower(name), ids));
  }
  return {parse_machine(read_file(name, kMaxFileBytes), name)};
}

}  // namespace triforce
