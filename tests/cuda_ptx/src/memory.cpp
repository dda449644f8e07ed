// Loads, stores, atomic operations and cp.async.
#include "operations.h"
#include "triforce/format.h"

namespace tf_ptx::detail {
namespace {

std::byte* in_local(Warp& warp, const Instruction& in, std::uint64_t at, std::size_t bytes,
                    int lane) {
  Frame& frame = *warp.frame;
  const std::size_t size = frame.function->local_bytes;
  if (at > size || bytes > size - at) {
    fail(Fault::kOutOfBounds, fmt::format("local memory at {} of {}: {}", at, size, in.text));
  }
  return frame.local.data() + static_cast<std::size_t>(lane) * size + at;
}

std::byte* in_parameters(Warp& warp, const Instruction& in, std::uint64_t at, std::size_t bytes,
                         int lane, bool write) {
  if (!warp.frame->function->kernel) return in_local(warp, in, at, bytes, lane);
  std::vector<std::byte>& all = warp.block->parameters;
  at &= ~kWindows;
  if (write || at > all.size() || bytes > all.size() - at) {
    fail(Fault::kOutOfBounds, fmt::format("parameters at {} of {}: {}", at, all.size(), in.text));
  }
  return all.data() + at;
}

bool is_constant(const Module& module, std::uintptr_t address, std::size_t bytes) {
  for (const auto& [name, data] : module.constants) {
    const std::uintptr_t at = address - reinterpret_cast<std::uintptr_t>(data.data());
    if (at < data.size() && bytes <= data.size() - at) return true;
  }
  return false;
}

void finish(Warp& warp, const Instruction& in, const PendingCopy& copy, int lane) {
  Block& block = *warp.block;
  std::byte* const to = block.shared.data() + copy.to;
  std::memset(to, 0, copy.bytes);
  if (copy.source_bytes > 0) {
    std::memcpy(to, in_global(warp, in, copy.from, copy.source_bytes, lane, false),
                copy.source_bytes);
  }
  std::fill_n(block.shared_states.begin() + copy.to, copy.bytes, kUsable);
  block.being_copied -= copy.bytes;
}

}  // namespace

std::byte* in_shared(Warp& warp, const Instruction& in, std::uint64_t at, std::size_t bytes) {
  Block& block = *warp.block;
  at &= 0xffffffffu;
  if (at + bytes > block.shared.size()) {
    fail(Fault::kOutOfBounds, fmt::format("shared memory at {}, the block has {} bytes: {}", at,
                                          block.shared.size(), in.text));
  }
  if (block.being_copied > 0) {
    const auto begin = block.shared_states.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::find(begin, begin + static_cast<std::ptrdiff_t>(bytes), kBeingCopied) !=
        begin + static_cast<std::ptrdiff_t>(bytes)) {
      fail(Fault::kUnwaited,
           fmt::format("shared memory at {} whose copy is not waited for: {}", at, in.text));
    }
  }
  return block.shared.data() + at;
}

std::byte* in_global(Warp& warp, const Instruction& in, std::uintptr_t address, std::size_t bytes,
                     int lane, bool write) {
  Block& block = *warp.block;
  if (block.memory->may_use(address, bytes, write) ||
      (!write && is_constant(*block.module, address, bytes))) {
    return reinterpret_cast<std::byte*>(address);
  }
  fail(Fault::kOutOfBounds, fmt::format("{}, {} bytes, lane {}: {}",
                                        block.memory->describe(address), bytes, lane, in.text));
}

std::uint64_t address_of(const Warp& warp, const Address& address, int lane) {
  return (address.in_register ? get_bits(warp, address.base, lane) : 0) + address.offset;
}

std::byte* reach(Warp& warp, const Instruction& in, const Address& address, int lane,
                 std::size_t bytes, bool write) {
  std::uint64_t at = address_of(warp, address, lane);
  Space space = address.space;
  if (space == Space::kGeneric) {
    const std::uint64_t window = at & kWindows;
    space = window == kSharedWindow      ? Space::kShared
            : window == kLocalWindow     ? Space::kLocal
            : window == kParameterWindow ? Space::kParameter
                                         : Space::kGlobal;
    if (space != Space::kGlobal) at &= ~kWindows;
  }
  if (at % bytes != 0) {
    fail(Fault::kMisaligned,
         fmt::format("address {:#x} of {} bytes, lane {}: {}", at, bytes, lane, in.text));
  }
  switch (space) {
    case Space::kShared:
      return in_shared(warp, in, at, bytes);
    case Space::kLocal:
      return in_local(warp, in, at, bytes, lane);
    case Space::kParameter:
      return in_parameters(warp, in, at, bytes, lane, write);
    default:
      return in_global(warp, in, at, bytes, lane, write);
  }
}

void load(Warp& warp, const Instruction& in, LaneMask lanes) {
  const std::size_t bytes = in.bytes;
  for_each_lane(lanes, [&](int lane) {
    const std::byte* const from = reach(warp, in, in.address, lane, bytes * in.operands, false);
    for (std::size_t i = 0; i < in.operands; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, from + i * bytes, bytes);
      if (in.negated && bytes < 8 && (bits >> (8 * bytes - 1)) != 0)
        bits |= ~std::uint64_t{0} << 8 * bytes;
      set_bits(warp, in.operand[i], lane, bits);
    }
  });
}

void store(Warp& warp, const Instruction& in, LaneMask lanes) {
  const std::size_t bytes = in.bytes;
  for_each_lane(lanes, [&](int lane) {
    std::byte* const to = reach(warp, in, in.address, lane, bytes * in.operands, true);
    for (std::size_t i = 0; i < in.operands; ++i) {
      const std::uint64_t bits = get_bits(warp, in.operand[i], lane);
      std::memcpy(to + i * bytes, &bits, bytes);
    }
  });
}

// Lanes one after another. Operand 0: what was there, 1: what is added, or the number after which
// counting begins at 0 again.
void atomic(Warp& warp, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    std::byte* const at = reach(warp, in, in.address, lane, in.bytes, true);
    std::uint32_t old;
    std::memcpy(&old, at, sizeof(old));
    const std::uint32_t value = get<std::uint32_t>(warp, in.operand[1], lane);
    const std::uint32_t now = Atomic{in.mode} == Atomic::kAdd ? old + value
                              : old >= value                  ? 0
                                                              : old + 1;
    std::memcpy(at, &now, sizeof(now));
    set<std::uint32_t>(warp, in.operand[0], lane, old);
  });
}

void copy_async(Warp& warp, const Instruction& in, LaneMask lanes) {
  Block& block = *warp.block;
  for_each_lane(lanes, [&](int lane) {
    PendingCopy copy;
    copy.bytes = in.bytes;
    copy.source_bytes = in.bytes;
    if (in.operands > 0) {
      const std::uint32_t wanted = get<std::uint32_t>(warp, in.operand[0], lane);
      if (wanted > in.bytes)
        fail(Fault::kOther, fmt::format("{} bytes to read: {}", wanted, in.text));
      copy.source_bytes = static_cast<std::uint8_t>(wanted);
    }
    const std::byte* const to = reach(warp, in, in.address, lane, copy.bytes, true);
    copy.to = static_cast<std::uint32_t>(to - block.shared.data());
    copy.from = address_of(warp, in.source, lane);
    if (copy.from % copy.bytes != 0) {
      fail(Fault::kMisaligned, fmt::format("address {:#x}: {}", copy.from, in.text));
    }
    std::fill_n(block.shared_states.begin() + copy.to, copy.bytes, kBeingCopied);
    block.being_copied += copy.bytes;
    warp.copies[static_cast<std::size_t>(lane)].pending.push_back(copy);
  });
}

void commit_copies(Warp& warp, const Instruction&, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    LaneCopies& copies = warp.copies[static_cast<std::size_t>(lane)];
    copies.group_ends.push_back(copies.pending.size());
  });
}

void wait_for_copies(Warp& warp, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) {
    LaneCopies& copies = warp.copies[static_cast<std::size_t>(lane)];
    const std::size_t groups = copies.group_ends.size();
    if (groups <= in.number) return;
    const auto done = static_cast<std::ptrdiff_t>(groups - in.number);
    const std::size_t end = copies.group_ends[static_cast<std::size_t>(done) - 1];
    for (std::size_t i = 0; i < end; ++i) finish(warp, in, copies.pending[i], lane);
    copies.pending.erase(copies.pending.begin(),
                         copies.pending.begin() + static_cast<std::ptrdiff_t>(end));
    copies.group_ends.erase(copies.group_ends.begin(), copies.group_ends.begin() + done);
    for (std::size_t& later : copies.group_ends) later -= end;
  });
}

}  // namespace tf_ptx::detail
