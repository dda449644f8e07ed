// Files that results go to: what is refused before any work, and that writing loses nothing.
#include "app/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "app/signals.h"
#include "core/file.h"

namespace triforce {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "triforce-output-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return path(name);
  }
  static std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  fs::path dir_;
};

// What the Error says; its code must be `code`.
template <class Call>
std::string error(const Call& call, ExitCode code) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}
std::string refusal(std::vector<OutputRequest> requests) {
  return error([&] { OutputFiles files(std::move(requests)); }, ExitCode::kUsage);
}

// Claims one file and writes to it.
void write_once(const std::string& path, std::string_view text,
                OutputMode mode = OutputMode::kReplace) {
  OutputFiles files(std::vector<OutputRequest>{{"--out", path, mode}});
  files.find("--out")->write(text);
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsRefusedAtOnceByItsName) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  fs::create_symlink("loop", dir_ / "loop");
  for (const auto& [name, says] : std::vector<std::pair<std::string, std::string>>{
           {"-", "--output-format"},
           {"--verbose", "expected a file name"},
           {path("no/out"), "No such file or directory"},
           {dir_.string(), "a folder"},
           {path(""), "a folder"},
           {path("fifo"), "nobody reads it"},
           {path("loop"), "Too many levels"},
           {path(std::string(256, 'n')), "File name too long"},
           {write("file", "x") + "/out", "Not a directory"}}) {
    for (const OutputMode mode : {OutputMode::kReplace, OutputMode::kAppend}) {
      const std::string message = refusal({{"--json", name, mode}});
      EXPECT_EQ(message.find("--json: expected a file"), 0U) << message;
      EXPECT_NE(message.find(says), std::string::npos) << message;
      EXPECT_NE(message.find('"' + name + '"'), std::string::npos) << message;
    }
  }
  EXPECT_EQ(files(), 3U);  // nothing was left behind
}

TEST_F(OutputFileTest, TwoOutputsOfOneFileAreRefused) {
  const std::string file = write("old", "old");
  fs::create_symlink("old", dir_ / "soft");
  fs::create_symlink("absent", dir_ / "soft_absent");
  fs::create_hard_link(file, dir_ / "hard");
  for (const auto& [a, b] :
       std::vector<std::pair<std::string, std::string>>{{"old", "old"},
                                                        {"old", "./old"},
                                                        {"old", "soft"},
                                                        {"old", "hard"},
                                                        {"absent", "absent"},
                                                        {"absent", "./absent"},
                                                        {"absent", "soft_absent"}}) {
    for (const OutputMode mode : {OutputMode::kReplace, OutputMode::kAppend}) {
      const std::string message = refusal({{"--json", path(a)}, {"--csv", path(b), mode}});
      EXPECT_EQ(message.find("--json and --csv: expected two files"), 0U) << message;
    }
  }
  EXPECT_EQ(read(file), "old");
  EXPECT_EQ(files(), 4U);
  OutputFiles both(std::vector<OutputRequest>{{"--json", "/dev/null"}, {"--csv", "/dev/null"}});
}

TEST_F(OutputFileTest, InputsAreRefused) {
  const std::string input = write("input", "precious");
  fs::create_symlink("input", dir_ / "link");
  const std::size_t before = files();
  for (const OutputMode mode : {OutputMode::kReplace, OutputMode::kAppend}) {
    const std::vector<fs::path> inputs = {path("absent"), input};
    const std::string message = error(
        [&] {
          OutputFiles(
              std::vector<OutputRequest>{{"--csv", path("other")}, {"--json", path("link"), mode}},
              inputs);
        },
        ExitCode::kUsage);
    EXPECT_NE(message.find("does not read"), std::string::npos) << message;
    EXPECT_EQ(files(), before);  // nothing was claimed yet
  }
  EXPECT_EQ(read(input), "precious");
}

// Somebody else is appending: a signal ends the wait, and nothing is written.
TEST_F(OutputFileTest, ASignalEndsTheWaitForAnotherWriter) {
  const std::string file = write("lines", "old\n");
  const Descriptor other = open_fd(file, O_RDWR);
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    install_signal_handlers();
    OutputFiles claimed(std::vector<OutputRequest>{{"--jsonl", file, OutputMode::kAppend}});
    try {
      claimed.find("--jsonl")->write("new\n");
    } catch (const Error& e) {
      ::_exit(static_cast<int>(e.code()));
    }
    ::_exit(0);
  }
  int status = 0;
  ::usleep(200000);
  ASSERT_EQ(::waitpid(child, &status, WNOHANG), 0);  // it waits
  ::kill(child, SIGTERM);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_EQ(read(file), "old\n");
}

TEST_F(OutputFileTest, ReplacesWholeFilesAndLeavesNothingBehind) {
  const std::string file = path("out.json");
  {
    OutputFiles claimed(std::vector<OutputRequest>{{"--json", file}});
    EXPECT_FALSE(fs::exists(file));
    OutputFile* out = claimed.find("--json");
    ASSERT_NE(out, nullptr);
    EXPECT_EQ(claimed.find("--csv"), nullptr);
    EXPECT_TRUE(out->replaceable());
    out->write("one, longer");
    EXPECT_EQ(read(file), "one, longer");
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    out->write("two");
    EXPECT_EQ(read(file), "two");
  }
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(files(), 1U);
  // Links keep pointing where they did, also to a file that is not there yet.
  for (const char* name : {"out.json", "new.json"}) {
    const fs::path link = dir_ / (std::string("link to ") + name);
    fs::create_symlink(name, link);
    write_once(link.string(), "three");
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(read(dir_ / name), "three");
  }
  // The longest name there may be.
  const std::string longest = path(std::string(255, 'n'));
  write_once(longest, "four");
  EXPECT_EQ(read(longest), "four");
  EXPECT_EQ(files(), 5U);
}

TEST_F(OutputFileTest, NothingIsTouchedBeforeTheFirstWrite) {
  const std::string old = write("old", "old");
  {
    OutputFiles claimed(
        std::vector<OutputRequest>{{"--json", old},
                                   {"--csv", path("new.csv")},
                                   {"--jsonl", path("new.jsonl"), OutputMode::kAppend}});
    EXPECT_EQ(read(old), "old");
  }
  EXPECT_EQ(read(old), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFileTest, AFullDiskIsReportedAndTheOldFileStays) {
  OutputFiles device(std::vector<OutputRequest>{{"--json", "/dev/full"}});
  EXPECT_FALSE(device.find("--json")->replaceable());
  EXPECT_NE(error([&] { device.find("--json")->write("x"); }, ExitCode::kResources)
                .find("/dev/full: cannot write: No space"),
            std::string::npos);
  // Real files on a "disk" of 1,000 bytes.
  const std::string file = write("out", "old"), lines = write("lines", "first\n");
  {
    OutputFiles claimed(
        std::vector<OutputRequest>{{"--json", file}, {"--jsonl", lines, OutputMode::kAppend}});
    struct rlimit before {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small { 1000, before.rlim_max };
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    for (const char* option : {"--json", "--jsonl"}) {
      error([&] { claimed.find(option)->write(std::string(5000, 'x')); }, ExitCode::kResources);
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(read(file), "old");
    EXPECT_EQ(read(lines), "first\n");
    claimed.find("--json")->write("new");  // there is room again
  }
  EXPECT_EQ(read(file), "new");
  EXPECT_EQ(files(), 2U);
}

TEST_F(OutputFileTest, AppendsWholeLines) {
  const std::string file = path("out.jsonl");
  for (const char* line : {"one\n", "two\n"}) {
    write_once(file, line, OutputMode::kAppend);
  }
  EXPECT_EQ(read(file), "one\ntwo\n");
  // After a line that a crash cut short.
  std::ofstream(file, std::ios::app) << "{\"cut";
  write_once(file, "three\n", OutputMode::kAppend);
  EXPECT_EQ(read(file), "one\ntwo\n{\"cut\nthree\n");
}

TEST_F(OutputFileTest, ASecondWriterIsRefused) {
  const std::string file = path("out");
  OutputFiles first(std::vector<OutputRequest>{{"--json", file}});
  const auto busy = [&] {
    EXPECT_NE(refusal({{"--json", file}}).find("another process writes it"), std::string::npos);
  };
  busy();
  first.find("--json")->write("one");
  busy();
  first.find("--json")->write("two");
  busy();
  EXPECT_EQ(read(file), "two");
  // Appending is open to all.
  OutputFiles a(std::vector<OutputRequest>{{"--jsonl", path("lines"), OutputMode::kAppend}});
  OutputFiles b(std::vector<OutputRequest>{{"--jsonl", path("lines"), OutputMode::kAppend}});
  a.find("--jsonl")->write("a\n");
  b.find("--jsonl")->write("b\n");
  EXPECT_EQ(read(path("lines")), "a\nb\n");
}

TEST_F(OutputFileTest, AKilledWriterLeavesNoObstacle) {
  const std::string file = path("out");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    OutputFiles claimed(std::vector<OutputRequest>{{"--json", file}});
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(files(), 1U);  // what it claimed the place with
  write_once(file, "mine");
  EXPECT_EQ(read(file), "mine");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFileTest, PipesAreWrittenDirectly) {
  const std::string fifo = path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  {
    OutputFiles claimed(std::vector<OutputRequest>{{"--json", fifo}});
    EXPECT_FALSE(claimed.find("--json")->replaceable());
    claimed.find("--json")->write("through");
  }
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  EXPECT_STREQ(text, "through");
  ::close(reader);
}

TEST_F(OutputFileTest, OneFailureKeepsTheOthers) {
  OutputFiles claimed(
      std::vector<OutputRequest>{{"--json", "/dev/full"}, {"--csv", path("out.csv")}});
  OutputWriter out;
  out.write(claimed.find("--json"), "result");
  out.write(claimed.find("--csv"), "result");
  out.write(claimed.find("--jsonl"), "result");
  EXPECT_EQ(out.code(), ExitCode::kResources);
  EXPECT_EQ(read(path("out.csv")), "result");
}

}  // namespace
}  // namespace triforce
