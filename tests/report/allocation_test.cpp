// A failed allocation while a result is written or read is an exception and nothing else: results
// of hours exist only in memory until then.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "report/golden.h"
#include "report/sample_result.h"
#include "triforce/report.h"

namespace {
// Allocations until one fails; negative: none does.
std::int64_t g_left = -1;

void* allocate(std::size_t bytes) {
  if (g_left >= 0 && g_left-- == 0) throw std::bad_alloc();
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes); p != nullptr) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t /*bytes*/) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t /*bytes*/) noexcept { std::free(p); }

namespace triforce {
namespace {

// Lets allocation after allocation of `call` fail, densely at first. Returns how many there are.
template <class Call>
std::int64_t fail_everywhere(const Call& call) {
  for (std::int64_t n = 0;; n += n < 500 ? 1 : 61) {
    g_left = n;
    try {
      call();
      g_left = -1;
      return n;
    } catch (const std::bad_alloc&) {
      g_left = -1;
    }
  }
}

TEST(FailedAllocation, OfWriters) {
  const RunResult result = sample_result();
  EXPECT_GT(fail_everywhere([&] { to_json(result); }), 10);
  EXPECT_GT(fail_everywhere([&] { to_jsonl(result); }), 10);
  EXPECT_GT(fail_everywhere([&] { to_csv(result); }), 100);
  EXPECT_GT(fail_everywhere([&] { to_table(result); }), 100);
  EXPECT_GT(fail_everywhere([&] { result_schema(); }), 100);
}

TEST(FailedAllocation, OfACopy) {
  const RunResult result = sample_result();
  EXPECT_GT(fail_everywhere([&] { const RunResult copy = result; }), 20);
}

TEST(FailedAllocation, OfTheReader) {
  const std::string text =
      read_text(std::string(TF_SOURCE_DIR) + "/tests/report/golden/result.json");
  EXPECT_GT(fail_everywhere([&] { read_json_result(text, "r.json"); }), 1000);
}

}  // namespace
}  // namespace triforce
