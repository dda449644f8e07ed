// Rows in groups of codes: what quantise_rows() writes, and attention over it, bit for bit that
// over plain rows of the same values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/quantise.h"
#include "cuda/kv_test_support.h"
#include "kernels/kernels.h"

namespace triforce::kernels {
namespace {

using namespace cuda;

using Halves = std::vector<std::uint16_t>;
using Bytes = std::vector<std::uint8_t>;

constexpr Quantisation kAll[] = {Quantisation::kInt8, Quantisation::kInt4};

// Groups of heads in device memory.
struct Groups {
  Groups(CudaAllocator& a, Quantisation q, int heads, int head_dim, std::int64_t groups,
         std::int32_t valid)
      : by(q),
        d(head_dim),
        capacity(groups),
        k(a, Bytes(count(heads * groups, kv_group_k_bytes(head_dim, q)), kNever)),
        v(a, Bytes(count(heads * groups, kv_group_v_bytes(head_dim, q)), kNever)),
        used(a, {valid}) {}
  KvGroups view() const { return {k.data(), v.data(), by, capacity, used.data()}; }

  static constexpr std::uint8_t kNever = 0xFF;  // scales of NaN
  Quantisation by;
  int d;
  std::int64_t capacity;
  OnDevice<std::uint8_t> k, v;
  OnDevice<std::int32_t> used;
};

// One of keys or of values as the host reads it (kv_layout.cuh).
struct Group {
  const std::uint8_t* bytes;
  Quantisation by;
  int d;
  bool is_k;

  int code(int row, int dim) const {
    const auto i = count(row, d) + static_cast<std::size_t>(dim);
    if (by == Quantisation::kInt8) return bytes[i] - 128;
    const int in_part = dim % 8, bit = in_part / 2 * 4 + in_part % 2 * 16;
    return (bytes[i / 8 * 4 + static_cast<std::size_t>(bit / 8)] >> (bit % 8) & 15) - 8;
  }
  CodeScale scale(int row, int dim) const {
    CodeScale s;
    std::memcpy(&s, bytes + kv_code_bytes(d, by) + (is_k ? dim : row) * kKvScaleBytes, sizeof s);
    return s;
  }
  std::uint16_t value(int row, int dim, DType type) const {
    return to_half(scale(row, dim).value(code(row, dim)), type);
  }
};
Group group_at(const Bytes& all, const Groups& groups, bool is_k, std::int64_t at) {
  const std::int64_t bytes =
      is_k ? kv_group_k_bytes(groups.d, groups.by) : kv_group_v_bytes(groups.d, groups.by);
  return {all.data() + at * bytes, groups.by, groups.d, is_k};
}

// Rows [heads][capacity][d] in the order of the device or of the host.
Halves ordered(const Halves& plain, KvView kv, bool is_k) {
  Halves out(plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t row = at / kv.head_dim, of_head = row % kv.capacity;
    const std::int64_t place = row / kv.capacity * kv.head_stride +
                               element_of(kv, is_k, of_head, static_cast<int>(at % kv.head_dim));
    out[static_cast<std::size_t>(place)] = plain[i];
  }
  return out;
}

KvView view_of(DType type, int heads, int d, std::int64_t capacity) {
  KvView kv;
  kv.format.type = type;
  kv.kv_heads = kv.layer_heads = heads;
  kv.head_dim = d;
  kv.capacity = capacity;
  kv.head_stride = capacity * d;
  return kv;
}

class GroupsTest : public ::testing::TestWithParam<DType> {
 protected:
  // Codes and scales of `group` against those of the host, of its rows.
  static void expect_codes(const Group& group, int n, bool of_dims, const auto& x_at) {
    const int scales = of_dims ? group.d : kKvGroup;
    for (int s = 0; s < scales; ++s) {
      const auto row = [&](int i) { return of_dims ? i : s; };
      const auto dim = [&](int i) { return of_dims ? s : i; };
      std::vector<int> codes(static_cast<std::size_t>(n));
      const CodeScale want = quantise_range(
          n, group.by, [&](int i) { return x_at(row(i), dim(i)); },
          [&](int i, int code) { codes[static_cast<std::size_t>(i)] = code; });
      const CodeScale got = group.scale(row(0), dim(0));
      const auto is_finite = [](const CodeScale& c) {
        return std::isfinite(f16_to_f32(c.scale)) && std::isfinite(f16_to_f32(c.zero));
      };
      ASSERT_EQ(is_finite(got), is_finite(want)) << s;
      if (!is_finite(want)) continue;
      ASSERT_EQ(got.scale, want.scale) << s;
      ASSERT_EQ(got.zero, want.zero) << s;
      for (int i = 0; i < n; ++i) {
        ASSERT_EQ(group.code(row(i), dim(i)), codes[static_cast<std::size_t>(i)]) << s << " " << i;
      }
    }
  }
  CudaAllocator a_{0};
};

TEST_P(GroupsTest, CodesAreThoseOfTheHost) {
  constexpr int kHeads = 2, kCapacity = 192, kFirst = 64, kCount = 2, kTo = 1;
  const DType type = GetParam();
  for (const Quantisation by : kAll) {
    for (const int d : {64, 128}) {
      for (const bool on_host : {false, true}) {
        SCOPED_TRACE(fmt::format("{} d {}{}", to_string(by), d, on_host ? " on the host" : ""));
        KvView kv = view_of(type, kHeads, d, kCapacity);
        kv.on_host = on_host;
        Halves rows[2];
        for (int which = 0; which < 2; ++which) {
          std::vector<float> x =
              normals(count(kHeads * kCapacity, d), 11 + static_cast<unsigned>(which));
          const auto at = [&](int row, int dim) -> float& {
            return x[count(row, d) + static_cast<std::size_t>(dim)];
          };
          for (int i = 0; i < kKvGroup; ++i) {  // of one size, zeros, beyond f16, and not finite
            at(kFirst + i, 3) = at(kFirst + 5, i) = -1.25F;
            at(kFirst + i, 7) = at(kFirst + 9, i) = 0;
            at(kFirst + i, 11) = at(kFirst + 13, i) = i % 2 == 0 ? 6e4F : -6e4F;
          }
          at(kFirst + 70, 0) = at(kFirst + 90, 20) = std::numeric_limits<float>::quiet_NaN();
          at(kFirst + 64, 33) = std::numeric_limits<float>::infinity();
          at(kFirst + 67, 41) = -std::numeric_limits<float>::infinity();
          rows[which] = to_halves(x, type);
        }
        const Halves k = ordered(rows[0], kv, true), v = ordered(rows[1], kv, false);
        const OnDevice<std::uint16_t> dk(a_, k), dv(a_, v);
        const auto bytes = static_cast<std::int64_t>(2 * k.size());
        const Buffer hk(a_, bytes, Place::kPinned, MemTag::kStaging),
            hv(a_, bytes, Place::kPinned, MemTag::kStaging);
        std::memcpy(hk.data(), k.data(), 2 * k.size());
        std::memcpy(hv.data(), v.data(), 2 * v.size());
        kv.k = on_host ? hk.data() : dk.data();
        kv.v = on_host ? hv.data() : dv.data();
        const Groups groups(a_, by, kHeads, d, kTo + kCount + 1, 0);
        KvView to = kv;
        to.older = groups.view();
        quantise_rows(kv, kFirst, to, kTo, kCount, nullptr);
        const Bytes got[2] = {groups.k.values(), groups.v.values()};
        for (int which = 0; which < 2; ++which) {
          for (int h = 0; h < kHeads; ++h) {
            for (int g = 0; g < groups.capacity; ++g) {
              const Group group = group_at(got[which], groups, which == 0, h * groups.capacity + g);
              if (g < kTo || g >= kTo + kCount) {  // not written
                EXPECT_EQ(group.bytes[0], Groups::kNever);
                EXPECT_EQ(group.scale(0, 0).zero, 0xFFFF);
                continue;
              }
              const auto x_at = [&](int row, int dim) {
                const std::int64_t at = h * kCapacity + kFirst + (g - kTo) * kKvGroup + row;
                return from_half(rows[which][count(at, d) + static_cast<std::size_t>(dim)], type);
              };
              expect_codes(group, which == 0 ? kKvGroup : d, which == 0, x_at);
            }
          }
        }
      }
    }
  }
}

// Of all numbers of packed rows that kernels are made for: up to 32, of which each 8 have one, 64
// and 128. Tiles that are taken together are of both kinds.
TEST_P(GroupsTest, AttentionIsThatOverTheirValues) {
  constexpr int kUsed = 3, kGroups = 4, kTail = 72, kLength = 69;
  constexpr std::int64_t kSplit = 256, kCapacity = kGroups * kKvGroup + kTail,
                         kRows = kUsed * kKvGroup + kLength;
  const DType type = GetParam();
  for (const Quantisation by : kAll) {
    for (const int d : {64, 128}) {
      const KvView shape = view_of(type, 1, d, kCapacity);
      Halves rows[2] = {to_halves(normals(count(kCapacity, d), 21), type),
                        to_halves(normals(count(kCapacity, d), 22), type)};
      const OnDevice<std::uint16_t> k(a_, ordered(rows[0], shape, true)),
          v(a_, ordered(rows[1], shape, false));
      KvView grouped = shape;
      grouped.k = k.data();
      grouped.v = v.data();
      const Groups groups(a_, by, 1, d, kGroups, kUsed);
      grouped.older = groups.view();
      quantise_rows(grouped, 0, grouped, 0, kUsed, nullptr);
      // The rows behind the groups, from which a cache of its own begins.
      const OnDevice<std::int32_t> lengths(a_, {kLength, static_cast<std::int32_t>(kRows)});
      grouped.k = k.data() + count(kUsed * kKvGroup, d);
      grouped.v = v.data() + count(kUsed * kKvGroup, d);
      grouped.capacity = kTail;
      grouped.length = lengths.data();
      const Bytes codes[2] = {groups.k.values(), groups.v.values()};
      for (int which = 0; which < 2; ++which) {
        for (int i = 0; i < kUsed * kKvGroup; ++i) {
          const Group group = group_at(codes[which], groups, which == 0, i / kKvGroup);
          for (int j = 0; j < d; ++j) {
            rows[which][count(i, d) + static_cast<std::size_t>(j)] =
                group.value(i % kKvGroup, j, type);
          }
        }
      }
      const OnDevice<std::uint16_t> value_k(a_, ordered(rows[0], shape, true)),
          value_v(a_, ordered(rows[1], shape, false));
      KvView plain = shape;
      plain.k = value_k.data();
      plain.v = value_v.data();
      plain.length = lengths.data() + 1;
      for (const std::int64_t queries : {7, 15, 23, 31, 40, 66}) {
        SCOPED_TRACE(fmt::format("{} d {} queries {}", to_string(by), d, queries));
        const OnDevice<std::uint16_t> q(a_, to_halves(normals(count(queries, d), 23), type));
        const auto attend = [&](const KvView& kv) {
          const OnDevice<std::uint16_t> out(a_, Halves(count(queries, d)));
          const std::int64_t bytes = attention_bytes(queries, 1, 1, d, kCapacity, kSplit, false);
          const Buffer workspace(a_, bytes, Place::kDevice, MemTag::kWorkspace);
          const OnDevice<unsigned> arrivals(a_, {0U});
          attention(make_view(q.data(), type, {queries, 1, d}), kv, {},
                    make_view(out.data(), type, {queries, d}), {}, 0, kSplit,
                    {static_cast<std::byte*>(workspace.data()), count(bytes, 1)}, arrivals.data(),
                    nullptr);
          return out.values();
        };
        EXPECT_EQ(attend(grouped), attend(plain));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GroupsTest, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce::kernels
