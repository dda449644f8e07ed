#include "triforce/draft_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <queue>
#include <random>

#include "core/strict_json.h"
#include "report/golden.h"
#include "triforce/error.h"

namespace triforce {
namespace {

using Parents = std::vector<std::int16_t>;

Parents parents_of(const DraftTree& tree) { return {tree.parents().begin(), tree.parents().end()}; }

template <class Call>
std::string message_of(const Call& call) {
  const auto error = error_of(ExitCode::kBadInput, call);
  if (!error) return "no error";
  return error->kind() + ": " + error->what();
}

TEST(DraftTree, AChainHasOneNodeALevel) {
  const DraftTree chain = DraftTree::chain(5);
  EXPECT_EQ(parents_of(chain), (Parents{-1, 0, 1, 2, 3}));
  EXPECT_EQ(chain.depth(), 5);
  EXPECT_EQ(chain.max_children(), 1);
  EXPECT_EQ(chain.level(3), (NodeRange{3, 1}));
  EXPECT_EQ(chain.children(4), (NodeRange{5, 0}));
  EXPECT_EQ(chain, DraftTree(Parents{-1, 0, 1, 2, 3}));
  EXPECT_NE(chain, DraftTree::chain(4));
}

TEST(DraftTree, ACombIsAChainWithSiblings) {
  EXPECT_EQ(DraftTree::comb(3, 2), DraftTree(Parents{-1, -1, 0, 0, 2, 2}));
  EXPECT_EQ(DraftTree::comb(4, 1), DraftTree::chain(4));
}

TEST(DraftTree, LevelsChildrenRanksAndPaths) {
  // root: 0 1 2; 0: 3 4; 2: 5; 4: 6
  const DraftTree tree(Parents{-1, -1, -1, 0, 0, 2, 4});
  EXPECT_EQ(tree.nodes(), 7);
  EXPECT_EQ(tree.depth(), 3);
  EXPECT_EQ(tree.max_children(), 3);
  EXPECT_EQ(tree.level(0), (NodeRange{0, 3}));
  EXPECT_EQ(tree.level(1), (NodeRange{3, 3}));
  EXPECT_EQ(tree.level(2), (NodeRange{6, 1}));
  EXPECT_EQ(tree.children(DraftTree::kRoot), (NodeRange{0, 3}));
  EXPECT_EQ(tree.children(0), (NodeRange{3, 2}));
  EXPECT_EQ(tree.children(1).count, 0);
  EXPECT_EQ(tree.children(2), (NodeRange{5, 1}));
  EXPECT_EQ(tree.rank(2), 2);
  EXPECT_EQ(tree.rank(4), 1);
  EXPECT_EQ(tree.rank(5), 0);
  EXPECT_EQ(tree.index_in_level(5), 2);
  EXPECT_EQ(tree.depth_of(6), 2);
  EXPECT_TRUE(std::ranges::equal(tree.path(6), Parents{0, 4, 6}));
}

// Numbers the nodes again by a walk in order of breadth, which knows nothing of how they stand.
bool is_in_order(const Parents& parents) {
  const int n = static_cast<int>(parents.size());
  std::queue<int> next({DraftTree::kRoot});
  int number = 0;
  for (; !next.empty(); next.pop()) {
    for (int i = 0; i < n; ++i) {
      if (parents[static_cast<std::size_t>(i)] != next.front()) continue;
      if (i != number++) return false;
      next.push(i);
    }
  }
  return number == n;  // else there is a cycle, or a parent that is none of the nodes
}

TEST(DraftTree, TakesThatOrderAndNoOther) {
  int taken = 0, refused = 0;
  for (int n = 1; n <= 5; ++n) {
    Parents parents(static_cast<std::size_t>(n), -2);
    for (bool more = true; more;) {
      const bool accepted =
          !error_of(ExitCode::kBadInput, [&] { return DraftTree(parents).nodes(); });
      EXPECT_EQ(accepted, is_in_order(parents)) << testing::PrintToString(parents);
      ++(accepted ? taken : refused);
      more = false;
      for (auto& p : parents) {
        if (more = ++p <= n; more) break;
        p = -2;
      }
    }
  }
  EXPECT_EQ(taken, 1 + 2 + 5 + 14 + 42);  // Catalan's numbers
  EXPECT_GT(refused, 30000);
}

TEST(DraftTree, SaysWhatIsWrong) {
  const auto message = [](const Parents& parents) {
    return message_of([&] { return DraftTree(parents, "t.json").nodes(); });
  };
  EXPECT_EQ(message({}), "InvalidTree: t.json: parents: expected 1 to 1024 nodes, found 0");
  EXPECT_EQ(message(Parents(1025, -1)),
            "InvalidTree: t.json: parents: expected 1 to 1024 nodes, found 1025");
  EXPECT_EQ(message({-1, -2}),
            "InvalidTree: t.json: parents[1]: expected -1 or an earlier node, found -2");
  EXPECT_EQ(message({-1, 2, 1}),
            "InvalidTree: t.json: parents[1]: expected -1 or an earlier node, found 2");
  EXPECT_EQ(message({-1, 0, -1}),
            "InvalidTree: t.json: parents[2]: expected 0 or more, as the node before has, found "
            "-1: nodes stand in order of depth, siblings next to each other and in the order of "
            "their parents");
  Parents deep(64);
  std::iota(deep.begin(), deep.end(), std::int16_t{-1});
  EXPECT_EQ(message(deep),
            "InvalidTree: t.json: parents[63]: expected at most 63 levels, found one more");
  EXPECT_EQ(DraftTree(Parents(1024, -1)).max_children(), 1024);
}

TEST(DraftTree, RandomTreesAgreeWithASearchOfTheirParents) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Parents parents;
    const int n = 1 + static_cast<int>(random() % 200);
    const unsigned step = 1 + random() % 4;
    for (int i = 0; i < n; ++i) {
      const int least = i == 0 ? -1 : parents.back();
      const int most = std::min(i - 1, least + static_cast<int>(random() % step));
      parents.push_back(static_cast<std::int16_t>(std::max(least, most)));
    }
    std::vector<std::vector<std::int16_t>> paths;
    for (int i = 0; i < n; ++i) {
      const int p = parents[static_cast<std::size_t>(i)];
      paths.push_back(p < 0 ? Parents{} : paths[static_cast<std::size_t>(p)]);
      paths.back().push_back(static_cast<std::int16_t>(i));
    }
    if (std::ranges::max(paths, {}, &Parents::size).size() > kMaxTreeDepth) continue;
    const DraftTree tree(parents);
    int levels = 0;
    for (int i = 0; i < n; ++i) {
      const auto& path = paths[static_cast<std::size_t>(i)];
      ASSERT_TRUE(std::ranges::equal(tree.path(i), path)) << "round " << round;
      const int depth = static_cast<int>(path.size()) - 1;
      levels = std::max(levels, depth + 1);
      EXPECT_EQ(tree.depth_of(i), depth);
      const auto before = [&](auto same) {
        int found = 0;
        for (int j = 0; j < i; ++j) found += same(static_cast<std::size_t>(j)) ? 1 : 0;
        return found;
      };
      EXPECT_EQ(tree.rank(i), before([&](std::size_t j) {
                  return parents[j] == parents[static_cast<std::size_t>(i)];
                }));
      EXPECT_EQ(tree.index_in_level(i),
                before([&](std::size_t j) { return paths[j].size() == path.size(); }));
      EXPECT_EQ(tree.children(i).count, std::ranges::count(parents, i));
    }
    EXPECT_EQ(tree.depth(), levels);
  }
}

TEST(DraftTree, AFileIsReadAsItIsWritten) {
  const DraftTree tree = parse_draft_tree(R"({"parents": [-1, -1, 0, 0, 1]})", "t.json");
  EXPECT_EQ(parents_of(tree), (Parents{-1, -1, 0, 0, 1}));
  const std::string text = draft_tree_json(tree, "for short prompts");
  EXPECT_EQ(text, "{\n  \"parents\": [-1, -1, 0, 0, 1],\n  \"note\": \"for short prompts\"\n}\n");
  EXPECT_EQ(parse_draft_tree(text, "t"), tree);
  EXPECT_EQ(parse_draft_tree(draft_tree_json(tree), "t"), tree);
  const auto file = std::filesystem::path(::testing::TempDir()) / "triforce_draft_tree.json";
  std::ofstream(file) << text;
  EXPECT_EQ(read_draft_tree(file), tree);
  expect_golden(draft_tree_schema(), "data/schema/draft-tree.schema.json");
}

TEST(DraftTree, AFileThatIsWrongIsRefused) {
  const auto message = [](const char* text) {
    return message_of([&] { return parse_draft_tree(text, "t.json").nodes(); });
  };
  EXPECT_EQ(message("{}"), "InvalidTree: t.json: parents is missing");
  EXPECT_EQ(message("[-1]"), "InvalidTree: t.json: expected an object, found an array of 1");
  EXPECT_EQ(message(R"({"parents": [-1, 0.0]})"),
            "InvalidTree: t.json: parents[1]: expected an integer in [-32768, 32767], found 0 "
            "(not written as an integer)");
  EXPECT_EQ(message(R"({"parents": [-1, 1]})"),
            "InvalidTree: t.json: parents[1]: expected -1 or an earlier node, found 1");
  EXPECT_EQ(
      message(R"({"parents": [-1], "width": 2})"),
      "InvalidTree: t.json: width: expected no such member (is it of a newer build?), found 2");
  EXPECT_EQ(message_of([] { return read_draft_tree("no.json").nodes(); }).substr(0, 13),
            "FileNotFound:");
}

}  // namespace
}  // namespace triforce
