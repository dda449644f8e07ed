// Programs that start the ranks of a run together, on one machine or several: mpirun, mpiexec,
// srun.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "triforce/rank.h"

struct TriforceMpi;

namespace triforce {

// This process as a launcher started it. MPI brings ranks together and ends them; what they compute
// with goes over connections of their own.
class Launcher {
 public:
  // nullptr: this process was started alone. Loads the module triforce_mpi.so, which is built where
  // MPI was found, and starts MPI with it. Throws Error(kUsage) if there is no such module or it
  // was built with another MPI than the launcher's.
  static std::unique_ptr<Launcher> find();

  // Throws Error(kUsage) if this process is one of several that a launcher started: `what` is done
  // by one.
  static void refuse(std::string_view what);

  const Shard& shard() const { return shard_; }
  // `parts`: size equal parts, of which this rank has set its own; those of the others come in.
  // Throws Error(kCommunication, "LauncherFailed").
  void all_gather(std::span<std::byte> parts);
  // Ends MPI when all ranks do; nothing else may be called afterwards.
  void finish() noexcept;
  // Ends all ranks, whatever they do, and the launcher with this exit status.
  void abort(int code) noexcept;

 private:
  Launcher(const TriforceMpi& module, std::string name);
  void expect(const char* call, const char* error) const;

  const TriforceMpi& module_;
  std::string name_;  // of the launcher: "mpirun"
  Shard shard_;
};

}  // namespace triforce
