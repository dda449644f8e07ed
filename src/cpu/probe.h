// What this machine can do, measured: the bound that achieved figures are put beside.
#pragma once
#include "cpu/context.h"

namespace triforce::cpu {

// Read bandwidth in GB/s (1e9 bytes): a 512 MB buffer summed by all of context.threads at
// context.isa, the fastest decile of its 8 MB slices over three sweeps; a fraction of a second.
// Throws Error(kResources) without the memory.
double measure_read_bandwidth_gbs(const Context& context);

}  // namespace triforce::cpu
