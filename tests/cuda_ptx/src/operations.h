// What instructions do, by kind; decode.cpp says which opcode is which.
#pragma once
#include "machine.h"

namespace tf_ptx::detail {

// --- memory.cpp
// A lane's address, checked: where its bytes are on the host.
std::byte* reach(Warp& warp, const Instruction& in, const Address& address, int lane,
                 std::size_t bytes, bool write);
std::uint64_t address_of(const Warp& warp, const Address& address, int lane);
// Bytes of shared and of global memory, checked.
std::byte* in_shared(Warp& warp, const Instruction& in, std::uint64_t at, std::size_t bytes);
std::byte* in_global(Warp& warp, const Instruction& in, std::uintptr_t address, std::size_t bytes,
                     int lane, bool write);
void load(Warp& warp, const Instruction& in, LaneMask lanes);        // operands: destinations
void store(Warp& warp, const Instruction& in, LaneMask lanes);       // operands: values
enum class Atomic : std::uint8_t { kAdd, kIncrement };               // of 32 bits
void atomic(Warp& warp, const Instruction& in, LaneMask lanes);      // destination, values
void copy_async(Warp& warp, const Instruction& in, LaneMask lanes);  // bytes to read, if not all
void commit_copies(Warp& warp, const Instruction& in, LaneMask lanes);
void wait_for_copies(Warp& warp, const Instruction& in, LaneMask lanes);  // number: groups left

// --- warp_wide.cpp: for lanes that have come together
enum class Shuffle : std::uint8_t { kUp, kButterfly, kIndex };
void shuffle(Warp& warp, const Instruction& in, LaneMask lanes);  // d, p, a, b, c
enum class Vote : std::uint8_t { kBallot, kAny };
void vote(Warp& warp, const Instruction& in, LaneMask lanes);
void mma_f16(Warp& warp, const Instruction& in, LaneMask lanes);  // d 4, a 4, b 2, c 4
void mma_bf16(Warp& warp, const Instruction& in, LaneMask lanes);
void load_matrix(Warp& warp, const Instruction& in, LaneMask lanes);  // mode: 1 transposed
void transpose_matrix(Warp& warp, const Instruction& in, LaneMask lanes);
void nothing(Warp& warp, const Instruction& in, LaneMask lanes);

// --- asynchronous.cpp
void init_barrier(Warp& warp, const Instruction& in, LaneMask lanes);  // arrivals of a phase
void arrive(Warp& warp, const Instruction& in, LaneMask lanes);        // bytes to come, if any
void test_barrier(Warp& warp, const Instruction& in, LaneMask lanes);  // p, parity
void copy_box(Warp& warp, const Instruction& in, LaneMask lanes);      // coordinates, barrier
void fence_products(Warp& warp, const Instruction& in, LaneMask lanes);
void multiply(Warp& warp, const Instruction& in, LaneMask lanes);  // mode: 1 f16, 0 bf16
void commit_products(Warp& warp, const Instruction& in, LaneMask lanes);
void wait_for_products(Warp& warp, const Instruction& in, LaneMask lanes);  // number: groups left

}  // namespace tf_ptx::detail
