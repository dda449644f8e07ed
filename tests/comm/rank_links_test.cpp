// Bytes between ranks, and what the others see of one that ends, stops or fails.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <thread>

#include "comm/ranks.h"

namespace triforce {
namespace {

using std::chrono::milliseconds;
using testing::RankEnd;
using testing::run_ranks;

std::span<std::byte> bytes_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

// What rank r gives to an operation of n bytes.
std::string part_of_rank(int r, std::size_t n, int salt) {
  std::string part(n, '\0');
  for (std::size_t i = 0; i < n; ++i) {
    part[i] = static_cast<char>(i * 31 + static_cast<std::size_t>(r * 7 + salt));
  }
  return part;
}

// Sizes below, at and far above what a socket holds.
constexpr std::size_t kSizes[] = {1, 40, 16384, 3 << 20, 5};

TEST(RankLinks, AllGatherGivesEveryRankAllPartsInOrder) {
  for (const int size : {1, 2, 3, 5}) {
    const auto ends = run_ranks(size, [&](RankLinks& links) {
      std::string wrong;
      for (const std::size_t n : kSizes) {
        std::string parts(n * static_cast<std::size_t>(size), '\0'), want;
        const auto mine = n * static_cast<std::size_t>(links.shard().rank);
        parts.replace(mine, n, part_of_rank(links.shard().rank, n, 1));
        for (int r = 0; r < size; ++r) want += part_of_rank(r, n, 1);
        links.all_gather(bytes_of(parts));
        if (parts != want) wrong += fmt::format("{} bytes ", n);
      }
      return wrong;
    });
    for (const RankEnd& end : ends) {
      EXPECT_TRUE(end.returned) << end.what;
      EXPECT_EQ(end.value, "") << size;
    }
  }
}

TEST(RankLinks, BroadcastGivesEveryRankWhatRankZeroHas) {
  const auto ends = run_ranks(3, [&](RankLinks& links) {
    std::string wrong;
    for (const std::size_t n : kSizes) {
      std::string bytes = part_of_rank(links.shard().rank, n, 2);
      links.broadcast(bytes_of(bytes));
      if (bytes != part_of_rank(0, n, 2)) wrong += fmt::format("{} bytes ", n);
    }
    int value = 10 + links.shard().rank;
    links.broadcast_value(value);
    return wrong + std::to_string(value);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.value, "10") << end.what;
}

TEST(RankLinks, WaitsForRankZeroAsLongAsItIsThere) {
  const auto ends = run_ranks(
      2,
      [](RankLinks& links) {
        if (links.shard().rank == 0) {
          ::usleep(700'000);
        } else {
          links.await_rank_0();
        }
        int value = links.shard().rank;
        links.broadcast_value(value);
        return std::to_string(value);
      },
      milliseconds(300));
  EXPECT_EQ(ends[0].value, "0") << ends[0].what;
  EXPECT_EQ(ends[1].value, "0") << ends[1].what;
}

// One that works on at something long, with a sign of life or without.
TEST(RankLinks, MeetWaitsTenTimeoutsForASignOfLife) {
  for (const bool signs : {true, false}) {
    const auto ends = run_ranks(
        3,
        [&](RankLinks& links) {
          for (int i = 0; links.shard().rank == 1 && i < 25; ++i) {
            ::usleep(100'000);
            if (signs) links.alive();
          }
          links.meet();
          links.meet();  // signs that nobody waited for are in nobody's way
          int value = links.shard().rank;
          links.broadcast_value(value);
          return std::string("met");
        },
        milliseconds(100));
    for (const std::size_t r : {0U, 1U, 2U}) {
      if (signs) {
        EXPECT_EQ(ends[r].value, "met") << ends[r].what;
      } else if (r != 1) {  // which is killed while it sleeps
        EXPECT_EQ(ends[r].code, ExitCode::kCommunication) << ends[r].what;
        EXPECT_NE(ends[r].what.find("rank 1: expected to hear of it within 1 s"), std::string::npos)
            << ends[r].what;
      }
    }
  }
}

TEST(RankLinks, ACheckEndsAMeeting) {
  const auto ends = run_ranks(2, [&](RankLinks& links) {
    if (links.shard().rank == 1) {
      ::usleep(900'000);
      links.meet();  // rank 0 had said that it was there
      links.meet();
      return std::string("met twice");
    }
    int calls = 0;
    links.check_at_meetings([&] {
      if (++calls == 3) throw Error(ExitCode::kInterrupted, "Interrupted", "stopped");
    });
    links.meet();
    return std::string("met");
  });
  EXPECT_EQ(ends[0].what, "stopped");
  EXPECT_EQ(ends[1].what, "rank 0: it no longer waits for the others");
}

TEST(RankLinks, MeetWaitsAsLongAsAllAreThere) {
  const auto ends = run_ranks(
      3,
      [](RankLinks& links) {
        if (links.shard().rank == 1) ::usleep(700'000);
        links.meet();
        return std::string("met");
      },
      milliseconds(300));
  for (const RankEnd& end : ends) EXPECT_EQ(end.value, "met") << end.what;
}

// Ranks gather until one of them does something else.
std::vector<RankEnd> gather_until(int size, int which, milliseconds timeout,
                                  const std::function<void()>& ends, std::size_t bytes = 64) {
  return run_ranks(
      size,
      [&](RankLinks& links) -> std::string {
        std::string parts(bytes * static_cast<std::size_t>(size), 'x');
        for (int round = 0;; ++round) {
          if (round == 10 && links.shard().rank == which) ends();
          links.all_gather(bytes_of(parts));
        }
      },
      timeout);
}

void expect_named(const RankEnd& end, const std::string& kind, int rank, const std::string& what) {
  EXPECT_EQ(end.code, ExitCode::kCommunication) << what;
  EXPECT_EQ(end.kind, kind) << what << ": " << end.what;
  EXPECT_NE(end.what.find(fmt::format("rank {}: expected", rank)), std::string::npos)
      << what << ": " << end.what;
}

TEST(RankLinks, ARankThatEndsOrIsKilledIsNamedByTheOthers) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{1} << 21}) {
    for (const int which : {1, 2}) {
      for (const bool killed : {false, true}) {
        const auto ends = gather_until(
            3, which, std::chrono::seconds(60), [&] { killed ? std::abort() : ::_exit(0); }, bytes);
        for (const int r : {0, 3 - which}) {
          expect_named(ends[static_cast<std::size_t>(r)], "RankGone", which,
                       fmt::format("rank {}, {} bytes", r, bytes));
        }
        EXPECT_FALSE(ends[static_cast<std::size_t>(which)].returned);
      }
    }
  }
}

TEST(RankLinks, AStoppedRankIsNamedWithinTheTimeout) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ends = gather_until(3, 1, milliseconds(2000), [] { ::raise(SIGSTOP); });
  const auto took = std::chrono::steady_clock::now() - begin;
  for (const std::size_t r : {0U, 2U}) expect_named(ends[r], "RankSilent", 1, std::to_string(r));
  EXPECT_GE(took, milliseconds(2000));
  EXPECT_LT(took, std::chrono::seconds(20));
}

// Rank 2 gives its part to rank 0, but not to rank 1: rank 0 then waits for both, and rank 1, which
// waits for rank 2 alone, is a little more patient.
TEST(RankLinks, ARankThatWaitsForASilentOneIsNotNamed) {
  Descriptor sockets[4][2];  // of ranks 0 and 1, 0 and 2; of 1 and 2, whose other ends nobody holds
  for (auto& pair : sockets) {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    for (int i = 0; i < 2; ++i) pair[i] = Descriptor(fds[i]);
  }
  const auto connected = [](int rank, Descriptor& a, Descriptor& b, milliseconds timeout) {
    std::vector<Descriptor> all(3);
    all[rank == 0 ? 1 : 0] = std::move(a);
    all[rank == 2 ? 1 : 2] = std::move(b);
    return RankLinks({.rank = rank, .size = 3}, std::move(all), timeout);
  };
  RankLinks first = connected(0, sockets[0][0], sockets[1][0], milliseconds(1000)),
            second = connected(1, sockets[0][1], sockets[2][0], milliseconds(1200)),
            third = connected(2, sockets[1][1], sockets[3][0], milliseconds(2500));
  const auto gather_twice = [](RankLinks& links) {
    try {
      for (int i = 0; i < 2; ++i) links.gather_values(links.shard().rank);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  std::string seen_by_second;
  std::thread rank_1([&] { seen_by_second = gather_twice(second); });
  std::thread rank_2([&] { gather_twice(third); });
  const std::string seen_by_first = gather_twice(first);
  rank_1.join();
  rank_2.join();
  const std::string silence = "rank 2: expected to hear of it within 1.2 s, found silence";
  EXPECT_EQ(seen_by_second, silence);
  EXPECT_EQ(seen_by_first, "rank 1: " + silence);
}

TEST(RankLinks, TheFailureOfOneRankIsThrownByAll) {
  const auto ends = gather_until(3, 2, std::chrono::seconds(60),
                                 [] { throw_resources("OutOfMemory", "cannot allocate 7 GB"); });
  for (const std::size_t r : {0U, 1U}) {
    EXPECT_EQ(ends[r].code, ExitCode::kResources);
    EXPECT_EQ(ends[r].kind, "OutOfMemory");
    EXPECT_NE(ends[r].what.find("rank 2: cannot allocate 7 GB"), std::string::npos) << ends[r].what;
  }
}

TEST(RankLinks, OtherRanksEndWithRankZero) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  {
    const Descriptor held(pipe[1]);  // by every rank, as long as it lives
    gather_until(3, 0, std::chrono::seconds(60), [] { ::raise(SIGKILL); });
  }
  const Descriptor read(pipe[0]);
  pollfd fd{read.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&fd, 1, 10'000), 1);
  char byte = 0;
  EXPECT_EQ(::read(read.get(), &byte, 1), 0);  // nobody holds it any more
}

TEST(RankLinks, DifferentOperationsAreRefused) {
  const auto ends = run_ranks(2, [](RankLinks& links) -> std::string {
    std::string parts(links.shard().rank == 0 ? 64 : 32, 'x');
    links.all_gather(bytes_of(parts));
    return "";
  });
  // The first to look names the other; that one may find it gone by then.
  EXPECT_TRUE(ends[0].kind == "RankMismatch" || ends[1].kind == "RankMismatch");
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.code, ExitCode::kCommunication);
    if (end.kind != "RankMismatch") continue;
    EXPECT_NE(end.what.find("bytes of operation 1, found"), std::string::npos) << end.what;
  }
}

TEST(RankLinks, WhatHasFailedStaysFailed) {
  const auto ends = run_ranks(2, [](RankLinks& links) -> std::string {
    if (links.shard().rank == 1) return "left";
    std::string parts(8, 'x');
    std::string lines;
    for (int i = 0; i < 3; ++i) {
      try {
        links.all_gather(bytes_of(parts));
      } catch (const Error& e) {
        lines += std::string(e.what()) + "\n";
      }
    }
    return lines;
  });
  const std::string line = "rank 1: expected it at operation 1, found that it has ended\n";
  EXPECT_EQ(ends[0].value, line + line + line);
}

TEST(RankLinks, ACheckSeesWhoHasGoneOrFailedAndWaitsForNothing) {
  struct Case {
    std::function<void(RankLinks&)> body;  // of rank 1
    std::string says;
  };
  const std::vector<Case> cases = {
      {[](RankLinks& links) { links.meet(); }, ""},
      // Ahead of rank 0: its bytes lie there already.
      {[](RankLinks& links) {
         links.meet();
         std::array<std::byte, 2> parts{};
         links.all_gather(parts);
       },
       ""},
      {[](RankLinks& links) {
         links.meet();
         ::_exit(0);
       },
       "rank 1: expected it at operation 1, found that it has ended"},
      {[](RankLinks& links) {
         links.meet();
         links.fail({ExitCode::kDevice, "Cuda", "a device is gone"});
       },
       "rank 1: a device is gone"},
  };
  for (const Case& c : cases) {
    const auto ends = run_ranks(2, [&](RankLinks& links) -> std::string {
      if (links.shard().rank == 1) {
        c.body(links);
        links.outlast_rank_0(std::chrono::seconds(20));
        return "";
      }
      links.meet();
      std::string said;
      const auto end =
          std::chrono::steady_clock::now() + milliseconds(c.says.empty() ? 300 : 20000);
      while (said.empty() && std::chrono::steady_clock::now() < end) {
        try {
          links.check();
        } catch (const Error& e) {
          said = e.what();
        }
      }
      return said;
    });
    EXPECT_TRUE(ends[0].returned) << ends[0].what;
    EXPECT_EQ(ends[0].value, c.says);
  }
}

}  // namespace
}  // namespace triforce
