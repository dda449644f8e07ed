// What the system's page cache holds of a file.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/file.h"

namespace triforce {

// Pages of a file that memory holds; nullopt: this system does not say.
inline std::optional<std::int64_t> cached_pages(const std::filesystem::path& file) {
  const auto bytes = static_cast<std::size_t>(std::filesystem::file_size(file));
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const Descriptor fd = open_fd(file, O_RDONLY);
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> held((bytes + page - 1) / page);
  const bool says = ::mincore(at, bytes, held.data()) == 0;
  ::munmap(at, bytes);
  if (!says) return std::nullopt;
  return std::count_if(held.begin(), held.end(), [](unsigned char c) { return (c & 1) != 0; });
}

// Writes a file to its disk and lets the cache forget it; false: this file system keeps its pages,
// or hides them.
inline bool can_drop(const std::filesystem::path& file) {
  const Descriptor fd = open_fd(file, O_RDONLY);
  return ::fsync(fd.get()) == 0 && ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0 &&
         cached_pages(file) == 0;
}

}  // namespace triforce
