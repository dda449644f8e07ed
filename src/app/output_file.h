// Files that results go to: checked and claimed before the work begins, so that hours of measuring
// never end at a folder that is not there.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "triforce/error.h"

namespace triforce {

enum class OutputMode : std::uint8_t {
  kReplace,  // the whole file anew, atomically: readers see the old one or the new one
  kAppend,   // whole lines after what is there
};

struct OutputRequest {
  std::string option;  // "--json", for messages
  std::string path;    // as the user gave it
  OutputMode mode = OutputMode::kReplace;
};

// An OutputFile is one file of this process. It is move-only. Until the first write() the place is
// as it was. A file that was created to claim the place goes when the process ends, however it
// ends. After SIGKILL it goes with the next run that writes there.
class OutputFile {
 public:
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();

  const OutputRequest& request() const;
  // Returns whether write() may be called again with a longer text. Pipes, devices and kAppend do
  // not allow it.
  bool replaceable() const;
  // Throws Error(kResources): DiskFull, WriteError, naming the file as the user did; the signal's
  // error if one comes while it waits for another process that appends.
  void write(std::string_view contents);

 private:
  friend class OutputFiles;
  struct Impl;
  explicit OutputFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The files of one command.
class OutputFiles {
 public:
  // Requests with an empty path are left out. Throws Error(kUsage) with one line that names option
  // and file for "-", a name that begins with "--" (an option whose value is missing), a folder, a
  // place that cannot be written, a FIFO that nobody reads, two requests for one file, a file that
  // is standard output, one of `inputs`, which the command reads, or one that another process is
  // writing; Error(kResources) if the disk is full or descriptors run out. Nothing is created or
  // locked before all of that has been looked at but the last.
  explicit OutputFiles(std::vector<OutputRequest> requests,
                       std::span<const std::filesystem::path> inputs = {});
  // The file of that option; nullptr: not asked for.
  OutputFile* find(std::string_view option);

 private:
  void check_inputs(std::span<const std::filesystem::path> inputs) const;
  std::vector<OutputFile> files_;
};

// Writes one result to several places. A place that fails is reported at once on stderr, and does
// not keep the others from being written.
class OutputWriter {
 public:
  void write(OutputFile* file, std::string_view text);  // nullptr: nothing
  void print(std::string_view text);                    // to stdout
  // kOk, or the code of the first error.
  ExitCode code() const { return code_; }

 private:
  template <class Body>
  void guarded(const Body& body);
  ExitCode code_ = ExitCode::kOk;
};

}  // namespace triforce
