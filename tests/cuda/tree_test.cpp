// Attention over draft trees: every row has the bits of the last row of the chain that it ends.
#include <algorithm>
#include <numeric>
#include <random>

#include "cuda/kv_test_support.h"
#include "kernels/kernels.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

using Halves = std::vector<std::uint16_t>;
using Parents = std::vector<std::int32_t>;

constexpr std::int64_t kSplit = 128;

struct Shape {
  DType type = DType::kF16;
  int group = 1, kv_heads = 1, d = 64;
  std::int64_t capacity = 320;
  bool rotate = false;

  int heads() const { return group * kv_heads; }
  std::size_t width() const { return count(heads(), d); }
  std::size_t cache_elements() const { return count(kv_heads * capacity, d); }
};

// Of a sequence of `before` rows and a tree the last `rows` are attended with; 0: it has no rows.
struct Sequence {
  std::int32_t before = 0;
  Parents parents;
  int rows = 0;

  int tree_rows() const { return static_cast<int>(parents.size()); }
  std::int32_t length() const { return rows == 0 ? 0 : before + tree_rows(); }
  // The rows that row `row` sees, in order.
  std::vector<int> seen_by(int row) const {
    std::vector<int> seen(static_cast<std::size_t>(std::min(row + 1, before)));
    std::iota(seen.begin(), seen.end(), 0);
    for (int i = row - before; i >= 0; i = parents[static_cast<std::size_t>(i)]) {
      seen.insert(seen.begin() + std::min(row + 1, before), before + i);
    }
    return seen;
  }
  bool is_leaf(int node) const { return std::ranges::find(parents, node) == parents.end(); }
};

// The first `chain` of n rows follow each other, the next ones any before them.
Parents random_tree(int n, int chain, unsigned seed) {
  std::mt19937 random(seed);
  Parents parents(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    parents[static_cast<std::size_t>(i)] =
        i < chain ? i - 1 : std::uniform_int_distribution<int>(-1, i - 1)(random);
  }
  return parents;
}

// Keys or values [lane, kv_head][row][d] as they lie on the device.
OnDevice<std::uint16_t> on_device(CudaAllocator& a, const Shape& s, const Halves& plain) {
  Halves swizzled(plain.size());
  const std::int64_t rows = std::ssize(plain) / s.d;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t of_head = row % s.capacity, first = (row - of_head) * s.d;
    for (int j = 0; j < s.d; ++j) {
      swizzled[static_cast<std::size_t>(first + kv_element(of_head, j, s.d))] =
          plain[static_cast<std::size_t>(row * s.d + j)];
    }
  }
  return {a, swizzled};
}

// A call over sequences of equally many rows, padding among them. parents: of all, or null.
Halves attend(CudaAllocator& a, const Shape& s, const RopeView& rope, const Halves& k,
              const Halves& v, const Halves& q, std::span<const Sequence> sequences, bool tree) {
  const auto lanes = static_cast<int>(sequences.size());
  const auto tokens = std::ssize(q) / lanes / static_cast<std::int64_t>(s.width());
  std::vector<std::int32_t> numbers;
  for (const Sequence& one : sequences) numbers.push_back(one.length());
  for (const Sequence& one : sequences) numbers.push_back(one.rows);
  for (const Sequence& one : sequences) {
    numbers.insert(numbers.end(), one.parents.begin(), one.parents.end());
  }
  const OnDevice<std::int32_t> there(a, numbers);
  const auto keys = on_device(a, s, k), values = on_device(a, s, v);
  const OnDevice<std::uint16_t> queries(a, q), out(a, Halves(q.size()));
  KvLanes all;
  all.kv = {.k = keys.data(),
            .v = values.data(),
            .format = {s.type, s.rotate},
            .kv_heads = s.kv_heads,
            .layer_heads = s.kv_heads,
            .head_dim = s.d,
            .capacity = s.capacity,
            .head_stride = s.capacity * s.d,
            .length = there.data(),
            .appended = there.data() + lanes};
  all.step = static_cast<std::int64_t>(s.cache_elements());
  all.count = lanes;
  if (tree) {
    all.kv.parents = there.data() + 2 * lanes;
    all.kv.tree_rows = sequences.front().tree_rows();
  }
  const std::int64_t bytes =
      lanes * attention_bytes(tokens, s.heads(), s.kv_heads, s.d, s.capacity, kSplit, false, tree);
  // NaN wherever nothing is written.
  const OnDevice<std::uint16_t> workspace(a, Halves(count(bytes, 1) / 2, 0xFFFF));
  const OnDevice<unsigned> arrivals(a, std::vector<unsigned>(count(lanes, s.kv_heads)));
  attention(make_view(queries.data(), s.type, {lanes * tokens, s.heads(), s.d}), all, rope,
            make_view(out.data(), s.type, {lanes * tokens, s.heads() * s.d}), {}, 0, kSplit,
            {reinterpret_cast<std::byte*>(workspace.data()), count(bytes, 1)}, arrivals.data(),
            nullptr);
  return out.values();
}

// Rows of each head of a lane in another order: those named, then what was there.
Halves reordered(const Shape& s, const Halves& cache, int lane, const std::vector<int>& rows) {
  const auto first = static_cast<std::ptrdiff_t>(s.cache_elements()) * lane;
  const auto d = static_cast<std::ptrdiff_t>(s.d);
  Halves out(cache.begin() + first,
             cache.begin() + first + static_cast<std::ptrdiff_t>(s.cache_elements()));
  for (int head = 0; head < s.kv_heads; ++head) {
    const std::ptrdiff_t at = head * s.capacity * d;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto from = cache.begin() + first + at + rows[i] * d;
      std::copy(from, from + d, out.begin() + at + static_cast<std::ptrdiff_t>(i) * d);
    }
  }
  return out;
}

class TreeTest : public ::testing::TestWithParam<DType> {
 protected:
  // All rows of a call against those of chains to every leaf.
  void expect_chains(Shape s, const std::vector<Sequence>& sequences) {
    s.type = GetParam();
    SCOPED_TRACE(fmt::format("group {} of {} heads, d {}{}, {} sequences, {} rows of trees",
                             s.group, s.kv_heads, s.d, s.rotate ? " rotate" : "", sequences.size(),
                             sequences.front().tree_rows()));
    const std::size_t lanes = sequences.size();
    const auto random = [&](std::size_t n, unsigned seed) {
      return to_halves(normals(n, seed), s.type);
    };
    int tokens = 0;
    for (const Sequence& one : sequences) tokens = std::max(tokens, one.rows);
    const Halves k = random(lanes * s.cache_elements(), 1), v = random(k.size(), 2),
                 q = random(lanes * s.width() * static_cast<std::size_t>(tokens), 3);
    const TestRope rope(a_, s.capacity, s.d, 4);
    const Halves all = attend(a_, s, rope.device(), k, v, q, sequences, true);
    for (int lane = 0; lane < static_cast<int>(lanes); ++lane) {
      const Sequence& one = sequences[static_cast<std::size_t>(lane)];
      std::vector<bool> compared(static_cast<std::size_t>(one.rows));
      for (int node = one.tree_rows() - 1; node >= 0 && one.rows > 0; --node) {
        if (!one.is_leaf(node)) continue;
        const std::vector<int> rows = one.seen_by(one.before + node);
        const int first_query = one.length() - one.rows;
        const auto begin = std::ranges::lower_bound(rows, first_query);
        const Sequence chain{
            static_cast<std::int32_t>(rows.size()), {}, static_cast<int>(rows.end() - begin)};
        if (chain.rows == 0) continue;
        const auto place_of = [&](int row) {
          return static_cast<std::ptrdiff_t>(s.width()) *
                 ((lane + 1) * tokens - one.length() + row);
        };
        const auto width = static_cast<std::ptrdiff_t>(s.width());
        Halves queries, expected;
        for (auto row = begin; row != rows.end(); ++row) {
          queries.insert(queries.end(), q.begin() + place_of(*row),
                         q.begin() + place_of(*row) + width);
          expected.insert(expected.end(), all.begin() + place_of(*row),
                          all.begin() + place_of(*row) + width);
          compared[static_cast<std::size_t>(*row - first_query)] = true;
        }
        ASSERT_EQ(attend(a_, s, rope.device(), reordered(s, k, lane, rows),
                         reordered(s, v, lane, rows), queries, std::span(&chain, 1), false),
                  expected)
            << "sequence " << lane << ", the chain to node " << node;
      }
      EXPECT_EQ(std::ranges::count(compared, false), 0) << lane;
    }
  }
  CudaAllocator a_{0};
};

// Branches that end in one split and in the next one, or in the third one.
TEST_P(TreeTest, RowsHaveTheBitsOfChains) {
  for (const bool rotate : {false, true}) {
    for (const int d : {64, 128}) {
      const auto seed = static_cast<unsigned>(d);
      expect_chains({.d = d, .rotate = rotate}, {{118, random_tree(33, 8, seed), 33}});
    }
    expect_chains({.group = 4, .kv_heads = 2, .rotate = rotate},
                  {{127, random_tree(20, 3, 5), 20}});
  }
  expect_chains({.group = 8, .d = 128}, {{250, random_tree(17, 10, 6), 17}});
  expect_chains({.group = 16}, {{63, random_tree(12, 0, 7), 12}});
  expect_chains({.group = 9, .rotate = true}, {{64, random_tree(9, 4, 8), 9}});
}

TEST_P(TreeTest, OfAsManyRowsAsThereMayBe) {
  expect_chains({.capacity = 512}, {{181, random_tree(kMaxTreeRows, 70, 9), kMaxTreeRows}});
  Parents chain(kMaxTreeRows);
  std::iota(chain.begin(), chain.end(), -1);
  expect_chains({.capacity = 512}, {{127, chain, kMaxTreeRows}});
}

// Rows before the tree are queries, too; or the tree's first rows are none.
TEST_P(TreeTest, CallsOfMoreOrFewerRowsThanTheTree) {
  expect_chains({.kv_heads = 2, .rotate = true}, {{130, random_tree(10, 2, 10), 80}});
  expect_chains({.group = 2}, {{30, random_tree(10, 2, 11), 40}});
  expect_chains({}, {{126, random_tree(40, 6, 12), 1}});
  expect_chains({.group = 4}, {{100, random_tree(40, 30, 13), 7}});
}

// Of several sequences each ends elsewhere, has padding or has no rows at all.
TEST_P(TreeTest, SequencesOfDifferentLengths) {
  const auto sequences = [](int n) {
    std::vector<Sequence> all;
    for (const auto& [before, rows] : {std::pair{5, n}, {140, n - 3}, {0, 0}, {121, n + 2}}) {
      all.push_back({before, random_tree(n, n / 3, static_cast<unsigned>(before)), rows});
    }
    all[2].parents.assign(static_cast<std::size_t>(n), 9999);
    return all;
  };
  expect_chains({.capacity = 176}, sequences(14));
  expect_chains({.group = 8, .kv_heads = 2, .capacity = 176, .rotate = true}, sequences(9));
}

INSTANTIATE_TEST_SUITE_P(Types, TreeTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
