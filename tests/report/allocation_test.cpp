// A failed allocation while a result is written or read is an exception and nothing else: results
// of hours exist only in memory until then.
#include <gtest/gtest.h>

#include <new>

#include "allocations.h"
#include "report/golden.h"
#include "report/sample_result.h"
#include "triforce/report.h"

namespace triforce {
namespace {

// Lets allocation after allocation of `call` fail, densely at first. Returns how many there are.
template <class Call>
std::int64_t fail_everywhere(const Call& call) {
  for (std::int64_t n = 0;; n += n < 500 ? 1 : 61) {
    fail_allocation_after(n);
    try {
      call();
      fail_allocation_after(-1);
      return n;
    } catch (const std::bad_alloc&) {
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
