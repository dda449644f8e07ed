#include "cpu/shares.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cpu/cpu_test_support.h"
#include "triforce/error.h"

namespace triforce::cpu {
namespace {

TEST(Shares, EveryIndexIsTakenOnce) {
  for (const int threads : {1, 2, 3, 7, 64, 65, 200}) {
    for (const std::int64_t count : {0, 1, 2, 9, 64, 199, 5000}) {
      Shares shares(count, threads);
      std::vector<int> taken(static_cast<std::size_t>(count));
      std::vector<bool> done(static_cast<std::size_t>(threads));
      // The threads in turns of uneven length.
      for (int left = threads, turn = 0; left > 0; ++turn) {
        const int thread = turn % threads;
        for (int i = 0; i <= thread % 3 && !done[static_cast<std::size_t>(thread)]; ++i) {
          const IndexRange run = shares.take(thread);
          if (run.begin == run.end) {
            done[static_cast<std::size_t>(thread)] = true;
            --left;
          }
          for (std::int64_t at = run.begin; at < run.end; ++at) {
            ++taken.at(static_cast<std::size_t>(at));
          }
        }
      }
      EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), count) << count << ", " << threads;
    }
  }
}

TEST(Shares, AThreadBeginsInAPartOfItsOwn) {
  Shares shares(100, 4);
  for (const int thread : {2, 0, 3, 1}) EXPECT_EQ(shares.take(thread).begin, 25 * thread);
}

TEST(Shares, ThreadsAtTheSameTimeTakeEachIndexOnce) {
  const Workers workers{.isa = Isa::kScalar, .threads = 4, .scratch = {}};
  for (int repetition = 0; repetition < 200; ++repetition) {
    std::vector<std::atomic<int>> taken(997);
    parallel_for(workers, 997, [&](std::int64_t i, int thread) {
      EXPECT_LT(thread, 4);
      ++taken[static_cast<std::size_t>(i)];
    });
    for (const auto& times : taken) ASSERT_EQ(times, 1);
  }
}

// One index waits for nine tenths of all, more than the other thread has in its own share.
TEST(Shares, AnotherThreadTakesWhatASlowOneHasNotBegun) {
  const Workers workers{.isa = Isa::kScalar, .threads = 2, .scratch = {}};
  constexpr std::int64_t kCount = 1000;
  std::atomic<std::int64_t> done{0};
  std::atomic<std::int64_t> waited_for{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  parallel_for(workers, kCount, [&](std::int64_t i, int) {
    if (i == 0) {
      // What a thread has taken at once it must run itself.
      while (done < kCount * 9 / 10 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
      waited_for = done.load();
    }
    ++done;
  });
  EXPECT_EQ(done, kCount);
  EXPECT_GE(waited_for, kCount * 9 / 10);
}

TEST(Shares, TooManyIndicesAreRefused) { EXPECT_THROW(Shares(std::int64_t{1} << 32, 2), Error); }

}  // namespace
}  // namespace triforce::cpu
