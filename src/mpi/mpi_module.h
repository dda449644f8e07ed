// What the module triforce_mpi.so offers the program: the start of ranks by MPI, no more. A library
// of its own, for MPI libraries differ in their binary interfaces and most machines have none.
#pragma once

extern "C" {

// Each call returns nullptr, or what went wrong in words that last until the next call.
struct TriforceMpi {
  const char* library;  // "Open MPI v4.1.4, ..."
  // MPI_Init; the rank of this process and the number of ranks.
  const char* (*start)(int* rank, int* size);
  // parts: [size][bytes], of which each rank has set its own; those of the others come in.
  const char* (*all_gather)(void* parts, int bytes);
  // MPI_Finalize, when all ranks do; no call may follow.
  const char* (*finish)();
  // MPI_Abort: ends all ranks, whatever they do, and the launcher with this status.
  void (*abort)(int code);
};

// The one symbol of the module.
__attribute__((visibility("default"))) const TriforceMpi* triforce_mpi();
}
