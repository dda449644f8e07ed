// Rows of a KV cache in groups of codes: what quantise_rows() writes and attention() reads. Beside
// each cache is one of plain rows that have the groups' values, and the bits are the same.
// Tests: tests/selftest/selftest_test.cpp, tests/backend/conformance_test.cpp
#include "core/quantise.h"
#include "core/rounding.h"
#include "selftest/known_cache.h"

namespace triforce::selftest {
namespace {

constexpr int kSequences = 2, kGroups = 5, kTailRows = 192;

// What the rows [begin, begin + kKvGroup) of a head stand for once they are codes.
void quantise_model(Rows& rows, const KnownCache& at, Quantisation by, int head, std::int64_t begin,
                    int d) {
  const auto set = [&](Floats& values, int n, const auto& place) {
    std::vector<int> codes(static_cast<std::size_t>(n));
    const CodeScale scale = quantise_range(
        n, by, [&](int i) { return values[place(i)]; },
        [&](int i, int code) { codes[static_cast<std::size_t>(i)] = code; });
    for (int i = 0; i < n; ++i) {
      values[place(i)] = scale.value(codes[static_cast<std::size_t>(i)]);
    }
  };
  for (int j = 0; j < d; ++j) {
    set(rows.k, kKvGroup, [&](int r) { return at.at(head, begin + r, j); });
  }
  for (int r = 0; r < kKvGroup; ++r) {
    set(rows.v, d, [&](int j) { return at.at(head, begin + r, j); });
  }
}

// Groups and the rows behind them of kSequences caches, in one memory.
class GroupedCaches : public LayerCache {
 public:
  GroupedCaches(Backend& b, DType dtype, Quantisation by, int kv_heads, int d)
      : LayerCache(b, dtype, kSequences * kv_heads, d, kTailRows),
        by_(by),
        kv_heads_(kv_heads),
        k_(codes(kv_group_k_bytes(d, by))),
        v_(codes(kv_group_v_bytes(d, by))),
        used_(make_tensor(b, DType::kI32, {kSequences})),
        lengths_(make_tensor(b, DType::kI32, {kSequences})) {}
  void set(std::vector<std::int32_t> used, std::vector<std::int32_t> lengths) {
    b_.upload(used_.view(), make_view(used.data(), DType::kI32, {kSequences}));
    b_.upload(lengths_.view(), make_view(lengths.data(), DType::kI32, {kSequences}));
  }
  KvView of(int sequence) const {
    KvView kv = view();
    kv.older = {k_.view().data, v_.view().data, by_, kGroups, used_.view().as<std::int32_t>()};
    kv = kv.heads(sequence * kv_heads_, kv_heads_);
    kv.first_head = 0;
    kv.layer_heads = kv_heads_;
    kv.older.used += sequence;
    kv.length = lengths_.view().as<std::int32_t>() + sequence;
    return kv;
  }

 private:
  // NaN of f16 at first: what is read must have been written.
  Tensor codes(std::int64_t group_bytes) const {
    const std::int64_t words = kSequences * kv_heads_ * kGroups * group_bytes / 4;
    return ints_of(b_, std::vector<std::int32_t>(static_cast<std::size_t>(words), -1));
  }

  Quantisation by_;
  int kv_heads_;
  Tensor k_, v_, used_, lengths_;
};

class GroupChecks {
 public:
  GroupChecks(Backend& b, DType dtype, Quantisation by, int heads, int kv_heads, int d)
      : b_(b),
        dtype_(dtype),
        by_(by),
        heads_(heads),
        kv_heads_(kv_heads),
        d_(d),
        grouped_(b, dtype, by, kv_heads, d) {
    for (int s = 0; s < kSequences; ++s) {
      source_.push_back(
          std::make_unique<KnownCache>(b, dtype, kv_heads, d, kGroups * kKvGroup + kTailRows));
      source_.back()->fill(static_cast<std::uint64_t>(40 + s));
    }
  }

  void run(Worst& worst) {
    see(worst, {3, 5}, {70, 192}, 1);
    see(worst, {3, 5}, {70, 192}, 7);
    see(worst, {1, 2}, {64, 33}, 32);
    see(worst, {0, 4}, {1, 130}, 1);
    see(worst, {2, 2}, {40, 40}, 20, 9);
  }

 private:
  // n queries of each sequence, the last `tree` of them rows of a draft tree.
  void see(Worst& worst, const std::array<int, kSequences>& used,
           const std::array<int, kSequences>& lengths, std::int64_t n, int tree = 0) {
    std::vector<KvView> views, plain;
    std::vector<std::unique_ptr<KnownCache>> values;
    std::vector<std::int32_t> groups, tails, parents;
    for (int i = 0; i < tree; ++i) parents.push_back(i < 3 ? i - 1 : i / 2 - 1);
    const Tensor followed = ints_of(b_, tree > 0 ? parents : std::vector<std::int32_t>{0});
    for (std::size_t s = 0; s < kSequences; ++s) {
      groups.push_back(used[s]);
      tails.push_back(lengths[s]);
    }
    grouped_.set(groups, tails);
    for (std::size_t s = 0; s < kSequences; ++s) {
      const std::int64_t older = std::int64_t{used[s]} * kKvGroup;
      fill_groups(static_cast<int>(s), used[s]);
      views.push_back(grouped_.of(static_cast<int>(s)));
      b_.copy_rows(source_[s]->view(), older, views[s], 0, lengths[s]);
      values.push_back(values_of(static_cast<int>(s), used[s]));
      values[s]->set_length(older + lengths[s]);
      plain.push_back(values[s]->view());
      for (KvView* kv : {&views[s], &plain[s]}) {
        if (tree == 0) continue;
        kv->parents = followed.view().as<std::int32_t>();
        kv->tree_rows = tree;
      }
    }
    const Floats got = attend(views, n), want = attend(plain, n);
    worst.see_equal(got, want);
    // Each sequence alone, and a KV head of it alone.
    for (std::size_t s = 0; s < kSequences; ++s) {
      const std::size_t each = got.size() / kSequences;
      const auto begin = got.begin() + static_cast<std::ptrdiff_t>(s * each);
      worst.see_equal(attend({views[s]}, n, s),
                      Floats(begin, begin + static_cast<std::ptrdiff_t>(each)));
    }
    const KvView last = views[0].heads(kv_heads_ - 1, 1), same = plain[0].heads(kv_heads_ - 1, 1);
    worst.see_equal(attend({last}, n), attend({same}, n));
  }

  // Groups [0, n) of a sequence, some by one call, from a cache or, the last one, from its own
  // rows.
  void fill_groups(int s, int n) {
    const KvView to = grouped_.of(s), from = source_[static_cast<std::size_t>(s)]->view();
    if (n > 2) b_.quantise_rows(from, kKvGroup, to, 1, n - 2);
    if (n > 1) b_.quantise_rows(from, 0, to, 0, 1);
    if (n == 0) return;
    b_.copy_rows(from, std::int64_t{n - 1} * kKvGroup, to, kKvGroup, kKvGroup);
    b_.quantise_rows(to, kKvGroup, to, n - 1, 1);
  }

  std::unique_ptr<KnownCache> values_of(int s, int groups) const {
    const KnownCache& source = *source_[static_cast<std::size_t>(s)];
    auto values =
        std::make_unique<KnownCache>(b_, dtype_, kv_heads_, d_, kGroups * kKvGroup + kTailRows);
    Rows rows = source.model;
    for (int h = 0; h < kv_heads_; ++h) {
      for (int g = 0; g < groups; ++g) {
        quantise_model(rows, source, by_, h, std::int64_t{g} * kKvGroup, d_);
      }
    }
    values->fill(rows);
    return values;
  }

  Floats attend(const std::vector<KvView>& sequences, std::int64_t n, std::size_t first = 0) const {
    const int group = heads_ / kv_heads_, heads = group * sequences.front().kv_heads;
    const auto count = std::ssize(sequences);
    Floats all;
    for (std::size_t s = first; s < first + sequences.size(); ++s) {
      const Floats q = normal_values(n * heads * d_, 60 + s, 1.5F);
      all.insert(all.end(), q.begin(), q.end());
    }
    const Tensor q = activations(b_, {count * n, heads, d_}, all);
    const Tensor out = make_tensor(b_, b_.activation_dtype(), {count * n, heads * d_});
    b_.attention(q.view(), sequences, {}, out.view(), {}, 0);
    return floats_of(b_, out.view());
  }

  Backend& b_;
  DType dtype_;
  Quantisation by_;
  int heads_, kv_heads_, d_;
  GroupedCaches grouped_;
  std::vector<std::unique_ptr<KnownCache>> source_;
};

}  // namespace

void check_grouped_rows(Backend& tested, const Emit& emit) {
  const Lease passes(tested, {.rows = 64,
                              .context = kGroups * kKvGroup + kTailRows,
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = tested.traits().max_head_dim >= 128 ? 128 : 64});
  for (const DType dtype : formats_of(tested)) {
    for (const auto by : {Quantisation::kInt8, Quantisation::kInt4}) {
      Worst worst(
          fmt::format("attention, {} rows in groups of {}", to_string(dtype), to_string(by)));
      GroupChecks(tested, dtype, by, 6, 2, 64).run(worst);
      GroupChecks(tested, dtype, by, 2, 1, 128).run(worst);
      emit(worst.check());
    }
  }
}

}  // namespace triforce::selftest
