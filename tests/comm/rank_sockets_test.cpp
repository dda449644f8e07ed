// Ranks that were started apart find each other over TCP, and say what they do not have in common.
#include "comm/rank_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>

#include "comm/ranks.h"
#include "comm/same_on_ranks.h"

namespace triforce {
namespace {

using testing::RankEnd;
using testing::run_ranks;

constexpr std::chrono::seconds kLimit{20};

// Connects the ranks once more, the way of those that a launcher started.
Connected connect(RankLinks& links, std::chrono::milliseconds limit = kLimit) {
  return connect_started_ranks(
      links.shard(), [&](std::span<std::byte> parts) { links.all_gather(parts); }, limit);
}

void expect_values(const std::vector<RankEnd>& ends, const std::vector<std::string>& values) {
  for (std::size_t r = 0; r < values.size(); ++r) {
    EXPECT_TRUE(ends[r].returned) << ends[r].what;
    EXPECT_EQ(ends[r].value, values[r]) << r;
  }
}

TEST(RankSockets, EveryRankIsConnectedToEveryOther) {
  const auto ends = run_ranks(4, [](RankLinks& first) {
    Connected connected = connect(first);
    RankLinks links(first.shard(), std::move(connected.sockets), kLimit);
    std::vector<std::uint64_t> parts(4 * 100'000);
    for (std::size_t i = 0; i < 100'000; ++i) {
      const auto rank = static_cast<std::size_t>(links.shard().rank);
      parts[rank * 100'000 + i] = rank * 1'000'000 + i;
    }
    links.all_gather(std::as_writable_bytes(std::span(parts)));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i], i / 100'000 * 1'000'000 + i % 100'000);
    }
    const LocalRank& l = connected.local;
    return fmt::format("{} of {}, {} on cpus, {} machine", l.device, l.devices, l.on_cpus,
                       connected.machines);
  });
  expect_values(ends, {"0 of 4, 4 on cpus, 1 machine", "1 of 4, 4 on cpus, 1 machine",
                       "2 of 4, 4 on cpus, 1 machine", "3 of 4, 4 on cpus, 1 machine"});
}

// The port on which this process listens.
sockaddr_in listening_address() {
  for (int fd = 3; fd < 256; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_in6 address{};
    size = sizeof address;
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_port = address.sin6_port;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return here;
  }
  ADD_FAILURE() << "nothing listens";
  return {};
}

TEST(RankSockets, StrangersAreHungUpOn) {
  const auto ends = run_ranks(2, [](RankLinks& first) -> std::string {
    std::vector<Descriptor> strangers;
    const auto gather = [&](std::span<std::byte> parts) {
      first.all_gather(parts);
      if (first.shard().rank == 0) {
        const sockaddr_in to = listening_address();
        for (const std::size_t bytes : {0U, 7U, 4096U}) {
          const Descriptor& s = strangers.emplace_back(::socket(AF_INET, SOCK_STREAM, 0));
          EXPECT_EQ(::connect(s.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
          const std::string words(bytes, '\1');
          EXPECT_EQ(::send(s.get(), words.data(), bytes, 0), static_cast<ssize_t>(bytes));
          if (bytes < 4096) {
            EXPECT_EQ(::shutdown(s.get(), SHUT_WR), 0);
          }
        }
      }
      first.meet();  // they called before the other rank does
    };
    Connected connected = connect_started_ranks(first.shard(), gather, kLimit);
    RankLinks links(first.shard(), std::move(connected.sockets), kLimit);
    links.meet();
    char byte = 0;
    for (const Descriptor& s : strangers) EXPECT_LE(::recv(s.get(), &byte, 1, 0), 0);
    return "met";
  });
  expect_values(ends, {"met", "met"});
}

TEST(RankSockets, DevicesAreCountedAmongThoseThatSeeTheSame) {
  const auto ends = run_ranks(4, [](RankLinks& links) {
    ::setenv("CUDA_VISIBLE_DEVICES", links.shard().rank < 3 ? "0,1,2" : "3", 1);
    const LocalRank l = connect(links).local;
    return fmt::format("{} of {}, {} on cpus", l.device, l.devices, l.on_cpus);
  });
  expect_values(
      ends, {"0 of 3, 4 on cpus", "1 of 3, 4 on cpus", "2 of 3, 4 on cpus", "0 of 1, 4 on cpus"});
}

TEST(RankSockets, ProcessorsAreSharedByThoseThatMayRunOnThem) {
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one processor";
  const auto ends = run_ranks(3, [&](RankLinks& links) {
    if (links.shard().rank == 2) {
      cpu_set_t one;
      CPU_ZERO(&one);
      for (std::size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
      }
      EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    }
    return fmt::format("{}", connect(links).local.on_cpus);
  });
  expect_values(ends, {"2", "2", "1"});
}

TEST(RankSockets, ARankThatDoesNotConnectIsNamed) {
  // One that never calls, and one that is not there to be called.
  for (const int absent : {2, 0}) {
    const auto ends = run_ranks(3, [&](RankLinks& links) -> std::string {
      if (links.shard().rank == absent) {
        const std::function<void(std::span<std::byte>)> gather = [&](std::span<std::byte> parts) {
          links.all_gather(parts);
          throw Error(ExitCode::kInternal, "Left", "left");
        };
        static_cast<void>(connect_started_ranks(links.shard(), gather, kLimit));
      }
      return connect(links, std::chrono::milliseconds(1500)).sockets.empty() ? "none" : "connected";
    });
    const RankEnd& told = ends[1];
    EXPECT_EQ(told.code, ExitCode::kCommunication) << told.value;
    EXPECT_EQ(told.kind, "RankUnreachable");
    EXPECT_TRUE(told.what.starts_with(
        absent == 2 ? "rank 2: expected to be called by it within 1.5 s, found silence"
                    : "rank 0: expected an answer from port "))
        << told.what;
  }
}

TEST(SameOnRanks, TheFirstDifferenceIsSaidOnAllRanks) {
  struct Case {
    int other;  // the rank with other facts
    RankFacts facts;
    std::string says;
  };
  const RankFacts common = {{"--budget", "256"}, {"--record", ""}, {"--seed", "42"}};
  const std::vector<Case> cases = {
      {1,
       {{"--budget", "64"}, {"--record", ""}, {"--seed", "7"}},
       "--budget: expected the same on all ranks, found 256 on rank 0 and 64 on rank 1"},
      {2,
       {{"--budget", "256"}, {"--record", "all\nof it"}, {"--seed", "42"}},
       "--record: expected the same on all ranks, found none on rank 0 and all\nof it on rank 2"},
      {2,
       {{"--budget", "256"}, {"--record", ""}},
       "--seed: expected the same on all ranks, found 42 on rank 0 and another program on rank 2"},
      {0,
       {{"--budget", "256"}, {"--record", ""}},
       "--seed: expected the same on all ranks, found none on rank 0 and another program on rank "
       "1"},
  };
  for (const Case& c : cases) {
    const auto ends = run_ranks(3, [&](RankLinks& links) -> std::string {
      expect_same(links, common);
      expect_same(links, links.shard().rank == c.other ? c.facts : common);
      return "same";
    });
    for (const RankEnd& end : ends) {
      EXPECT_EQ(end.code, ExitCode::kUsage);
      EXPECT_EQ(end.kind, "RanksDiffer");
      EXPECT_EQ(end.what, c.says);
    }
  }
}

}  // namespace
}  // namespace triforce
