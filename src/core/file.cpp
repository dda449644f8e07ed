#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "triforce/error.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

std::string errno_text(int error) { return std::generic_category().message(error); }

FileIdentity identity_of(const struct stat& st) {
  return {static_cast<std::uint64_t>(st.st_dev), static_cast<std::uint64_t>(st.st_ino),
          static_cast<std::int64_t>(st.st_size), static_cast<std::int64_t>(st.st_mtim.tv_sec),
          static_cast<std::int64_t>(st.st_mtim.tv_nsec)};
}

const char* describe_mode(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Errors that say nothing about the path.
void check_resources(const fs::path& path, int error) {
  if (error == EMFILE || error == ENFILE || error == ENOMEM) {
    throw_resources("OpenFailed", "{}: cannot open: {}", path.string(), errno_text(error));
  }
}

[[noreturn]] void throw_open(const fs::path& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw_input("FileNotFound", "{}: no such file", path.string());
  }
  check_resources(path, error);
  // A socket cannot be opened at all.
  if (error == ENXIO) {
    throw_input("NotRegularFile", "{}: not a regular file", path.string());
  }
  throw_input("ReadError", "{}: cannot open: {}", path.string(), errno_text(error));
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path file = fs::canonical(path, error);
  check_resources(path, error.value());
  if (error) throw_input("FileNotFound", "{}: {}", path.string(), error.message());
  return file;
}

bool is_inside(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first ==
         folder.end();
}

}  // namespace

Descriptor open_fd(const fs::path& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  } while (fd < 0 && errno == EINTR);
  return Descriptor(fd);
}

InputFile InputFile::open(const fs::path& path) {
  InputFile file;
  file.path_ = path;
  file.fd_ = open_fd(path, O_RDONLY);
  if (!file.fd_) throw_open(path, errno);
  struct stat st {};
  if (::fstat(file.fd_.get(), &st) != 0) throw_open(path, errno);
  if (!S_ISREG(st.st_mode)) {
    throw_input("NotRegularFile", "{}: expected a regular file, found {}", path.string(),
                describe_mode(st.st_mode));
  }
  file.identity_ = identity_of(st);
  return file;
}

void InputFile::read_exact(std::int64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(fd_.get(), out.data() + done, out.size() - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw_input("ReadError", "{}: cannot read {} bytes at byte {}: {}", path_.string(),
                  out.size(), offset, errno_text(errno));
    }
    if (n == 0) {
      throw_input("FileChanged",
                  "{}: ends at byte {}, expected {} bytes at byte {}: it was cut while in use",
                  path_.string(), offset + static_cast<std::int64_t>(done), out.size(), offset);
    }
    done += static_cast<std::size_t>(n);
  }
  check_unchanged();
}

void InputFile::drop_pages(std::int64_t offset, std::int64_t bytes) const noexcept {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t begin = offset / page * page;
  static_cast<void>(::posix_fadvise(fd_.get(), begin, offset + bytes - begin, POSIX_FADV_DONTNEED));
}

void InputFile::check_unchanged() const {
  struct stat st {};
  if (::fstat(fd_.get(), &st) != 0) {
    throw_input("ReadError", "{}: cannot stat: {}", path_.string(), errno_text(errno));
  }
  const FileIdentity now = identity_of(st);
  if (now == identity_) return;
  throw_input("FileChanged", "{}: changed while in use ({} bytes when opened, {} now)",
              path_.string(), identity_.bytes, now.bytes);
}

std::string read_file(const fs::path& path, std::int64_t max_bytes) {
  const InputFile file = InputFile::open(path);
  if (file.bytes() > max_bytes) {
    throw_input("LimitExceeded", "{}: {} bytes, the limit is {}", path.string(), file.bytes(),
                max_bytes);
  }
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read_exact(0, std::as_writable_bytes(std::span<char>(text)));
  return text;
}

bool same_bytes(const fs::path& a, const fs::path& b) {
  constexpr std::int64_t kBlock = 1 << 20;
  const InputFile first = InputFile::open(a), second = InputFile::open(b);
  if (first.bytes() != second.bytes()) return false;
  std::vector<std::byte> x, y;
  for (std::int64_t at = 0; at < first.bytes(); at += kBlock) {
    const auto n = static_cast<std::size_t>(std::min(kBlock, first.bytes() - at));
    x.resize(n);
    y.resize(n);
    first.read_exact(at, x);
    second.read_exact(at, y);
    if (x != y) return false;
  }
  return true;
}

void throw_write_error(const std::string& name, const char* what, int error) {
  const char* kind = error == ENOSPC || error == EDQUOT ? "DiskFull" : "WriteError";
  throw_resources(kind, "{}: cannot {}: {}", name, what, errno_text(error));
}

void write_all(int fd, std::string_view contents, const std::string& name) {
  while (!contents.empty()) {
    const ssize_t n = ::write(fd, contents.data(), contents.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_write_error(name, "write", errno);
    contents.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error)) && !error;
}

fs::path resolve_inside(const fs::path& dir, const std::string& name) {
  const fs::path root = real_path(dir);
  fs::path file = real_path(dir / name);
  if (is_inside(file, root)) return file;
  const fs::path snapshots = root.parent_path();
  std::error_code error;
  const fs::path blobs = fs::weakly_canonical(snapshots.parent_path() / "blobs", error);
  check_resources(dir, error.value());
  if (!error && snapshots.filename() == "snapshots" && is_inside(file, blobs)) return file;
  throw_input("PathEscape", "{}: points to {}, outside its checkpoint", (dir / name).string(),
              file.string());
}

std::string download_mistake(std::string_view head) {
  if (head.starts_with("version https://git-lfs")) {
    return "a Git LFS pointer, not the file it stands for (fetch it with: git lfs pull)";
  }
  for (const std::string_view tag :
       {"<!DOCTYPE", "<!doctype", "<!Doctype", "<html", "<HTML", "<Html"}) {
    if (head.starts_with(tag)) return "an HTML page, not a model file (a failed download)";
  }
  return {};
}

}  // namespace triforce
