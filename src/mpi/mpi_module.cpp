#include "mpi/mpi_module.h"

#include <mpi.h>

#include <array>

namespace {

std::array<char, MPI_MAX_ERROR_STRING> g_error;
std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> g_library;

const char* text_of(int code) {
  if (code == MPI_SUCCESS) return nullptr;
  int length = 0;
  if (MPI_Error_string(code, g_error.data(), &length) != MPI_SUCCESS) return "an unknown error";
  return g_error.data();
}

const char* start(int* rank, int* size) {
  if (const char* error = text_of(MPI_Init(nullptr, nullptr))) return error;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const char* error = text_of(MPI_Comm_rank(MPI_COMM_WORLD, rank))) return error;
  return text_of(MPI_Comm_size(MPI_COMM_WORLD, size));
}

const char* all_gather(void* parts, int bytes) {
  return text_of(
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, parts, bytes, MPI_BYTE, MPI_COMM_WORLD));
}

const char* finish() { return text_of(MPI_Finalize()); }

void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

}  // namespace

const TriforceMpi* triforce_mpi() {
  static const TriforceMpi module{g_library.data(), start, all_gather, finish, abort_all};
  int length = 0;
  MPI_Get_library_version(g_library.data(), &length);
  return &module;
}
