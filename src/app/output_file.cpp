// Tests: tests/app/output_file_test.cpp, tests/faults/full_disk_test.py
#include "app/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "app/last_resort.h"
#include "app/output.h"
#include "app/signals.h"
#include "core/file.h"
#include "core/sha256.h"
#include "core/utf8.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as many as the system follows
constexpr std::size_t kMaxQuoted = 1024;

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum class Lock : std::uint8_t { kHeld, kBusy };
// Where the file system knows no locks, everyone holds one. A signal ends the wait, but for one
// that had come before: then there is something to be written yet.
Lock lock(const Descriptor& fd, bool wait) {
  constexpr int kAgain_ms = 20;
  const bool stopping = received_signal().has_value();
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;
    if (!wait) return Lock::kBusy;
    ::poll(nullptr, 0, kAgain_ms);
    if (!stopping) throw_if_signalled();
  }
  return Lock::kHeld;
}

// Pipes and some file systems cannot be synchronised; that is no error.
void sync(int fd, const std::string& name) {
  if (::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) {
    throw_write_error(name, "fsync", errno);
  }
}

// Where a path leads once links are followed.
struct Place {
  fs::path target, folder;
  std::string name;
  std::optional<struct stat> found;  // none: there is no such file yet
  struct stat folder_stat {};

  bool replaced() const { return !found || S_ISREG(found->st_mode); }
  bool same_as(const Place& other) const {
    if (found && other.found && same_file(*found, *other.found)) return true;
    return same_file(folder_stat, other.folder_stat) && name == other.name;
  }
};

[[noreturn]] void refuse(const OutputRequest& r, std::string_view why) {
  throw_usage("{}: expected a file that can be written, found {}: {}", r.option,
              quote_text(r.path, kMaxQuoted), why);
}

[[noreturn]] void refuse_errno(const OutputRequest& r, int error) {
  const std::string text = std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE || error == ENOMEM) {
    throw_resources("OpenFailed", "{} {}: cannot open for writing: {}", r.option,
                    quote_text(r.path, kMaxQuoted), text);
  }
  refuse(r, text);
}

// The file a chain of links ends at, which need not exist.
fs::path follow_links(const OutputRequest& r) {
  fs::path path = r.path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    const fs::path next = fs::read_symlink(path, error);
    if (error) refuse_errno(r, error.value());
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

Place resolve(const OutputRequest& r) {
  if (r.path == "-") {
    throw_usage("{}: expected a file name, found \"-\"; --output-format prints on standard output",
                r.option);
  }
  if (r.path.starts_with("--")) {
    throw_usage("{}: expected a file name, found {}; ./{} names such a file", r.option,
                quote_text(r.path), r.path);
  }
  Place p;
  struct stat st {};
  if (::stat(r.path.c_str(), &st) == 0) {
    p.found = st;
    if (S_ISDIR(st.st_mode)) refuse(r, "it is a folder");
    if (S_ISSOCK(st.st_mode)) refuse(r, "it is a socket");
  } else if (errno != ENOENT) {
    refuse_errno(r, errno);
  }
  p.target = p.replaced() ? follow_links(r) : fs::path(r.path);
  p.name = p.target.filename().string();
  p.folder = p.target.has_parent_path() ? p.target.parent_path() : fs::path(".");
  if (p.name.empty()) refuse(r, "it is a folder");
  if (::stat(p.folder.c_str(), &p.folder_stat) != 0) refuse_errno(r, errno);
  return p;
}

void check_not_stdout(const OutputRequest& r, const Place& place) {
  struct stat out {};
  if (!place.found || ::fstat(STDOUT_FILENO, &out) != 0 || !same_file(*place.found, out)) return;
  if (S_ISREG(out.st_mode) || S_ISFIFO(out.st_mode)) {
    refuse(r, "it is standard output, where the result is printed; use --output-format");
  }
}

}  // namespace

// kReplace: `scratch` lies beside the target under a name of fixed length that only depends on the
// target's. It is locked from the start, so that it is claim and temporary in one; a write fills it
// and renames it to the target. The file that is now the target stays locked until the next
// scratch file is, so that there is no moment without a lock.
struct OutputFile::Impl {
  OutputRequest request;
  Place place;
  fs::path scratch;
  Descriptor fd;         // scratch, or what is appended or streamed to
  Descriptor published;  // the target as it was last written
  bool created = false;  // kAppend: the file was not there, and nothing has been written yet

  Impl(OutputRequest r, Place p) : request(std::move(r)), place(std::move(p)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (fd && !scratch.empty()) remove(scratch);
    if (created) remove(place.target);
  }
  static void remove(const fs::path& path) {
    ::unlink(path.c_str());
    unregister_scratch_file(path.native());
  }

  void claim();
  void claim_scratch(bool wait);
  void claim_append();
  void claim_stream();
  void replace(std::string_view contents);
  void append(std::string_view contents);
};

void OutputFile::Impl::claim() {
  if (!place.replaced()) return claim_stream();
  if (request.mode == OutputMode::kAppend) return claim_append();
  scratch = place.folder / ("." + sha256_hex(place.name).substr(0, 16) + ".triforce-bench");
  claim_scratch(false);
  // Nobody has the scratch file; but someone may just have renamed his.
  if (!place.found) return;
  const Descriptor target = open_fd(place.target, O_RDONLY);
  if (target && lock(target, false) == Lock::kBusy) refuse(request, "another process writes it");
}

void OutputFile::Impl::claim_scratch(bool wait) {
  while (true) {
    Descriptor opened = open_fd(scratch, O_RDWR | O_CREAT | O_NOFOLLOW);
    if (!opened) refuse_errno(request, errno);
    if (lock(opened, wait) == Lock::kBusy) refuse(request, "another process writes it");
    fd = std::move(opened);  // from here on the file goes with this object
    struct stat mine {};
    if (::fstat(fd.get(), &mine) != 0) refuse_errno(request, errno);
    struct stat there {};
    const bool regular = S_ISREG(mine.st_mode);
    // Its owner may have renamed or removed it before we had the lock.
    if (regular && ::stat(scratch.c_str(), &there) == 0 && same_file(mine, there)) break;
    fd.reset();
    if (!regular) refuse(request, scratch.string() + " is in the way");
  }
  register_scratch_file(scratch.native());
}

void OutputFile::Impl::claim_append() {
  fd = open_fd(place.target, O_RDWR | O_APPEND | O_CREAT | O_EXCL);
  created = static_cast<bool>(fd);
  if (created) {
    register_scratch_file(place.target.native());
  } else {
    fd = open_fd(place.target, O_RDWR | O_APPEND);
  }
  if (!fd) refuse_errno(request, errno);
}

void OutputFile::Impl::claim_stream() {
  fd = open_fd(request.path, O_WRONLY);
  if (!fd && errno == ENXIO) refuse(request, "nobody reads it");
  if (!fd) refuse_errno(request, errno);
  const int flags = ::fcntl(fd.get(), F_GETFL);
  ::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
}

void OutputFile::Impl::replace(std::string_view contents) {
  const std::string& name = request.path;
  if (!fd) claim_scratch(true);
  struct stat old {};
  const bool exists = ::stat(place.target.c_str(), &old) == 0;
  if (::ftruncate(fd.get(), 0) != 0 || ::lseek(fd.get(), 0, SEEK_SET) != 0 ||
      (exists && ::fchmod(fd.get(), old.st_mode & 07777U) != 0)) {
    throw_write_error(name, "write", errno);
  }
  write_all(fd.get(), contents, name);
  sync(fd.get(), name);
  if (::rename(scratch.c_str(), place.target.c_str()) != 0) {
    throw_write_error(name, "rename to", errno);
  }
  unregister_scratch_file(scratch.native());
  published = std::move(fd);
  fd.reset();
  // A folder that one may write but not read cannot be synchronised.
  if (const Descriptor folder = open_fd(place.folder, O_RDONLY | O_DIRECTORY)) {
    sync(folder.get(), name);
  }
  try {
    claim_scratch(true);
  } catch (const Error&) {
    // The next write tries again, and says what is wrong.
  }
}

void OutputFile::Impl::append(std::string_view contents) {
  const std::string& name = request.path;
  lock(fd, true);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) throw_write_error(name, "append to", errno);
  // A line that a crash cut short stays a line of its own.
  char last = '\n';
  if (st.st_size > 0 && ::pread(fd.get(), &last, 1, st.st_size - 1) != 1) {
    throw_write_error(name, "append to", errno);
  }
  std::string lines(last == '\n' ? "" : "\n");
  lines.append(contents);
  try {
    write_all(fd.get(), lines, name);
    sync(fd.get(), name);
  } catch (const Error&) {
    if (::ftruncate(fd.get(), st.st_size) != 0) print_note(name + ": its last line is incomplete");
    ::flock(fd.get(), LOCK_UN);
    throw;
  }
  ::flock(fd.get(), LOCK_UN);
  if (created) unregister_scratch_file(place.target.native());
  created = false;
}

OutputFile::OutputFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

const OutputRequest& OutputFile::request() const { return impl_->request; }

bool OutputFile::replaceable() const {
  return impl_->place.replaced() && impl_->request.mode == OutputMode::kReplace;
}

void OutputFile::write(std::string_view contents) {
  if (replaceable()) return impl_->replace(contents);
  if (impl_->place.replaced()) return impl_->append(contents);
  write_all(impl_->fd.get(), contents, impl_->request.path);
  sync(impl_->fd.get(), impl_->request.path);
}

OutputFiles::OutputFiles(std::vector<OutputRequest> requests, std::span<const fs::path> inputs) {
  for (OutputRequest& r : requests) {
    if (r.path.empty()) continue;
    Place place = resolve(r);
    check_not_stdout(r, place);
    files_.push_back(
        OutputFile(std::make_unique<OutputFile::Impl>(std::move(r), std::move(place))));
  }
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const Place& place = files_[i].impl_->place;
    if (place.found && S_ISCHR(place.found->st_mode)) continue;  // /dev/null takes everything
    for (std::size_t j = 0; j < i; ++j) {
      if (!place.same_as(files_[j].impl_->place)) continue;
      throw_usage("{} and {}: expected two files, found {} and {}, which are one",
                  files_[j].request().option, files_[i].request().option,
                  quote_text(files_[j].request().path, kMaxQuoted),
                  quote_text(files_[i].request().path, kMaxQuoted));
    }
  }
  check_inputs(inputs);
  for (OutputFile& file : files_) file.impl_->claim();
}

void OutputFiles::check_inputs(std::span<const fs::path> inputs) const {
  for (const fs::path& input : inputs) {
    struct stat st {};
    if (::stat(input.c_str(), &st) != 0) continue;
    for (const OutputFile& file : files_) {
      const Place& place = file.impl_->place;
      if (!place.found || !same_file(*place.found, st) || S_ISCHR(st.st_mode)) continue;
      throw_usage("{}: expected a file that this run does not read, found {}, which is {}",
                  file.request().option, quote_text(file.request().path, kMaxQuoted),
                  quote_text(input.string(), kMaxQuoted));
    }
  }
}

OutputFile* OutputFiles::find(std::string_view option) {
  for (OutputFile& file : files_) {
    if (file.request().option == option) return &file;
  }
  return nullptr;
}

template <class Body>
void OutputWriter::guarded(const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    print_error(e.what());
    if (code_ == ExitCode::kOk) code_ = e.code();
  }
}

void OutputWriter::write(OutputFile* file, std::string_view text) {
  if (file != nullptr) guarded([&] { file->write(text); });
}

void OutputWriter::print(std::string_view text) {
  guarded([&] { print_out(text); });
}

}  // namespace triforce
