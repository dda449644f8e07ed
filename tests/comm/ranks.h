// Runs a body in several processes that are connected as ranks.
#pragma once
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "comm/rank_links.h"
#include "comm/rank_processes.h"

namespace triforce::testing {

// How one rank ended: what its body returned, or the error that it threw, or neither.
struct RankEnd {
  bool returned = false;
  std::string value;
  ExitCode code = ExitCode::kOk;
  std::string kind, what;
};

using RankBody = std::function<std::string(RankLinks&)>;

inline void put(int fd, const std::string& text) { write_all(fd, text, "a rank's report"); }

inline void run_rank(const RankBody& body, RankProcesses& ranks, std::chrono::milliseconds timeout,
                     const Descriptor& report) {
  RankLinks links(ranks.shard(), ranks.take_sockets(), timeout);
  try {
    const std::string value = body(links);
    // Its own expectations: what a process of the test prints is not counted.
    put(report.get(), ::testing::Test::HasFailure() ? "e70\nexpectation\nsee above" : "v" + value);
  } catch (const Error& e) {
    links.fail(e);
    put(report.get(), fmt::format("e{}\n{}\n{}", static_cast<int>(e.code()), e.kind(), e.what()));
  } catch (const std::exception& e) {
    put(report.get(), fmt::format("e70\nexception\n{}", e.what()));
  }
}

inline RankEnd read_end(const Descriptor& report) {
  struct stat status {};
  ::fstat(report.get(), &status);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  EXPECT_EQ(::pread(report.get(), text.data(), text.size(), 0), status.st_size);
  RankEnd end;
  if (text.empty()) return end;
  end.returned = text[0] == 'v';
  if (end.returned) {
    end.value = text.substr(1);
    return end;
  }
  const std::size_t kind = text.find('\n') + 1, what = text.find('\n', kind) + 1;
  end.code = static_cast<ExitCode>(std::stoi(text.substr(1)));
  end.kind = text.substr(kind, what - kind - 1);
  end.what = text.substr(what);
  return end;
}

// The caller has no threads. Rank 0 is a process of its own, too, and gives the others a second
// after its own end. [r] is the end of rank r.
inline std::vector<RankEnd> run_ranks(
    int size, const RankBody& body, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  std::vector<Descriptor> reports;
  for (int r = 0; r < size; ++r) reports.emplace_back(::memfd_create("rank", 0));
  const pid_t leader = ::fork();
  if (leader == 0) {
    {
      RankProcesses ranks = RankProcesses::start(size, timeout);
      run_rank(body, ranks, timeout, reports[static_cast<std::size_t>(ranks.shard().rank)]);
      ranks.join(std::chrono::seconds(1));
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(leader, &status, 0), leader);
  std::vector<RankEnd> ends;
  for (const Descriptor& report : reports) ends.push_back(read_end(report));
  return ends;
}

// Plain values as text that a rank can return, and back.
template <class T>
std::string as_text(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> from_text(const std::string& text) {
  std::vector<T> values(text.size() / sizeof(T));
  std::memcpy(values.data(), text.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace triforce::testing
