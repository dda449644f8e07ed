#include "ptx_launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "journal.h"
#include "memory.h"
#include "ptx.h"
#include "runtime.h"
#include "triforce/format.h"

namespace tf_emulator::detail {
namespace {

// The one kernel whose results device and host may compute differently: numbers of f32 that are
// apart by this share of the larger. Weights are exponentials, of which PTX's are
// within 2 units in the last place (CUDA C++ Programming Guide, "Mathematical Functions", expf) and
// libm's within 1; so is their sum, by which they are divided, with two roundings of half a unit.
constexpr std::string_view kExemptKernel = "probs_kernel";
constexpr double kExemptShare = 7 * 0x1p-23;

[[noreturn]] void refuse(const std::string& message) {
  std::fprintf(stderr, "CUDA emulator: %s\n", message.c_str());
  std::_Exit(2);  // also where the program is about to end
}

template <class T, std::size_t N>
T choose(const char* variable, const std::array<std::pair<std::string_view, T>, N>& values) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return values[0].second;
  std::string known;
  for (const auto& [name, value] : values) {
    if (name == text) return value;
    known += known.empty() ? name : fmt::format(", {}", name);
  }
  refuse(fmt::format("{} is '{}', expected one of {}", variable, text, known));
}

// PTX as the environment asks for it.
struct Ptx {
  tf_ptx::Program program;
  bool beside = false;  // the host body too, and what both leave is compared
  tf_ptx::Options options;
  std::map<const void*, std::string> names;  // of kernels, by their host functions

  explicit Ptx(const std::string& folder) : program(folder) {
    using tf_ptx::Schedule, tf_ptx::Sums;
    beside = choose<bool, 2>("TF_EMULATOR_PTX_MODE", {{{"only", false}, {"both", true}}});
    options.schedule =
        choose<Schedule, 3>("TF_EMULATOR_PTX_SCHEDULE", {{{"lowest", Schedule::kLowest},
                                                          {"highest", Schedule::kHighest},
                                                          {"random", Schedule::kRandom}}});
    options.sums = choose<Sums, 3>("TF_EMULATOR_PTX_SUMS", {{{"in-order", Sums::kInOrder},
                                                             {"truncated8", Sums::kTruncated8},
                                                             {"truncated16", Sums::kTruncated16}}});
    if (beside && !instrumented()) {
      refuse("TF_EMULATOR_PTX_MODE=both is for builds in which every store of kernels is seen");
    }
    if (beside && options.sums != Sums::kInOrder) {
      refuse("TF_EMULATOR_PTX_SUMS is for TF_EMULATOR_PTX_MODE=only: host bodies add in order");
    }
    if (std::getenv("TF_EMULATOR_PTX_COVERAGE") != nullptr) {
      std::atexit([] { ptx()->write_coverage(std::getenv("TF_EMULATOR_PTX_COVERAGE")); });
    }
  }

  // A file a process, a line a kernel or function: a letter an instruction, 1 if it ran, and the
  // name.
  void write_coverage(const std::string& folder) const {
    const std::string file = fmt::format("{}/{}.txt", folder, getpid());
    std::error_code ignored;  // then the file cannot be written
    std::filesystem::create_directories(folder, ignored);
    std::ofstream out(file);
    for (const tf_ptx::Coverage& c : program.coverage()) {
      for (const std::uint64_t times : c.executed) out << (times > 0 ? '1' : '0');
      out << '\t' << readable_name(c.kernel) << '\n';
    }
    if (!out.flush()) refuse(fmt::format("{}: cannot be written", file));
  }

  static Ptx* ptx() {
    static Ptx* const instance = [] {
      const char* const folder = std::getenv("TF_EMULATOR_PTX");
      if (folder == nullptr) return static_cast<Ptx*>(nullptr);
      try {
        return new Ptx(folder);
      } catch (const std::exception& e) {
        refuse(fmt::format("TF_EMULATOR_PTX: {}", e.what()));
      }
    }();
    return instance;
  }
};

// What kernels can reach, as the emulator has it.
class DeviceMemory final : public tf_ptx::GlobalMemory {
 public:
  explicit DeviceMemory(Journal* journal) : journal_(journal) {}
  bool may_use(std::uintptr_t address, std::size_t bytes, bool write) override {
    if (is_live(m_.device, address, bytes)) {
      if (write) {
        if (journal_ != nullptr) journal_->note(address, bytes);
        std::memset(m_.device.states(m_.device.offset(address)), kInitialised, bytes);
      }
      return true;
    }
    // What is written there nobody notes, since the host does it unseen.
    if (!is_live(m_.pinned, address, bytes) && !m_.registered.holds(address, bytes)) return false;
    if (write && journal_ != nullptr) journal_->note(address, bytes);
    (write ? m_.bus.written_by_kernels : m_.bus.read_by_kernels) += bytes;
    return true;
  }
  std::string describe(std::uintptr_t address) override { return describe_memory(address); }

 private:
  static bool is_live(const Region& region, std::uintptr_t address, std::size_t bytes) {
    const std::size_t at = region.offset(address);
    if (at >= region.top() || bytes > region.top() - at) return false;
    const std::uint8_t* const states = region.states(at);
    return std::none_of(states, states + bytes, [](auto s) { return (s & kForbidden) != 0; });
  }
  Memory& m_ = memory();
  Journal* journal_;
};

Trap trap_of(tf_ptx::Fault fault) {
  switch (fault) {
    case tf_ptx::Fault::kNone:
      return Trap::kNone;
    case tf_ptx::Fault::kOutOfBounds:
      return Trap::kOutOfBounds;
    case tf_ptx::Fault::kMisaligned:
      return Trap::kMisaligned;
    case tf_ptx::Fault::kUnwaited:
      return Trap::kUninitialised;
    case tf_ptx::Fault::kDivergence:
      return Trap::kDivergence;
    case tf_ptx::Fault::kOther:
      break;
  }
  return Trap::kOther;
}

tf_ptx::Extent extent(uint3 of) { return {of.x, of.y, of.z}; }

TrapReport run(Ptx& ptx, const std::string& kernel, const LaunchShape& shape,
               const KernelCall& call, Journal* journal) {
  DeviceMemory device(journal);
  ++ptx.options.seed;
  tf_ptx::Outcome outcome = ptx.program.run(
      kernel, {extent(shape.grid), extent(shape.block), shape.shared_bytes, call.each}, device,
      ptx.options);
  return {trap_of(outcome.fault), std::move(outcome.message)};
}

}  // namespace

bool launches_ptx() { return Ptx::ptx() != nullptr; }

TrapReport launch_ptx(const LaunchShape& shape, const KernelCall& call,
                      const std::function<TrapReport(Journal*)>& host_body) {
  Ptx& ptx = *Ptx::ptx();
  std::string& kernel = ptx.names[call.function];
  if (kernel.empty()) kernel = tf_ptx::Program::kernel_name(linker_name(call.function));
  if (!ptx.program.has(kernel)) {
    return {Trap::kOther, fmt::format("{}: no PTX of this kernel", function_name(call.function))};
  }
  if (!ptx.beside) return run(ptx, kernel, shape, call, nullptr);
  Journal host, written;
  if (TrapReport report = host_body(&host); report.kind != Trap::kNone) return report;
  host.exchange();
  const Bus bus = memory().bus;
  TrapReport report = run(ptx, kernel, shape, call, &written);
  memory().bus = bus;  // once is enough
  if (report.kind == Trap::kNone) {
    const double relative = kernel.find(kExemptKernel) != std::string::npos ? kExemptShare : 0;
    if (const std::optional<std::string> difference = written.difference(host, relative)) {
      report = {Trap::kOther, fmt::format("{}: {}", function_name(call.function), *difference)};
    }
  }
  written.exchange();
  host.exchange();
  return report;
}

}  // namespace tf_emulator::detail
