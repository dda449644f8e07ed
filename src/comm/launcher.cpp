#include "comm/launcher.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "core/parse_number.h"
#include "mpi/mpi_module.h"
#include "triforce/error.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

// How a launcher says how many processes it started together.
struct Kind {
  const char* name;
  const char* present;  // a variable that only processes of this launcher have
  const char* size;
};
constexpr std::array<Kind, 3> kKinds = {{
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpiexec or srun (PMI)", "PMI_RANK", "PMI_SIZE"},
    // A batch script has the second without being one of several.
    {"srun (PMIx)", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
}};

struct Started {
  const char* name;
  int size;
};

std::optional<Started> started_by() {
  for (const Kind& kind : kKinds) {
    const char* const size = std::getenv(kind.size);
    if (std::getenv(kind.present) == nullptr || size == nullptr) continue;
    const auto n = parse_integer(size);
    if (n && *n > 1 && *n <= 1 << 20) return Started{kind.name, static_cast<int>(*n)};
  }
  return std::nullopt;
}

constexpr const char* kModule = "triforce_mpi.so";

// The module beside the program, or where it is installed; nullptr with the loader's words in
// `problem`.
const TriforceMpi* load_module(std::string& problem) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& path : {here / kModule, here / ".." / "lib" / "triforce-bench" / kModule}) {
    if (!fs::exists(path, error)) continue;
    // MPI libraries find parts of their own by global names.
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    const auto open =
        library == nullptr
            ? nullptr
            : reinterpret_cast<decltype(&triforce_mpi)>(dlsym(library, "triforce_mpi"));
    if (open != nullptr) return open();
    problem = dlerror();
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Launcher> Launcher::find() {
  const std::optional<Started> started = started_by();
  if (!started) return nullptr;
  std::string problem = fmt::format("found no {} beside the program", kModule);
  const TriforceMpi* const module = load_module(problem);
  if (module == nullptr) {
    throw_usage(
        "{} started {} processes: expected a program built where MPI is, {}; without a launcher "
        "--tp starts its ranks itself",
        started->name, started->size, problem);
  }
  std::unique_ptr<Launcher> launcher(new Launcher(*module, started->name));
  if (launcher->shard_.size != started->size) {
    const std::string library = module->library;
    throw_usage(
        "{} started {} processes: expected the MPI that this program was built with, found that "
        "its {} sees {}",
        started->name, started->size, library.substr(0, library.find_first_of(",\n")),
        launcher->shard_.size);
  }
  return launcher;
}

void Launcher::refuse(std::string_view what) {
  if (const std::optional<Started> started = started_by()) {
    throw_usage(
        "{}: expected one process, found that {} started {}; --tp starts ranks of each case", what,
        started->name, started->size);
  }
}

Launcher::Launcher(const TriforceMpi& module, std::string name)
    : module_(module), name_(std::move(name)) {
  expect("start", module_.start(&shard_.rank, &shard_.size));
}

void Launcher::expect(const char* call, const char* error) const {
  if (error == nullptr) return;
  throw Error(ExitCode::kCommunication, "LauncherFailed",
              fmt::format("{}: expected MPI to {}, found: {}", name_, call, error));
}

void Launcher::all_gather(std::span<std::byte> parts) {
  expect("gather", module_.all_gather(parts.data(), static_cast<int>(parts.size()) / shard_.size));
}

void Launcher::finish() noexcept { static_cast<void>(module_.finish()); }

void Launcher::abort(int code) noexcept { module_.abort(code); }

}  // namespace triforce
