// Files of untrusted content are read with pread and an exact length, never mapped: a mapped file
// that shrinks reads zeros or raises SIGBUS.
#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace triforce {

// A descriptor that is closed on every way out.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Opens without blocking and without leaving it to child processes; a file that is made is anyone's
// to read and write, as far as the umask lets. Empty if that failed, with the reason in errno.
Descriptor open_fd(const std::filesystem::path& path, int flags);

// A file's identity must stay the same while it is in use.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0;
  std::int64_t bytes = 0;
  std::int64_t mtime_s = 0, mtime_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

// A regular file open for reading. Move-only.
class InputFile {
 public:
  // Throws Error(kBadInput): FileNotFound, NotRegularFile (a FIFO, device, socket or folder; opened
  // without blocking), ReadError; Error(kResources, "OpenFailed") when descriptors or memory run
  // out.
  static InputFile open(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  std::int64_t bytes() const { return identity_.bytes; }
  const FileIdentity& identity() const { return identity_; }

  // Fills `out` from byte `offset`, then checks that the file is still the one that was opened.
  // Throws Error(kBadInput): ReadError, FileChanged (shorter, longer, or touched since).
  void read_exact(std::int64_t offset, std::span<std::byte> out) const;
  void check_unchanged() const;
  // Lets the system's page cache forget whole pages of these bytes, also a page that they share
  // with those before. It may keep them all the same.
  void drop_pages(std::int64_t offset, std::int64_t bytes) const noexcept;

 private:
  InputFile() = default;
  std::filesystem::path path_;
  Descriptor fd_;
  FileIdentity identity_;
};

// The whole file. Throws as InputFile, and Error(kBadInput, "LimitExceeded") above max_bytes.
std::string read_file(const std::filesystem::path& path, std::int64_t max_bytes);

// Returns whether two files hold the same bytes. Throws as InputFile.
bool same_bytes(const std::filesystem::path& a, const std::filesystem::path& b);

// Writes all of `contents` to a descriptor, through EINTR and short writes. `name` is for messages.
// Throws Error(kResources): DiskFull, WriteError.
void write_all(int fd, std::string_view contents, const std::string& name);
// "NAME: cannot WHAT: ..." Throws Error(kResources): DiskFull (no space or quota), WriteError.
[[noreturn]] void throw_write_error(const std::string& name, const char* what, int error);

// Whether there is something of that name, be it a link to nothing.
bool is_there(const std::filesystem::path& path);

// The real path of dir/name, which must exist and lie inside dir, or, where dir is a snapshot of
// the Hugging Face hub cache (models--x/snapshots/revision), inside that model's blobs folder.
// Throws Error(kBadInput): FileNotFound, PathEscape.
std::filesystem::path resolve_inside(const std::filesystem::path& dir, const std::string& name);

// Says what a file is that begins with `head` and was expected to hold a model: "a Git LFS pointer
// ..." or "an HTML page ..."; empty if it is neither.
std::string download_mistake(std::string_view head);

}  // namespace triforce
