// Workers that end well, crash, hang, refuse, or are stopped: what is heard of each case.
#include "sweep/workers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <map>
#include <thread>

namespace triforce {
namespace {

using std::chrono::milliseconds;

struct Heard {
  std::map<std::size_t, std::string> rows, failures, told;
  std::map<std::size_t, ExitCode> codes;
  int workers = 0;
};

Heard run(
    std::vector<std::size_t> cases,
    const std::function<ExitCode(const std::vector<std::size_t>&, WorkerReport&)>& measure,
    milliseconds silence = milliseconds(0),
    std::function<std::optional<int>()> stop = [] { return std::nullopt; },
    milliseconds stop_limit = milliseconds(500)) {
  Heard heard;
  WorkerHooks hooks;
  hooks.measure = measure;
  hooks.on_row = [&](std::size_t i, const std::string& text) {
    EXPECT_TRUE(heard.rows.emplace(i, text).second) << i;
  };
  hooks.on_told = [&](std::size_t i, const std::string& text) {
    heard.told[i] += text;
    if (text == "slow") std::this_thread::sleep_for(milliseconds(100));
  };
  hooks.on_failure = [&](std::size_t i, ExitCode code, const std::string& reason) {
    EXPECT_TRUE(heard.failures.emplace(i, reason).second) << i;
    heard.codes[i] = code;
  };
  hooks.stop_signal = std::move(stop);
  hooks.enough = [&] { return ++heard.workers > 50; };
  run_workers(std::move(cases), hooks, silence, stop_limit);
  return heard;
}

ExitCode report_all(const std::vector<std::size_t>& cases, WorkerReport& report) {
  for (const std::size_t i : cases) {
    report.step(i);
    report.row(i, std::string(300000, static_cast<char>('a' + i)));  // larger than a pipe
  }
  return ExitCode::kOk;
}

// What was told was taken before the worker goes on, so that nothing of it is lost when that dies.
TEST(Workers, WhatIsToldIsTakenAtOnce) {
  const Heard heard = run({0, 1}, [](const auto& cases, WorkerReport& report) {
    report.step(cases.front());
    if (cases.front() == 1) return report_all(cases, report);
    report.tell(0, std::string(300000, 'x'));
    report.tell(0, "slow");
    report.tell(0, "end");
    ::kill(::getpid(), SIGKILL);
    return ExitCode::kOk;
  });
  EXPECT_EQ(heard.told.at(0), std::string(300000, 'x') + "slowend");
  EXPECT_TRUE(heard.failures.contains(0));
  EXPECT_TRUE(heard.rows.contains(1));
}

TEST(Workers, TheWorkerWaitsUntilItIsTaken) {
  const Heard heard = run({0}, [](const auto& /*cases*/, WorkerReport& report) {
    const auto begin = std::chrono::steady_clock::now();
    report.tell(0, "slow");
    const bool waited = std::chrono::steady_clock::now() - begin >= milliseconds(100);
    report.row(0, waited ? "waited" : "did not wait");
    return ExitCode::kOk;
  });
  EXPECT_EQ(heard.rows.at(0), "waited");
}

TEST(Workers, OneDoesAll) {
  const Heard heard = run({0, 1, 2}, report_all);
  EXPECT_EQ(heard.workers, 1);
  EXPECT_TRUE(heard.failures.empty());
  ASSERT_EQ(heard.rows.size(), 3U);
  EXPECT_EQ(heard.rows.at(2), std::string(300000, 'c'));
}

// Case 1 ends its process: it alone fails, and the next worker takes those without a row.
TEST(Workers, ACrashCostsItsCase) {
  const Heard heard = run({0, 1, 2}, [](const auto& cases, WorkerReport& report) {
    for (const std::size_t i : cases) {
      report.step(i);
      if (i == 1) ::raise(SIGKILL);
      report.row(i, "row");
    }
    return ExitCode::kOk;
  });
  EXPECT_EQ(heard.workers, 2);
  EXPECT_EQ(heard.rows.size(), 2U);
  ASSERT_EQ(heard.failures.size(), 1U);
  EXPECT_EQ(heard.failures.at(1), "its process was ended by signal 9 (SIGKILL)");
}

// Rows come when all have ended: then a crash costs the case at work, not those before it.
TEST(Workers, ACrashBeforeAnyRow) {
  const Heard heard = run({0, 1, 2}, [](const auto& cases, WorkerReport& report) {
    for (const std::size_t i : cases) {
      report.step(i);
      if (i == 1) ::_exit(9);
    }
    for (const std::size_t i : cases) report.row(i, "row");
    return ExitCode::kOk;
  });
  EXPECT_EQ(heard.workers, 2);
  EXPECT_EQ(heard.rows.size(), 2U);
  EXPECT_EQ(heard.failures.at(1), "its process ended with status 9 before it had a result");
  EXPECT_EQ(heard.codes.at(1), static_cast<ExitCode>(9));
}

TEST(Workers, ACrashThatIsNobodysFailsAll) {
  const Heard heard = run({3, 4}, [](const auto&, WorkerReport&) {
    ::raise(SIGKILL);
    return ExitCode::kOk;
  });
  EXPECT_EQ(heard.workers, 1);
  EXPECT_EQ(heard.failures.size(), 2U);
}

// One that reports some and ends in good order leaves the others to the next.
TEST(Workers, WhatIsLeftIsTheNextOnes) {
  const Heard heard = run({0, 1, 2, 3}, [](const auto& cases, WorkerReport& report) {
    report.step(cases.front());
    report.row(cases.front(), "row");
    return ExitCode::kDevice;
  });
  EXPECT_EQ(heard.workers, 4);
  EXPECT_EQ(heard.rows.size(), 4U);
  EXPECT_TRUE(heard.failures.empty());
}

TEST(Workers, ARefusalIsOfAll) {
  const Heard heard = run({0, 1}, [](const auto&, WorkerReport& report) {
    report.refuse(ExitCode::kBadInput, "no such file");
    return ExitCode::kBadInput;
  });
  EXPECT_EQ(heard.failures.at(0), "no such file");
  EXPECT_EQ(heard.codes.at(1), ExitCode::kBadInput);
}

TEST(Workers, SilenceIsAHang) {
  const Heard heard = run(
      {0, 1, 2},
      [](const auto& cases, WorkerReport& report) {
        for (const std::size_t i : cases) {
          report.step(i);
          if (i == 1) std::this_thread::sleep_for(std::chrono::minutes(10));
          report.row(i, "row");
        }
        return ExitCode::kOk;
      },
      milliseconds(300));
  EXPECT_EQ(heard.rows.size(), 2U);
  EXPECT_EQ(heard.failures.at(1), "its process was silent for 0 s and was ended");
  EXPECT_EQ(heard.codes.at(1), ExitCode::kInconclusive);
}

// Steps come faster than they are sent, and a long case that speaks is not silent.
TEST(Workers, WhoSpeaksIsNotSilent) {
  const Heard heard = run(
      {0},
      [](const auto&, WorkerReport& report) {
        for (int i = 0; i < 400; ++i) {
          report.step(0);
          std::this_thread::sleep_for(milliseconds(5));
        }
        report.row(0, "row");
        return ExitCode::kOk;
      },
      milliseconds(1000));
  EXPECT_EQ(heard.rows.size(), 1U);
}

// A stop is passed on; what the worker still reports counts, and one that does not end is ended.
TEST(Workers, AStopIsPassedOn) {
  const auto begin = std::chrono::steady_clock::now();
  const auto stop = [&]() -> std::optional<int> {
    if (std::chrono::steady_clock::now() - begin < milliseconds(200)) return std::nullopt;
    return SIGUSR1;
  };
  static volatile std::sig_atomic_t stopped = 0;
  const Heard heard = run(
      {0, 1},
      [](const auto&, WorkerReport& report) {
        std::signal(SIGUSR1, [](int) { stopped = 1; });
        while (stopped == 0) std::this_thread::sleep_for(milliseconds(1));
        report.row(0, "partial");
        std::this_thread::sleep_for(std::chrono::minutes(10));  // and does not end
        return ExitCode::kOk;
      },
      milliseconds(0), stop);
  EXPECT_EQ(heard.workers, 1);
  EXPECT_EQ(heard.rows.at(0), "partial");
  EXPECT_TRUE(heard.failures.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// Processes that a worker started end with it.
TEST(Workers, TheGroupEndsToo) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  run({0}, [&](const auto&, WorkerReport& report) -> ExitCode {
    report.step(0);
    if (::fork() == 0) std::this_thread::sleep_for(std::chrono::minutes(10));
    ::_exit(1);
  });
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // nobody holds the other end
  ::close(ends[0]);
}

}  // namespace
}  // namespace triforce
