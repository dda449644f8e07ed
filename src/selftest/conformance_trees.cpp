// Rows of draft trees have the bits that they have in the plain sequence.
// Tests: tests/selftest/selftest_test.cpp, tests/backend/conformance_test.cpp
#include <algorithm>
#include <map>
#include <numeric>

#include "selftest/filled_cache.h"
#include "selftest/known_cache.h"

namespace triforce::selftest {
namespace {

constexpr int kCount = ThreeCaches::kCount;

// Sequences of `before` rows in the cache, of which the last ones are drafted; of the rows of a
// tree the last `queries`, and of each sequence so many more before the tree, are attended with.
struct TreeCase {
  std::array<std::int64_t, kCount> before{}, more{};
  std::array<std::vector<std::int32_t>, kCount> parents;
  std::int64_t queries = 0;
  std::array<int, kCount> order{0, 1, 2};  // may leave the caches unequally far apart

  std::int64_t tree_rows() const { return std::ssize(parents.front()); }
  std::int64_t rows_of(int sequence) const { return queries + more[at(sequence)]; }
  static std::size_t at(int sequence) { return static_cast<std::size_t>(sequence); }
};

// Parents of n rows, the first `chain` of which follow each other.
std::vector<std::int32_t> random_parents(int n, int chain, std::uint64_t seed) {
  std::vector<std::int32_t> parents(static_cast<std::size_t>(n));
  std::iota(parents.begin(), parents.end(), -1);
  for (int i = chain; i < n; ++i) {
    std::uint32_t w[4];
    philox_words({seed, 0, 0, 0}, Purpose::kWeights, static_cast<std::uint32_t>(i), 0, w);
    parents[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>(w[0] % static_cast<unsigned>(i + 1)) - 1;
  }
  return parents;
}

// What rows are made from, each drawn once.
class RowValues {
 public:
  explicit RowValues(const Sizes& s) : width_(s.qkv()) {}
  const Floats& of(int sequence, std::int64_t row) {
    const auto seed = static_cast<std::uint64_t>(1000 * (sequence + 1) + row);
    const auto [at, is_new] = values_.try_emplace(seed);
    if (is_new) at->second = normal_values(width_, seed, 0.7F);
    return at->second;
  }

 private:
  std::int64_t width_;
  std::map<std::uint64_t, Floats> values_;
};

class Trees {
 public:
  Trees(Backend& b, const Sizes& s, DType dtype, bool rotate, RowValues& values)
      : b_(b),
        s_(s),
        dtype_(dtype),
        rotate_(rotate),
        values_(values),
        rope_(rope_of(b, s.head_dim)) {}

  // The outputs of all queries, each sequence's after the other's, by one call for `which`.
  Floats together(const TreeCase& c, std::span<const int> which) {
    ThreeCaches caches(b_, s_, dtype_);
    std::int64_t rows = 0;
    for (const int i : which) rows = std::max(rows, c.rows_of(i));
    std::vector<Floats> q;
    std::vector<std::int32_t> numbers;
    std::vector<KvView> views;
    bool padded = false;
    for (const int i : which) {
      const std::int64_t n = c.rows_of(i), all = c.before[c.at(i)] + c.tree_rows();
      append(caches, c, i, 0, range(0, all - n));
      q.push_back(append(caches, c, i, all - n, range(all - n, all)));
      numbers.push_back(static_cast<std::int32_t>(all));
      padded = padded || n < rows;
      views.push_back(caches.of(i, rotate_));
    }
    for (const int i : which) numbers.push_back(static_cast<std::int32_t>(c.rows_of(i)));
    for (const int i : which) {
      numbers.insert(numbers.end(), c.parents[c.at(i)].begin(), c.parents[c.at(i)].end());
    }
    const Tensor device = ints_of(b_, numbers);
    const auto* const at = static_cast<const std::int32_t*>(device.view().data);
    const auto count = std::ssize(which);
    Floats queries(static_cast<std::size_t>(count * rows * s_.hidden()));
    for (std::int64_t i = 0; i < count; ++i) {
      KvView& kv = views[static_cast<std::size_t>(i)];
      kv.length = at + i;
      if (padded) kv.appended = at + count + i;
      kv.parents = at + 2 * count + i * c.tree_rows();
      kv.tree_rows = static_cast<std::int32_t>(c.tree_rows());
      const Floats& mine = q[static_cast<std::size_t>(i)];
      std::ranges::copy(mine, queries.begin() + (i + 1) * rows * s_.hidden() - std::ssize(mine));
    }
    const Tensor in = activations(b_, {count * rows, s_.heads, s_.head_dim}, queries);
    const Tensor out = make_tensor(b_, b_.activation_dtype(), {count * rows, s_.hidden()});
    b_.attention(in.view(), views, rope_.view(), out.view(), {}, 0);
    Floats all;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t n = c.rows_of(which[static_cast<std::size_t>(i)]);
      const Floats part = floats_of(b_, out.view().rows((i + 1) * rows - n, n));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // The same outputs, each as that of the last row of a sequence without branches.
  Floats one_by_one(const TreeCase& c, std::span<const int> which) {
    Floats all;
    for (const int i : which) {
      ThreeCaches caches(b_, s_, dtype_);
      const std::int64_t before = c.before[c.at(i)], end = before + c.tree_rows();
      append(caches, c, i, 0, range(0, before));
      for (std::int64_t row = end - c.rows_of(i); row < end; ++row) {
        const std::vector<std::int64_t> last = path(c, i, row);
        const std::int64_t held = std::min(row, before);
        const Floats q = append(caches, c, i, held, last);
        KvView kv = caches.of(i, rotate_);
        const Tensor length = ints_of(b_, {static_cast<std::int32_t>(held + std::ssize(last))});
        kv.length = static_cast<const std::int32_t*>(length.view().data);
        const Tensor in =
            activations(b_, {1, s_.heads, s_.head_dim}, Floats(q.end() - s_.hidden(), q.end()));
        const Tensor out = make_tensor(b_, b_.activation_dtype(), {1, s_.hidden()});
        b_.attention(in.view(), kv, rope_.view(), out.view(), {}, 0);
        const Floats part = floats_of(b_, out.view());
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    return all;
  }

 private:
  // The row that a row of a tree follows.
  static std::int64_t followed(const TreeCase& c, int i, std::int64_t row) {
    const std::int64_t before = c.before[c.at(i)];
    return before + c.parents[c.at(i)][static_cast<std::size_t>(row - before)];
  }
  static std::int32_t position(const TreeCase& c, int i, std::int64_t row) {
    return row < c.before[c.at(i)] ? static_cast<std::int32_t>(row)
                                   : position(c, i, followed(c, i, row)) + 1;
  }
  static std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), begin);
    return rows;
  }
  // The rows of a tree from which a row comes, and itself; a row before the tree: itself.
  static std::vector<std::int64_t> path(const TreeCase& c, int i, std::int64_t row) {
    std::vector<std::int64_t> rows{row};
    const std::int64_t before = c.before[c.at(i)];
    while (rows.front() >= before && followed(c, i, rows.front()) >= before) {
      rows.insert(rows.begin(), followed(c, i, rows.front()));
    }
    return rows;
  }
  // Appends rows of the case's sequence i behind `held` rows; their rotated queries.
  Floats append(const ThreeCaches& caches, const TreeCase& c, int i, std::int64_t held,
                const std::vector<std::int64_t>& rows) {
    const auto n = std::ssize(rows);
    if (n == 0) return {};
    Floats qkv;
    std::vector<std::int32_t> positions;
    for (const std::int64_t row : rows) {
      const Floats& values = values_.of(i, row);
      qkv.insert(qkv.end(), values.begin(), values.end());
      positions.push_back(position(c, i, row));
    }
    const Tensor in = activations(b_, {n, s_.qkv()}, qkv), at = ints_of(b_, positions),
                 length = ints_of(b_, {static_cast<std::int32_t>(held + n)});
    const Tensor q = make_tensor(b_, b_.activation_dtype(), {n, s_.heads, s_.head_dim});
    KvView kv = caches.of(i, rotate_);
    kv.length = static_cast<const std::int32_t*>(length.view().data);
    b_.rope_append(in.view(), at.view(), rope_.view(), q.view(), kv);
    return floats_of(b_, q.view());
  }

  Backend& b_;
  const Sizes& s_;
  DType dtype_;
  bool rotate_;
  RowValues& values_;
  RopeTable rope_;
};

std::vector<TreeCase> tree_cases(bool every_size) {
  const auto random = [](int n, int chain, std::uint64_t seed) {
    std::array<std::vector<std::int32_t>, kCount> all;
    for (std::vector<std::int32_t>& parents : all) parents = random_parents(n, chain, seed++);
    return all;
  };
  std::vector<TreeCase> cases = {
      {{40, 63, 64}, {0, 0, 0}, random(1, 0, 1), 1},
      // From the begin of a tile, from its last row, and over one's end.
      {{64, 127, 120}, {1, 1, 1}, random(16, 0, 2), 16},
      // The last rows of a tree whose first ones were appended before.
      {{126, 1, 60}, {0, 0, 0}, random(24, 2, 8), 7},
      // Of different many rows before the tree, and not in the order of their memory.
      {{5, 150, 97}, {1, 5, 3}, random(33, 10, 5), 33, {2, 0, 1}},
  };
  if (every_size) {
    cases.push_back(
        {{100, 128, 127}, {1, 2, 1}, random(kMaxTreeRows - 2, 70, 11), kMaxTreeRows - 2});
  }
  return cases;
}

void check_trees(Backend& tested, const Sizes& s, std::span<const DType> formats, bool every_size,
                 const Emit& emit) {
  const Lease lease(tested, {.rows = s.context,
                             .context = s.positions,
                             .heads = kCount * s.heads,
                             .kv_heads = kCount * s.kv_heads,
                             .head_dim = s.head_dim,
                             .exact_rows = kMostExactRows});
  RowValues values(s);
  for (const DType dtype : formats) {
    for (const bool rotate : {false, true}) {
      Worst worst(fmt::format("attention, {} query heads a KV head, {} rows{}", s.group(),
                              to_string(dtype), rotate ? ", rotate on read" : ""));
      for (const TreeCase& c : tree_cases(every_size)) {
        Trees trees(tested, s, dtype, rotate, values);
        const Floats apart = trees.one_by_one(c, c.order);
        worst.see_equal(trees.together(c, c.order), apart);
        const Floats first = trees.together(c, std::span(c.order).first(1));
        worst.see_equal(first, {apart.begin(), apart.begin() + std::ssize(first)});
      }
      emit(worst.check("draft trees"));
    }
  }
}

// What is kept lies where it lies in the plain sequence, and nothing else has changed.
void check_keep(Backend& tested, const Emit& emit) {
  const int d = tested.traits().head_dim_step;
  for (const DType dtype : formats_of(tested)) {
    Worst worst(fmt::format("keep_rows, {} rows", to_string(dtype)));
    KnownCache a(tested, dtype, 2, d, 100), b(tested, dtype, 2, d, 130);
    for (KnownCache* cache : {&a, &b}) cache->fill(cache == &a ? 51 : 52);
    struct Kept {
      std::int64_t first;
      std::vector<std::int16_t> from;
    };
    for (const Kept& k : {Kept{3, {0, 1, 2}}, Kept{0, {1}}, Kept{17, {0, 2, 3, 4, 40, 77}},
                          Kept{31, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 30, 61}}}) {
      for (KnownCache* cache : {&a, &b}) {
        for (int h = 0; h < 2; ++h) {
          for (std::size_t i = 0; i < k.from.size(); ++i) {
            cache->move_model(*cache, h, k.first + k.from[i],
                              k.first + static_cast<std::int64_t>(i), 1);
          }
        }
      }
      const KvView views[] = {a.view(), b.view()};
      tested.keep_rows(views, k.first, k.from);
      a.compare(worst);
      b.compare(worst);
    }
    emit(worst.check("draft trees"));
  }
}

}  // namespace

void check_draft_trees(Backend& tested, const Conformance& c, const Emit& emit) {
  const std::vector<DType> formats = formats_of(tested);
  check_trees(tested, Sizes{}, formats, c.every_size, emit);
  Sizes grouped;
  grouped.heads = 8;
  grouped.kv_heads = 1;
  check_trees(tested, grouped, std::span(formats).first(1), false, emit);
  check_keep(tested, emit);
}

}  // namespace triforce::selftest
