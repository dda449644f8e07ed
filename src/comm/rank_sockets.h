// The sockets that connect the ranks of a run.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "core/file.h"
#include "triforce/rank.h"

namespace triforce {

// Connects every two of `size` ranks while they are still one process; [r] are the sockets of rank
// r. Throws Error(kResources, "OpenFailed").
std::vector<std::vector<Descriptor>> connect_ranks(int size);

// Gives every rank what each of them has set in its own of `parts`, size equal parts.
using GatherParts = std::function<void(std::span<std::byte> parts)>;

// What one rank knows after it was connected.
struct Connected {
  std::vector<Descriptor> sockets;  // [r] is connected to rank r; empty at its own
  LocalRank local;
  int machines = 1;
};

// Connects ranks that were started apart, on one machine or several, over TCP: each listens on all
// addresses of its machine, on a port and with secrets that `gather` tells the others. Throws what
// `gather` throws, Error(kResources, "OpenFailed"), and Error(kCommunication, "RankUnreachable") if
// a rank is not connected within `limit`.
Connected connect_started_ranks(const Shard& shard, const GatherParts& gather,
                                std::chrono::milliseconds limit);

}  // namespace triforce
