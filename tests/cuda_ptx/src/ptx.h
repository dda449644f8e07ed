// Executes the PTX that nvcc makes of kernels/*.cu, on the processor: a warp at a time, blocks one
// after another. Source: "Parallel Thread Execution ISA", NVIDIA, version 9.0.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tf_ptx {

// What ended a launch.
enum class Fault : std::uint8_t {
  kNone,
  kOutOfBounds,  // memory that is not the kernel's
  kMisaligned,   // address not a multiple of the access
  kUnwaited,     // shared memory to which a cp.async still copies
  kDivergence,   // lanes that are elsewhere, or have ended, where all must come together
  kOther,        // arguments that do not fit, a trap instruction
};

struct Outcome {
  Fault fault = Fault::kNone;
  std::string message;  // names kernel, block, warp and instruction
};

// Which blocks, which warps of a block, and which lanes of a warp that have parted go first.
enum class Schedule : std::uint8_t { kLowest, kHighest, kRandom };

// How mma adds its products to the sum. Tensor cores align the products of a group and the sum to
// the largest exponent among them and truncate (Fasi, Higham, Mikaitis, Pranesh, "Numerical
// behavior of NVIDIA tensor cores", 2021): groups of 8 on sm_80, of 16 on sm_90.
enum class Sums : std::uint8_t { kInOrder, kTruncated8, kTruncated16 };

struct Options {
  Schedule schedule = Schedule::kLowest;
  Sums sums = Sums::kInOrder;
  std::uint64_t seed = 0;  // of Schedule::kRandom
};

// Global memory, as whoever allocates it knows it. Addresses are those of the host.
class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  // Whether [address, address + bytes) may be used so. A write marks the bytes as written.
  virtual bool may_use(std::uintptr_t address, std::size_t bytes, bool write) = 0;
  // What an address that may not be used is, for a message.
  virtual std::string describe(std::uintptr_t address) = 0;
};

struct Extent {
  std::uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  Extent grid, block;
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block
  std::vector<std::span<const std::byte>>
      arguments;  // in order, as the host's compiler lays them out
};

// Instructions of a kernel, and how many of them warps have executed.
struct Coverage {
  std::string kernel;  // name as the linker has it, see Program::kernel_name
  std::vector<std::string> instructions;
  std::vector<std::uint64_t> executed;  // of each: times
};

// The kernels of some files of PTX. Not to be used by two threads at once.
class Program {
 public:
  // Reads every *.ptx of a folder. Throws std::runtime_error, which names file and statement, for
  // what cannot be executed.
  explicit Program(const std::string& folder);
  Program(const std::string& text, const std::string& name);  // one file's text
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // A linker's name of a kernel, with the names that compilers give to unnamed namespaces made
  // equal.
  static std::string kernel_name(const std::string& mangled);
  bool has(const std::string& kernel) const;
  // Runs a kernel of this program, by its kernel_name. Memory is as far written as it came.
  Outcome run(const std::string& kernel, const Launch& launch, GlobalMemory& memory,
              const Options& options);
  // Of every kernel, and of every function that they call.
  std::vector<Coverage> coverage() const;
  std::vector<std::string> kernels() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tf_ptx
