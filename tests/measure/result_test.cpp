#include "measure/result.h"

#include <gtest/gtest.h>

#include "report/sample_result.h"

namespace triforce {
namespace {

TEST(Digest, OfTokensIsOfLittleEndianWords) {
  // printf '\x01\x00\x00\x00\x00\x01\x00\x00' | sha256sum
  const Token tokens[] = {1, 256};
  EXPECT_EQ(tokens_sha256(tokens),
            "242045e2f1bb37769b514f182fd91b3d215324cb57f187cced1e9c62921dbac3");
}

TEST(RunId, NamesTheStart) {
  const ResultContext c = sample_context();
  const std::string id = make_run_id(c, "1");
  EXPECT_EQ(id.substr(0, 17), "20260131T120000Z-");
  EXPECT_EQ(id.size(), 25U);
  EXPECT_NE(make_run_id(c, "2"), id);
}

}  // namespace
}  // namespace triforce
