// What the host bodies of kernels/ptx.cuh and the tests need of the emulator beyond CUDA's own
// names.
//
// A block's threads are fibers. A fiber runs until it waits in a collective; then the next lane
// runs. A new warp-wide operation is written with warp_collective: every lane hands in an object on
// its own stack, the lane that arrives last computes for all 32, and then all go on:
//
//   struct Sum { int mine, all; };
//   inline int warp_sum(int value, tf_emulator::Site site = tf_emulator::Site::here()) {
//     Sum lane{value, 0};
//     tf_emulator::warp_collective("warp_sum", lane, [](Sum* const* lanes) {
//       int total = 0;
//       for (int i = 0; i < 32; ++i) total += lanes[i]->mine;
//       for (int i = 0; i < 32; ++i) lanes[i]->all = total;
//     }, site);
//     return lane.all;
//   }
//
// All 32 lanes must arrive at the same kind and the same site (file and line of the caller of the
// wrapper, which is why the wrapper has the default argument); anything else is a trap.
//
// The warp-wide instructions kernels/ptx.cuh needs are ready-made below: mma, ldmatrix, movmatrix,
// cp.async. They are compiled without instrumentation and are fast; `compute` in a header is
// instrumented like the kernel around it, so keep loops over it short or out of line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct CUtensorMap_st;

namespace tf_emulator {

// Where in the kernel's source a thread is.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// --- For host bodies of instructions -------------------------------------------------------------

namespace detail {
// The operands of all lanes if the caller is the last to arrive, else null after the last one has
// computed.
void* const* collective_arrive(const char* kind, void* mine, Site site);
void collective_release();
}  // namespace detail

template <class Operands, class Compute>
void warp_collective(const char* kind, Operands& mine, const Compute& compute,
                     Site site = Site::here()) {
  if (void* const* lanes = detail::collective_arrive(kind, &mine, site)) {
    Operands* typed[32];
    for (int i = 0; i < 32; ++i) typed[i] = static_cast<Operands*>(lanes[i]);
    compute(static_cast<Operands* const*>(typed));
    detail::collective_release();
  }
}

// Lane number 0..31 of the running thread.
unsigned lane_id();

// The checks every load and store of kernel code goes through, for accesses made elsewhere:
// address, bounds, initialised, races in shared memory. They trap, that is, they do not return on
// failure.
void check_read(const void* address, size_t bytes);
void check_write(const void* address, size_t bytes);
template <class T>
T checked_read(const T* address) {
  check_read(address, sizeof(T));
  return *address;
}
template <class T>
void checked_write(T* address, T value) {
  check_write(address, sizeof(T));
  *address = value;
}
// Fails the launch with `message`; for host bodies that find a misuse themselves.
[[noreturn]] void trap(std::string message);

// The block's dynamic shared memory, 128-byte aligned; TF_SHARED of kernels/platform.cuh.
void* shared_arena();

// mma.sync.aligned.m16n8k16.row.col.f32.{f16,bf16}.{f16,bf16}.f32: d = a * b + c in place (c is d).
// Registers as PTX numbers them. Products are exact in f32 and added to d in order of k, rounding
// to f32 after every addition.
struct MmaOperands {
  std::uint32_t a[4];  // 16 x 16, row major fragment
  std::uint32_t b[2];  // 16 x 8, column major fragment
  float d[4];          // 16 x 8
};
void mma_m16n8k16_f16(MmaOperands& lane, Site site = Site::here());
void mma_m16n8k16_bf16(MmaOperands& lane, Site site = Site::here());

// ldmatrix.sync.aligned.m8n8.x{count}[.trans].shared.b16: `row` is this lane's row address (16
// bytes in shared memory; only lanes below 8 * count matter), `out` receives count registers.
void ldmatrix(const void* row, std::uint32_t* out, int count, bool transposed,
              Site site = Site::here());
// movmatrix.sync.aligned.m8n8.trans.b16
std::uint32_t movmatrix(std::uint32_t value, Site site = Site::here());

// cp.async.{ca,cg}.shared.global [to], [from], bytes, source_bytes: the bytes arrive when the
// thread waits for their group, and not before; from source_bytes on they are zeros. bytes is 4, 8
// or 16.
void cp_async(void* to, const void* from, int bytes, int source_bytes);
void cp_async_commit();
// cp.async.wait_group: all groups but the newest `pending` have arrived.
void cp_async_wait(int pending);
// cp.async.wait_all: everything, committed or not.
void cp_async_wait_all();

// --- What compute capability 9.0 alone has; other devices trap. Addresses of shared memory as
// shared_address() gives them.
std::uint32_t shared_address(const void* p);
// mbarrier.init, mbarrier.arrive[.expect_tx], and mbarrier.try_wait.parity until it succeeds.
void mbarrier_init(std::uint32_t at, int arrivals);
void mbarrier_arrive(std::uint32_t at, int expected_bytes);
void mbarrier_wait(std::uint32_t at, int parity);
// cp.async.bulk.tensor.4d of the box at `from`: its bytes arrive when a thread waits for the
// barrier.
void copy_box(std::uint32_t to, const CUtensorMap_st& tensor, const int (&from)[4],
              std::uint32_t barrier);
void fence_async_proxy();
// wgmma.mma_async.m64n128k16 of f16 (half) or bf16, sums in f32: d[64] of a lane, of a warp's 16
// rows of 64. Sums are NaNs until wgmma.wait_group. a and b: matrix descriptors, swizzled by 128
// bytes; or a[4] of a lane, and b transposed.
struct WgmmaOperands {
  bool half, add;
  float* d;
  const std::uint32_t* registers;  // null: the matrix a
  std::uint64_t a, b;
};
void wgmma_m64n128k16(bool half, float* d, std::uint64_t a, std::uint64_t b, bool add,
                      Site site = Site::here());
void wgmma_m64n128k16(bool half, float* d, const std::uint32_t* a, std::uint64_t b,
                      Site site = Site::here());
void wgmma_fence(Site site = Site::here());
void wgmma_commit(Site site = Site::here());
void wgmma_wait(int pending, Site site = Site::here());

// Programmatic dependent launch: griddepcontrol.wait and griddepcontrol.launch_dependents. Of a
// kernel that was launched to begin early, every thread has to wait before it ends, lets the next
// kernel start, or touches device memory, but for reads of what no work that may still run writes.
void wait_for_earlier_grids();
void let_next_grid_start();

// --- For tests -----------------------------------------------------------------------------------

// What went wrong in kernel code. The launch that trapped ends, and every call after it returns the
// error (it is sticky, as on a device) until reset().
enum class Trap : std::uint8_t {
  kNone,
  kOutOfBounds,    // outside a live allocation or the block's shared memory, or host memory
  kMisaligned,     // address not a multiple of the access size
  kUninitialised,  // read of bytes never written
  kRace,           // two threads, one writing, no barrier between
  kDivergence,     // threads at different barriers or collectives, or a mask that is not full
  kDeadlock,       // threads wait that nobody will wake
  kEarly,          // done before the thread has waited for the kernels before its own
  kOther,
};
struct TrapReport {
  Trap kind = Trap::kNone;
  std::string message;
};
// The last trap since the last reset(), on any thread.
TrapReport last_trap();

// Bytes that crossed the bus so far between host and device, in the order in which work ran: by
// copies, and by loads and stores of kernels in page-locked memory (nothing is cached).
struct Bus {
  std::uint64_t copied_to_device = 0, copied_to_host = 0;
  std::uint64_t read_by_kernels = 0, written_by_kernels = 0;
};
Bus bus();

// Which of several streams with runnable work goes first, when the host waits for one of them.
enum class Order : std::uint8_t {
  kLazy,  // only what the host waits for, and what that waits for; else the newest stream (default)
  kOldest,  // all work, the oldest stream first
  kNewest,  // all work, the newest stream first
  kEager,   // at once, in the order of the calls
};
void set_order(Order order);

// How the blocks of a launch run.
enum class BlockOrder : std::uint8_t { kForward, kBackward, kShuffled };
struct Blocks {
  BlockOrder order = BlockOrder::kForward;  // of x, y, z; one after another
  std::uint64_t seed = 0;                   // of kShuffled
  // Whether a block that uses what another one wrote in the same launch traps where no fence and
  // atomic operation of both lies between; and a thread that uses what another one of its block
  // wrote, or writes what it read, with no barrier between. Device memory alone; slow.
  bool checked = false;
};
void set_blocks(const Blocks& blocks);

struct Limits {
  std::size_t memory_bytes = std::size_t{8} << 30;
  int devices = 1;
  int multiprocessors = 4;
  int architecture = 80;  // 10 times the compute capability
  // Of the kernels' code; 0: that of the device. Attributes of older code are those of PTX that the
  // driver compiled; of newer code there are none.
  int code_architecture = 0;
  std::size_t shared_optin_bytes = 163 << 10;
  // Host memory that cudaHostRegister takes; what it says of more.
  std::size_t register_bytes = std::size_t{1} << 40;
  int register_error = 2;           // a cudaError_t: cudaErrorMemoryAllocation
  bool registered_pointers = true;  // cudaDevAttrCanUseHostPointerForRegisteredMem
  // Page-locked host memory that cudaHostAlloc gives.
  std::size_t pinned_bytes = std::size_t{1} << 37;
  // As CUDA numbers them, 1000 times the major version. A driver older than the runtime's major
  // version is refused, as on a device; 0: there is none.
  int driver_version = 13000;
  int runtime_version = 13000;
  // The devices' memory is the host's, whose page cache counts as taken.
  bool integrated = false;
  std::size_t page_cache_bytes = 0;
  int busy_device = -1;  // cudaSetDevice refuses it, as one that another process has for itself
};
void set_limits(const Limits& limits);
Limits limits();

// A fresh device: pending work is dropped, memory freed, errors and limits forgotten. Handles from
// before are invalid.
void reset();

// Counters since the last reset(), for measurements.
struct Counters {
  std::uint64_t launches = 0;
  std::uint64_t early_launches = 0;  // of these, with programmatic dependent launch
  std::uint64_t fiber_switches = 0;
  std::uint64_t accesses = 0;  // only counted by the instrumented build
  std::uint64_t contexts = 0;  // bit i: cudaSetDevice(i) has succeeded
};
Counters counters();

// Kernels launched since the last reset(), by name, each once.
struct LaunchedKernel {
  std::string name;              // with template arguments and parameters
  unsigned threads = 0;          // of its largest block
  std::size_t shared_bytes = 0;  // the most dynamic shared memory that a block had
};
std::vector<LaunchedKernel> launched_kernels();

// Bytes of device memory and of pinned host memory now allocated, and of host memory registered.
std::size_t device_bytes();
std::size_t pinned_bytes();
std::size_t registered_bytes();

// Whether loads and stores of kernel code are checked (the instrumented build), as opposed to
// AddressSanitizer or nothing watching them.
bool instrumented();

}  // namespace tf_emulator
