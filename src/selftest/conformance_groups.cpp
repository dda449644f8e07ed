// Rows of a KV cache in groups of codes: what quantise_rows() writes and attention() reads. Beside
// each cache is one of plain rows that have the groups' values. With activations of 16 bits the
// outputs have the same bits. With f32 they are as near as scales and formats allow, and each code
// is found from outputs.
//
// Tests: tests/selftest/selftest_test.cpp, tests/backend/conformance_test.cpp
#include <numbers>

#include "core/float16.h"
#include "core/quantise.h"
#include "core/rounding.h"
#include "selftest/attention_bounds.h"
#include "selftest/known_cache.h"

namespace triforce::selftest {
namespace {

constexpr int kSequences = 2, kGroups = 9, kTailRows = 192;  // more than one split

// What rows stand for once they are codes, without rounding; the size of the two terms of each, and
// the step from a code to the next. Plain rows are one term, and have no step.
struct GroupModel {
  Rows values, sizes, steps;
};

// The rows [begin, begin + kKvGroup) of a head become codes.
void quantise_model(GroupModel& m, const KnownCache& at, Quantisation by, int head,
                    std::int64_t begin, int d) {
  const auto set = [&](Floats Rows::*part, int n, const auto& place) {
    std::vector<int> codes(static_cast<std::size_t>(n));
    Floats& values = m.values.*part;
    const CodeScale scale = quantise_range(
        n, by, [&](int i) { return values[place(i)]; },
        [&](int i, int code) { codes[static_cast<std::size_t>(i)] = code; });
    const float step = f16_to_f32(scale.scale), zero = f16_to_f32(scale.zero);
    for (int i = 0; i < n; ++i) {
      const int code = codes[static_cast<std::size_t>(i)];
      values[place(i)] = scale.value(code);
      (m.sizes.*part)[place(i)] = std::abs(step * static_cast<float>(code)) + std::abs(zero);
      (m.steps.*part)[place(i)] = step;
    }
  };
  for (int j = 0; j < d; ++j) {
    set(&Rows::k, kKvGroup, [&](int r) { return at.at(head, begin + r, j); });
  }
  for (int r = 0; r < kKvGroup; ++r) {
    set(&Rows::v, d, [&](int j) { return at.at(head, begin + r, j); });
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

  // Of outputs beside plain rows', of sequences and heads alone, and of codes one by one.
  struct Found {
    Worst &values, &alone, &codes;
  };
  void run(const Found& found) {
    see(found, {3, kGroups}, {70, 192}, 1);
    see(found, {3, kGroups}, {70, 192}, 7);
    see(found, {1, 2}, {64, 33}, 32);
    see(found, {0, 4}, {1, 130}, 1);
    see(found, {2, 2}, {40, 40}, 20, 9);
    see_few_rows(found.alone);
    if (!has_bits_of_plain_rows()) see_codes(found.codes);
  }
  bool has_bits_of_plain_rows() const { return b_.activation_dtype() != DType::kF32; }

 private:
  std::int64_t capacity() const { return kGroups * kKvGroup + kTailRows; }
  // n queries of each sequence, the last `tree` of them rows of a draft tree.
  void see(const Found& found, const std::array<int, kSequences>& used,
           const std::array<int, kSequences>& lengths, std::int64_t n, int tree = 0) {
    std::vector<KvView> views, plain, sizes;
    std::vector<std::unique_ptr<KnownCache>> values, of_sizes;
    double k_norm = 0;
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
      views.push_back(grouped_.of(static_cast<int>(s)));
      fill_groups(*source_[s], views[s], used[s]);
      b_.copy_rows(source_[s]->view(), older, views[s], 0, lengths[s]);
      const GroupModel model = model_of(*source_[s], used[s]);
      for (std::size_t at = 0; at < model.sizes.k.size(); at += static_cast<std::size_t>(d_)) {
        k_norm = std::max(k_norm, norm_of(model.sizes.k.data() + at, d_));
      }
      values.push_back(cache_of(model.values));
      of_sizes.push_back(cache_of({model.values.k, model.sizes.v}));
      for (const auto& cache : {values.back().get(), of_sizes.back().get()}) {
        cache->set_length(older + lengths[s]);
      }
      plain.push_back(values[s]->view());
      sizes.push_back(of_sizes[s]->view());
      for (KvView* kv : {&views[s], &plain[s], &sizes[s]}) {
        if (tree == 0) continue;
        kv->parents = followed.view().as<std::int32_t>();
        kv->tree_rows = tree;
      }
    }
    const Floats got = attend(views, n), want = attend(plain, n), size = attend(sizes, n);
    see_values(found.values, got, want, size, queries(kSequences, n, heads_), k_norm);
    // Each sequence alone, and a KV head of it alone.
    for (std::size_t s = 0; s < kSequences; ++s) {
      const std::size_t each = got.size() / kSequences;
      const auto begin = got.begin() + static_cast<std::ptrdiff_t>(s * each);
      found.alone.see_equal(attend({views[s]}, n, s),
                            Floats(begin, begin + static_cast<std::ptrdiff_t>(each)));
    }
    const KvView last = views[0].heads(kv_heads_ - 1, 1), same = plain[0].heads(kv_heads_ - 1, 1);
    const int group = heads_ / kv_heads_;
    see_values(found.values, attend({last}, n), attend({same}, n),
               attend({sizes[0].heads(kv_heads_ - 1, 1)}, n), queries(1, n, group), k_norm);
  }

  void see_values(Worst& worst, const Floats& got, const Floats& want, const Floats& size,
                  const Floats& q, double k_norm) const {
    if (has_bits_of_plain_rows()) return worst.see_equal(got, want);
    const AttentionBounds bounds(d_, capacity(), dtype_, b_.activation_dtype(), k_norm);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float* query =
          q.data() + i / static_cast<std::size_t>(d_) * static_cast<std::size_t>(d_);
      // Values are rounded on one side, and what they are multiplied with on the other.
      const double terms = static_cast<double>(size[i]);
      worst.see(got[i], want[i], 2 * bounds.output(query, terms) + 2 * unit_of(dtype_) * terms);
    }
  }

  // The last rows of a call alone, as many as some kernel takes at once.
  void see_few_rows(Worst& worst) {
    constexpr std::int64_t kMost = 32, kFew = 12;
    const KvView kv = fill_seen(*source_[0]);
    const Floats q = queries(1, kMost, heads_), all = attend_with(q, kMost, {kv});
    for (std::int64_t n = 1; n <= kFew; ++n) {
      const auto of_last = [&](const Floats& of) {
        return Floats(of.end() - static_cast<std::ptrdiff_t>(n * heads_ * d_), of.end());
      };
      worst.see_equal(attend_with(of_last(q), n, {kv}), of_last(all));
    }
  }

  // Codes of the groups of sequence 0. One that is off by one gives an output more than half a step
  // away. Products of bf16 may be as far as the format rounds, which is more for most codes of 8
  // bits.
  void see_codes(Worst& worst) {
    see_values_by_token(worst);
    for (std::int64_t first = 0; first < kSeen * kKvGroup; first += kOnes) {
      see_keys_by_dimension(worst, first);
    }
  }
  static constexpr int kSeen = 3, kOnes = 32;
  static constexpr std::int64_t kTail = 130;
  double tolerance(float step, double rounded) const {
    return static_cast<double>(step) / 2 + (dtype_ == DType::kBF16 ? unit_of(dtype_) : 0) * rounded;
  }

  // A query along a token's key sees that token alone: the output is its value.
  void see_values_by_token(Worst& worst) {
    constexpr std::int64_t kAtOnce = 16;
    const KnownCache& from = *source_[0];
    const KvView kv = fill_seen(from);
    const GroupModel model = model_of(from, kSeen);
    for (std::int64_t first = 0; first < kSeen * kKvGroup; first += kAtOnce) {
      Floats q(static_cast<std::size_t>(kAtOnce * heads_ * d_));
      const auto place = [&](std::size_t i) {
        const std::int64_t row = static_cast<std::int64_t>(i) / d_;
        return from.at(row % heads_ / (heads_ / kv_heads_), first + row / heads_,
                       static_cast<std::int64_t>(i) % d_);
      };
      for (std::size_t i = 0; i < q.size(); ++i) q[i] = 64 * model.values.k[place(i)];
      const Floats out = attend_with(q, kAtOnce, {kv});
      for (std::size_t i = 0; i < out.size(); ++i) {
        worst.see(out[i], model.values.v[place(i)],
                  tolerance(model.steps.v[place(i)], static_cast<double>(model.sizes.v[place(i)])));
      }
    }
  }

  // Each query has one dimension. Dimensions t and kOnes + t of the output differ by a multiple of
  // the probability of token first + t. Its logarithm gives the component of the key.
  void see_keys_by_dimension(Worst& worst, std::int64_t first) {
    constexpr float kGain = 2;  // base-2 logarithms of a component
    constexpr double kOfProbability = 2 / (kGain * std::numbers::ln2);  // of both its roundings
    KnownCache from(b_, dtype_, kv_heads_, d_, capacity());
    Rows rows = {source_[0]->model.k, Floats(source_[0]->model.v.size())};
    for (int h = 0; h < kv_heads_; ++h) {
      for (int t = 0; t < kOnes; ++t) {
        rows.v[from.at(h, first + t, t)] = 1;
        rows.v[from.at(h, first + t, kOnes + t)] = -1;
      }
    }
    from.fill(rows);
    const KvView kv = fill_seen(from);
    const GroupModel model = model_of(from, kSeen);
    const auto length = static_cast<float>(kGain * std::sqrt(double{1} * d_) * std::numbers::ln2);
    Floats q(static_cast<std::size_t>(d_ * heads_ * d_));
    for (int j = 0; j < d_; ++j) {
      for (int h = 0; h < heads_; ++h) {
        q[static_cast<std::size_t>((j * heads_ + h) * d_ + j)] = length;
      }
    }
    const Floats out = attend_with(q, d_, {kv});
    for (int j = 0; j < d_; ++j) {
      for (int h = 0; h < heads_; ++h) {
        const auto row = out.begin() + static_cast<std::ptrdiff_t>((j * heads_ + h) * d_);
        const auto key = [&](int t) { return from.at(h / (heads_ / kv_heads_), first + t, j); };
        std::array<double, kOnes> found{};
        double offset = 0;
        for (int t = 0; t < kOnes; ++t) {
          found[static_cast<std::size_t>(t)] =
              std::log2(static_cast<double>(row[t] - row[kOnes + t])) / double{kGain};
          offset +=
              static_cast<double>(model.values.k[key(t)]) - found[static_cast<std::size_t>(t)];
        }
        for (int t = 0; t < kOnes; ++t) {
          worst.see(found[static_cast<std::size_t>(t)] + offset / kOnes,
                    static_cast<double>(model.values.k[key(t)]),
                    tolerance(model.steps.k[key(t)],
                              static_cast<double>(model.sizes.k[key(t)]) + kOfProbability));
        }
      }
    }
  }

  // kSeen groups and kTail rows of sequence 0.
  KvView fill_seen(const KnownCache& from) {
    grouped_.set({kSeen, 0}, {kTail, 1});
    const KvView kv = grouped_.of(0);
    fill_groups(from, kv, kSeen);
    b_.copy_rows(from.view(), std::int64_t{kSeen} * kKvGroup, kv, 0, kTail);
    return kv;
  }

  // Groups [0, n) of a sequence, some by one call, from a cache or, the last one, from its own
  // rows.
  void fill_groups(const KnownCache& source, const KvView& to, int n) const {
    const KvView from = source.view();
    if (n > 2) b_.quantise_rows(from, kKvGroup, to, 1, n - 2);
    if (n > 1) b_.quantise_rows(from, 0, to, 0, 1);
    if (n == 0) return;
    b_.copy_rows(from, std::int64_t{n - 1} * kKvGroup, to, kKvGroup, kKvGroup);
    b_.quantise_rows(to, kKvGroup, to, n - 1, 1);
  }

  GroupModel model_of(const KnownCache& source, int groups) const {
    GroupModel m{source.model, source.model, source.model};
    for (const auto part : {&Rows::k, &Rows::v}) {
      for (float& x : m.sizes.*part) x = std::abs(x);
      std::ranges::fill(m.steps.*part, 0.0F);
    }
    for (int h = 0; h < kv_heads_; ++h) {
      for (int g = 0; g < groups; ++g) {
        quantise_model(m, source, by_, h, std::int64_t{g} * kKvGroup, d_);
      }
    }
    return m;
  }
  std::unique_ptr<KnownCache> cache_of(const Rows& rows) const {
    auto cache = std::make_unique<KnownCache>(b_, dtype_, kv_heads_, d_, capacity());
    cache->fill(rows);
    return cache;
  }

  Floats queries(std::size_t sequences, std::int64_t n, int heads, std::size_t first = 0) const {
    Floats all;
    for (std::size_t s = first; s < first + sequences; ++s) {
      const Floats q = normal_values(n * heads * d_, 60 + s, 1.5F);
      all.insert(all.end(), q.begin(), q.end());
    }
    return all;
  }
  Floats attend(const std::vector<KvView>& sequences, std::int64_t n, std::size_t first = 0) const {
    const int heads = heads_ / kv_heads_ * sequences.front().kv_heads;
    return attend_with(queries(sequences.size(), n, heads, first), n, sequences);
  }
  // n queries of each sequence.
  Floats attend_with(const Floats& values, std::int64_t n,
                     const std::vector<KvView>& sequences) const {
    const int heads = heads_ / kv_heads_ * sequences.front().kv_heads;
    const auto count = std::ssize(sequences);
    const Tensor q = activations(b_, {count * n, heads, d_}, values);
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
  const Lease passes(tested, {.rows = 128,
                              .context = kGroups * kKvGroup + kTailRows,
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = 128});
  for (const DType dtype : formats_of(tested)) {
    for (const auto by : {Quantisation::kInt8, Quantisation::kInt4}) {
      const std::string name =
          fmt::format("attention, {} rows in groups of {}", to_string(dtype), to_string(by));
      Worst values(name), alone(name + ", alone"), codes(name + ", each code");
      const GroupChecks::Found found{values, alone, codes};
      GroupChecks(tested, dtype, by, 6, 2, 64).run(found);
      GroupChecks(tested, dtype, by, 2, 1, 128).run(found);
      GroupChecks one_head_each(tested, dtype, by, 2, 2,
                                80 % tested.traits().head_dim_step == 0 ? 80 : 64);
      one_head_each.run(found);
      emit(values.check());
      emit(alone.check());
      if (!one_head_each.has_bits_of_plain_rows()) emit(codes.check());
    }
  }
}

}  // namespace triforce::selftest
