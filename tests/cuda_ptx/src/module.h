// A module of PTX as it is executed: registers are places in a frame, instructions are functions.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tf_ptx::detail {

struct Warp;
struct Function;

using LaneMask = std::uint32_t;  // bit i: lane i
constexpr int kLanes = 32;
constexpr LaneMask kAllLanes = 0xffffffffu;

// One value a lane, at `offset` of a frame: 32 of 4 bytes for registers of up to 32 bits (those of
// 16 in the lower half, zeros above), 32 of 8 bytes for 64 bits, or, of predicates, one LaneMask.
struct Register {
  std::uint32_t offset = 0;
  std::uint8_t bytes = 0;  // 2, 4, 8; 0: a predicate
};

// Every frame begins with what PTX calls special registers, 32 values of 4 bytes each.
enum SpecialRegister : std::uint32_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kSpecialRegisters
};
constexpr std::uint32_t kRegisterBytes = 4 * kLanes;

// Where an address lies; generic addresses of other spaces than global have a window each.
enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kLocal, kParameter };
constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 60;
constexpr std::uint64_t kLocalWindow = std::uint64_t{2} << 60;
constexpr std::uint64_t kParameterWindow = std::uint64_t{3} << 60;
constexpr std::uint64_t kWindows = std::uint64_t{15} << 60;

struct Address {
  Space space = Space::kGeneric;
  bool in_register = false;
  Register base;             // with in_register
  std::uint64_t offset = 0;  // added to it
};

// What comes after an instruction.
enum class Flow : std::uint8_t {
  kNext,
  kBranch,  // to `target`
  kReturn,
  kBarrier,   // of the block
  kTogether,  // next, when all lanes that the instruction names have come
  kCall,
};

struct Instruction {
  using Execute = void (*)(Warp&, const Instruction&, LaneMask);
  Execute execute = nullptr;
  Flow flow = Flow::kNext;
  bool guarded = false;  // by @guard, or @!guard with guard_negated
  bool guard_negated = false;
  Register guard;
  bool names_lanes = false;  // kTogether: the operand `lanes` says which; else all
  Register lanes;
  std::array<Register, 14> operand{};
  std::uint8_t operands = 0;
  std::vector<Register> sums;  // of wgmma
  Address address, source;     // source: of cp.async
  std::uint8_t bytes = 0;      // of an element in memory
  std::uint8_t mode = 0;       // of an operation with variants
  bool negated = false;        // a predicate among the operands, or a signed element in memory
  std::uint64_t number = 0;
  std::uint32_t target = 0;
  Function* callee = nullptr;
  // Of calls: what to copy between local memories, {offset here, offset there, bytes}.
  struct Copy {
    std::uint32_t here, there, bytes;
  };
  std::vector<Copy> passed, returned;
  std::string text;
  std::uint64_t executed = 0;
};

struct Parameter {
  std::string name;
  std::uint32_t offset = 0, bytes = 0;
};

struct Function {
  std::string name;
  bool kernel = false;
  std::vector<Parameter> parameters, results;  // a kernel's in its buffer, others in local memory
  std::uint32_t parameter_bytes = 0;           // of a kernel
  std::uint32_t local_bytes = 0;               // a lane
  std::uint32_t shared_bytes = 0;              // static
  std::uint32_t frame_bytes = kSpecialRegisters * kRegisterBytes;
  std::vector<std::pair<Register, std::uint64_t>> constants;
  std::vector<Instruction> code;
};

struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;  // by name
  std::map<std::string, std::vector<std::byte>> constants;     // .global and .const arrays
};

// Adds what a file declares. Throws std::runtime_error, which names file and statement.
void parse(Module& module, const std::string& text, const std::string& file);

// Turns an opcode with its operands into what executes it; false: unknown.
struct Operands;
bool decode(Instruction& out, const std::string& opcode, Operands& operands);

}  // namespace tf_ptx::detail
