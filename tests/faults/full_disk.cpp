// LD_PRELOAD: one file is on a disk that is full. Its first FULL_DISK_BYTES bytes can be written;
// FULL_DISK_FILE is how its path ends.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool is_the_file(int fd) {
  const char* wanted = std::getenv("FULL_DISK_FILE");
  std::array<char, 4096> path{};
  std::array<char, 64> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link.data(), path.data(), path.size());
  return wanted != nullptr && n > 0 &&
         std::string_view(path.data(), static_cast<std::size_t>(n)).ends_with(wanted);
}

}  // namespace

extern "C" ssize_t write(int fd, const void* data, std::size_t bytes) {
  static const auto kReal =
      reinterpret_cast<ssize_t (*)(int, const void*, std::size_t)>(dlsym(RTLD_NEXT, "write"));
  if (!is_the_file(fd)) return kReal(fd, data, bytes);
  struct stat status {};
  const char* most = std::getenv("FULL_DISK_BYTES");
  if (::fstat(fd, &status) != 0 || most == nullptr) return kReal(fd, data, bytes);
  const long left = std::max(0L, std::atol(most) - static_cast<long>(status.st_size));
  if (left == 0) {
    errno = ENOSPC;
    return -1;
  }
  return kReal(fd, data, std::min(bytes, static_cast<std::size_t>(left)));
}
