#include "triforce/acceptance_vector.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "report/golden.h"
#include "triforce/error.h"

namespace triforce {
namespace {

using Table = std::vector<std::vector<std::int64_t>>;

AcceptanceVector sample() {
  AcceptanceVector v;
  v.add(0, 3, 0);
  v.add(1, 2, 1);
  v.add(2, 1, std::nullopt);
  v.add(0, 3, 2);
  v.add(1, 1, 0);
  v.add(0, 3, std::nullopt);
  return v;
}

TEST(AcceptanceVector, CountsEveryChildOfAReachedNode) {
  const AcceptanceVector v = sample();
  EXPECT_EQ(v.tested, (Table{{3, 3, 3}, {2, 1}, {1}}));
  EXPECT_EQ(v.accepted, (Table{{1, 0, 1}, {1, 1}, {0}}));
  const ChildRates rates = v.rates();
  for (const int depth : {0, 1, 50}) {
    EXPECT_DOUBLE_EQ(rates.at(depth, 0), 2.0 / 6);
    EXPECT_DOUBLE_EQ(rates.at(depth, 1), 1.0 / 4);
    EXPECT_DOUBLE_EQ(rates.at(depth, 2), 1.0 / 3);
    EXPECT_EQ(rates.at(depth, 3), 0);
  }
}

TEST(AcceptanceVector, RatesByDepthFallBackOnThoseOfAllDepths) {
  const ChildRates rates = sample().rates_by_depth();
  EXPECT_DOUBLE_EQ(rates.at(0, 0), 1.0 / 3);
  EXPECT_DOUBLE_EQ(rates.at(1, 0), 1.0 / 2);
  EXPECT_DOUBLE_EQ(rates.at(1, 1), 1.0);
  EXPECT_DOUBLE_EQ(rates.at(1, 2), 1.0 / 3);  // never tested there
  EXPECT_EQ(rates.at(2, 0), 0);
  EXPECT_DOUBLE_EQ(rates.at(2, 1), 1.0 / 4);
  EXPECT_EQ(rates.at(7), rates.at(2));
  const AcceptanceVector zero{{{4, 0}, {2, 2}}, {{2, 0}, {0, 1}}};  // as a file may have it
  EXPECT_DOUBLE_EQ(zero.rates_by_depth().at(0, 1), 1.0 / 2);
}

TEST(AcceptanceVector, OfNothingAcceptsNothing) {
  EXPECT_EQ(AcceptanceVector{}.rates().at(0, 0), 0);
  EXPECT_EQ(AcceptanceVector{}.rates_by_depth().at(5, 0), 0);
}

TEST(AcceptanceVector, MergingEqualsCountingTogether) {
  std::mt19937 random(5);
  AcceptanceVector parts[2], both;
  for (int i = 0; i < 200; ++i) {
    const int depth = static_cast<int>(random() % 6), children = 1 + static_cast<int>(random() % 5);
    std::optional<int> rank = static_cast<int>(random() % 7);
    if (*rank >= children) rank.reset();
    parts[random() % 2].add(depth, children, rank);
    both.add(depth, children, rank);
  }
  parts[0].merge(parts[1]);
  EXPECT_EQ(parts[0].tested, both.tested);
  EXPECT_EQ(parts[0].accepted, both.accepted);
}

TEST(AcceptanceVector, AFileIsReadAsItIsWritten) {
  const AcceptanceVector v = sample();
  const std::string text = acceptance_vector_json(v);
  EXPECT_EQ(text, R"({
  "schema": "triforce-bench.acceptance-vector/1",
  "tested": [
    [3, 3, 3],
    [2, 1],
    [1]
  ],
  "accepted": [
    [1, 0, 1],
    [1, 1],
    [0]
  ],
  "rates": [0.3333333333333333, 0.25, 0.3333333333333333]
}
)");
  std::ofstream("vector.json") << text;
  const AcceptanceVector back = read_acceptance_vector("vector.json");
  EXPECT_EQ(back.tested, v.tested);
  EXPECT_EQ(back.accepted, v.accepted);
  EXPECT_TRUE(
      parse_acceptance_vector(acceptance_vector_json(AcceptanceVector{}), "v").tested.empty());
  expect_golden(acceptance_vector_schema(), "data/schema/acceptance-vector.schema.json");
}

std::string message_of(const std::string& tested, const std::string& accepted,
                       const std::string& rates) {
  const std::string text = R"({"schema": "triforce-bench.acceptance-vector/1", "tested": )" +
                           tested + R"(, "accepted": )" + accepted + R"(, "rates": )" + rates + "}";
  const auto error =
      error_of(ExitCode::kBadInput, [&] { parse_acceptance_vector(text, "v.json"); });
  return error ? error->kind() + ": " + error->what() : "no error";
}

TEST(AcceptanceVector, CountersThatContradictEachOtherAreRefused) {
  EXPECT_EQ(message_of("[[4, 2]]", "[[1, 1]]", "[0.25, 0.5]"), "no error");
  const std::string kind = "InvalidAcceptanceVector: v.json: ";
  EXPECT_EQ(message_of("[[4, 2]]", "[]", "[0.0, 0.0]"),
            kind + "accepted: expected 1 depths, as tested has, found 0");
  EXPECT_EQ(message_of("[[4, 2]]", "[[1]]", "[0.25, 0.0]"),
            kind + "accepted[0]: expected 2 ranks, as tested has, found 1");
  EXPECT_EQ(message_of("[[4], [2, 3]]", "[[2], [0, 0]]", "[0.3333333333333333, 0.0]"),
            kind +
                "tested[1][1]: expected 0 to 2, as nodes have no child without those before it, "
                "found 3");
  EXPECT_EQ(message_of("[[4, 4]]", "[[3, 2]]", "[0.75, 0.5]"),
            kind +
                "accepted[0][1]: expected 0 to 1, as a node has one accepted child at most, "
                "found 2");
  EXPECT_EQ(message_of("[[4]]", "[[-1]]", "[-0.25]"),
            kind +
                "accepted[0][0]: expected 0 to 4, as a node has one accepted child at most, "
                "found -1");
  EXPECT_EQ(
      message_of("[[4]]", "[[1]]", "[0.5]"),
      kind + "rates: expected [0.25], which follows from what stands beside, found an array of 1");
}

}  // namespace
}  // namespace triforce
