// Which of the ranks that share a model a process is.
#pragma once

namespace triforce {

// The part of rank `rank` of `size`; one rank alone holds the whole model.
struct Shard {
  int rank = 0, size = 1;
  bool operator==(const Shard&) const = default;
};

// What a rank shares with others of its machine.
struct LocalRank {
  int device = 0;   // its number among the ranks that see the same CUDA devices,
  int devices = 1;  // how many those are,
  int on_cpus = 1;  // and how many may run on the same processors; both count itself
};

}  // namespace triforce
