// What the device can do: does it run this program's code, and how fast does it read.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace triforce::kernels {

// Whether this build holds code for the current device.
bool runs_here();

// Reads bytes [0, bytes) at `data` (16-byte aligned, bytes a multiple of 16) once and may write one
// checksum word to `sink`, so that the reads are not optimised away; `blocks` blocks of 512
// threads.
void read_all(const void* data, std::int64_t bytes, int blocks, std::uint32_t* sink,
              cudaStream_t stream);

}  // namespace triforce::kernels
