// Rows on the host: kernels write and read them in the order that HostAttention computes with.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "cuda/cuda_test_support.h"
#include "triforce/host_kv_order.h"

namespace triforce {
namespace {

// A backend, and tensors in its memory from values of the host.
struct Device {
  explicit Device(DType type) : backend(make_cuda_backend({.device = 0, .dtype = type})) {}
  Tensor upload(DType type, std::initializer_list<std::int64_t> shape, const void* values) const {
    Tensor t(backend->allocator(), type, shape, Place::kDevice, MemTag::kActivations);
    TensorView from = t.view();
    from.data = const_cast<void*>(values);
    backend->upload(t.view(), from);
    return t;
  }
  std::unique_ptr<Backend> backend;
};

// Rates of both sides at once; nothing of it stays or is counted.
TEST(FarRates, AreMeasuredBeforeAnythingIsLeased) {
  const auto backend = make_cuda_backend(
      {.dtype = DType::kBF16, .host_attention = make_host_attention({2, std::nullopt})});
  Backend::FarShape shape;
  shape.group = 2;
  shape.head_dim = 64;
  shape.rows = 144;
  shape.queries = 7;
  for (const auto& [heads, of_layer] : {std::pair{1, 1}, {3, 2}, {32, 8}}) {
    shape.kv_heads = heads;
    shape.layer_kv_heads = of_layer;
    const auto rates = backend->measure_far_rates(shape);
    ASSERT_TRUE(rates);
    for (const double gbs : {rates->bus_gbs, rates->host_gbs}) {
      EXPECT_GT(gbs, 0);
      EXPECT_LT(gbs, 1e4);
    }
  }
  for (const MemTag tag : {MemTag::kKvFull, MemTag::kKvFar}) {
    EXPECT_EQ(backend->allocator().ledger(tag).peak_bytes, 0);
  }
  const Lease lease(*backend,
                    {.rows = 8, .context = 128, .heads = 2, .kv_heads = 1, .head_dim = 64});
  EXPECT_THROW(backend->measure_far_rates(shape), Error);
}

TEST(FarRates, NeedAHostThatComputes) {
  EXPECT_THROW(make_cuda_backend({})->measure_far_rates({}), Error);
}

class HostOrder : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t kRows = 64;

  // KV rows of two heads at a place, with a length of `rows`.
  struct Rows {
    Rows(Backend& b, DType type, int d, Place at, std::int64_t rows)
        : place(at),
          k(b.allocator(), type, {2 * kRows, d}, place, MemTag::kKvFull),
          v(b.allocator(), type, {2 * kRows, d}, place, MemTag::kKvFull),
          length(b.allocator(), DType::kI32, {1}, b.place(), MemTag::kWorkspace) {
      const auto value = static_cast<std::int32_t>(rows);
      b.upload(length.view(), make_view(const_cast<std::int32_t*>(&value), DType::kI32, {1}));
    }
    KvView view() const {
      return {.k = k.view().data,
              .v = v.view().data,
              .format = k.view().dtype,
              .kv_heads = 2,
              .layer_heads = 2,
              .head_dim = static_cast<int>(k.view().shape[1]),
              .capacity = kRows,
              .head_stride = kRows * k.view().shape[1],
              .length = length.view().as<std::int32_t>(),
              .on_host = place == Place::kPinned};
    }
    Place place;
    Tensor k, v, length;
  };
  // Element (head, row, dim) of K or V in the order of the host.
  static std::uint16_t element(const Rows& rows, bool is_k, int head, std::int64_t row, int dim) {
    const KvView kv = rows.view();
    const int pair = pairing(kv.format.type);
    const std::int64_t at =
        is_k ? k_element(pair, kv.head_dim, row, dim) : v_element(pair, kv.head_dim, row, dim);
    return static_cast<const std::uint16_t*>(is_k ? kv.k : kv.v)[head * kv.head_stride + at];
  }
  // What fill() gives that element: a normal number in both formats.
  static std::uint16_t value(bool is_k, int head, std::int64_t row, int dim) {
    return static_cast<std::uint16_t>(0x2000 +
                                      ((row * 256 + dim) * 4 + head * 2 + (is_k ? 1 : 0)) % 0x4000);
  }
  // Appends rows [0, n) with angles of 0, so that they are stored as they come.
  static void fill(const Device& device, DType type, int d, std::int64_t n, const KvView& kv) {
    std::vector<std::uint16_t> qkv(static_cast<std::size_t>(n * 6 * d));
    for (std::int64_t row = 0; row < n; ++row) {
      for (int i = 0; i < 4 * d; ++i) {
        const int head = i / d % 2;
        qkv[static_cast<std::size_t>(row * 6 * d + 2 * d + i)] = value(i < 2 * d, head, row, i % d);
      }
    }
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
    const std::vector<float> cos(static_cast<std::size_t>(d / 2), 1.0F), sin(cos.size());
    const Tensor in = device.upload(type, {n, 6 * d}, qkv.data());
    const Tensor at = device.upload(DType::kI32, {n}, positions.data());
    const Tensor c = device.upload(DType::kF32, {1, d / 2}, cos.data());
    const Tensor s = device.upload(DType::kF32, {1, d / 2}, sin.data());
    const Tensor q(device.backend->allocator(), type, {n, 2, d}, Place::kDevice,
                   MemTag::kActivations);
    device.backend->rope_append(in.view(), at.view(), {c.view(), s.view()}, q.view(), kv);
    device.backend->synchronize();
  }
  // Rows [begin, end) of `rows` are rows [from, ...) of fill().
  static void expect_rows(const Rows& rows, std::int64_t begin, std::int64_t end,
                          std::int64_t from) {
    for (const bool is_k : {true, false}) {
      for (int head = 0; head < 2; ++head) {
        for (std::int64_t row = begin; row < end; ++row) {
          for (int i = 0; i < rows.view().head_dim; ++i) {
            ASSERT_EQ(element(rows, is_k, head, row, i), value(is_k, head, from + row - begin, i))
                << (is_k ? "K " : "V ") << head << ", " << row << ", " << i;
          }
        }
      }
    }
  }
};

TEST_P(HostOrder, IsTheOneInWhichRowsAreAppendedThere) {
  const Device device(GetParam());
  for (const int d : {64, 128}) {
    const Rows rows(*device.backend, GetParam(), d, Place::kPinned, 37);
    fill(device, GetParam(), d, 37, rows.view());
    expect_rows(rows, 0, 37, 0);
  }
}

// Rows on the host -> device -> host, at places that are no whole blocks of either order.
TEST_P(HostOrder, IsKeptByCopiesAndGathers) {
  const Device device(GetParam());
  Backend& b = *device.backend;
  for (const int d : {64, 128}) {
    const Rows from(b, GetParam(), d, Place::kPinned, kRows),
        there(b, GetParam(), d, Place::kDevice, kRows), back(b, GetParam(), d, Place::kPinned, 1);
    fill(device, GetParam(), d, kRows, from.view());
    for (const Queue queue : {Queue::kCompute, Queue::kCopy}) {
      for (const Tensor* t : {&back.k, &back.v}) {  // page-locked, and nothing is queued
        std::memset(t->view().data, 0, static_cast<std::size_t>(t->view().bytes()));
      }
      b.copy_rows(from.view(), 3, there.view(), 11, 29, queue);
      b.copy_rows(there.view(), 11, back.view(), 18, 29, queue);
      b.synchronize();
      expect_rows(back, 18, 18 + 29, 3);
      for (const std::int64_t row : {17, 47}) {  // nothing beside them
        for (const bool is_k : {true, false}) EXPECT_EQ(element(back, is_k, 1, row, d - 1), 0);
      }
    }
    const std::int32_t ids[] = {5, 0, 2, 3, 1, 4};
    const Tensor chunks = device.upload(DType::kI32, {2, 3}, ids);
    b.gather_chunks(from.view(), chunks.view(), 9, there.view());
    b.copy_rows(there.view(), 0, back.view(), 0, 27);
    b.synchronize();
    for (int head = 0; head < 2; ++head) {
      for (int row = 0; row < 27; ++row) {
        const std::int64_t source = ids[head * 3 + row / 9] * 9 + row % 9;
        for (const bool is_k : {true, false}) {
          ASSERT_EQ(element(back, is_k, head, row, 5), value(is_k, head, source, 5))
              << head << ", " << row;
        }
      }
    }
  }
}

// More caches than one launch takes, on the device and on the host: of each the same rows move
// down.
TEST_P(HostOrder, IsKeptWhereRowsOfATreeAreKept) {
  const Device device(GetParam());
  Backend& b = *device.backend;
  constexpr std::int64_t kFirst = 13;
  const std::vector<std::int16_t> from{0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 19, 30, 31, 50};
  for (const int d : {64, 128}) {
    for (const Place place : {Place::kDevice, Place::kPinned}) {
      constexpr std::size_t kCaches = 67, kFilled[] = {0, 1, 63, 64, 66};
      std::deque<Rows> caches;
      std::vector<KvView> views;
      while (caches.size() < kCaches) {
        views.push_back(caches.emplace_back(b, GetParam(), d, place, kRows).view());
      }
      for (const std::size_t i : kFilled) fill(device, GetParam(), d, kRows, views[i]);
      b.keep_rows(views, kFirst, from);
      for (const std::size_t i : kFilled) {
        const Rows read(b, GetParam(), d, Place::kPinned, kRows);
        if (place == Place::kDevice) b.copy_rows(views[i], 0, read.view(), 0, kRows);
        b.synchronize();
        const Rows& now = place == Place::kDevice ? read : caches[i];
        expect_rows(now, 0, kFirst, 0);
        for (std::int64_t row = 0; row < std::ssize(from); ++row) {
          const std::int64_t to = kFirst + row;
          expect_rows(now, to, to + 1, kFirst + from[static_cast<std::size_t>(row)]);
        }
        const std::int64_t end = kFirst + std::ssize(from);
        expect_rows(now, end, kRows, end);
      }
    }
  }
}

// What a device cannot compute without a host that does.
TEST_P(HostOrder, IsScoredByTheHostAlone) {
  const Device device(GetParam());
  const Rows rows(*device.backend, GetParam(), 64, Place::kPinned, kRows);
  const std::vector<std::uint16_t> zeros(2 * 64);
  const Tensor q = device.upload(GetParam(), {2, 64}, zeros.data());
  const Tensor scores(device.backend->allocator(), DType::kF32, {2, 8}, Place::kDevice,
                      MemTag::kWorkspace);
  EXPECT_THROW(device.backend->score_chunks(q.view(), rows.view(), 8, 8, scores.view()), Error);
}

// Remembers the threads that it computes on, and computes nothing.
class Remembering final : public HostAttention {
 public:
  std::int64_t scratch_bytes(const Backend::ScratchShape&) const override { return 64; }
  std::set<std::thread::id> seen;

 protected:
  void do_attend(TensorView, const KvView&, TensorView, TensorView, int) override {
    seen.insert(std::this_thread::get_id());
  }
  void do_score(TensorView, const KvView&, int, std::int64_t, TensorView, ChunkRule) override {
    seen.insert(std::this_thread::get_id());
  }
};

// Threads that help belong to the one that computes: rates measured on another would be of others.
TEST_P(HostOrder, RatesAreOfTheThreadThatComputesInAPass) {
  const auto remembering = std::make_shared<Remembering>();
  Device device(GetParam());
  device.backend =
      make_cuda_backend({.device = 0, .dtype = GetParam(), .host_attention = remembering});
  Backend& b = *device.backend;
  Backend::FarShape shape;
  shape.kv_heads = shape.layer_kv_heads = shape.group = 1;
  shape.head_dim = 64;
  shape.rows = kRows;
  shape.queries = 1;
  ASSERT_TRUE(b.measure_far_rates(shape));
  const std::set<std::thread::id> measured = std::exchange(remembering->seen, {});
  const Lease lease(b, {.rows = 8,
                        .context = kRows,
                        .heads = 2,
                        .kv_heads = 2,
                        .head_dim = 64,
                        .chunk_size = 8,
                        .host_heads = 2,
                        .host_kv_heads = 2});
  const Rows rows(b, GetParam(), 64, Place::kPinned, kRows);
  const std::vector<std::uint16_t> zeros(2 * 64);
  const Tensor q = device.upload(GetParam(), {2, 64}, zeros.data());
  const Tensor scores(b.allocator(), DType::kF32, {2, 8}, Place::kDevice, MemTag::kWorkspace);
  b.score_chunks(q.view(), rows.view(), 8, 8, scores.view());
  b.synchronize();
  EXPECT_EQ(measured.size(), 1U);
  EXPECT_EQ(measured, remembering->seen);
}

// Sequences of one call, of which one has padding and one no row.
TEST_P(HostOrder, SequencesAreComputedEachByItself) {
  constexpr std::int64_t kEach = 5, kCounts[] = {5, 0, 2};
  constexpr std::int32_t kLengths[] = {48, 0, 31};
  Device device(GetParam());
  device.backend = make_cuda_backend(
      {.device = 0, .dtype = GetParam(), .host_attention = make_host_attention({2, std::nullopt})});
  Backend& b = *device.backend;
  const Lease lease(b, {.rows = 3 * kEach,
                        .context = kRows,
                        .heads = 2,
                        .kv_heads = 2,
                        .head_dim = 64,
                        .host_heads = 2,
                        .host_kv_heads = 2});
  std::deque<Rows> rows;
  for (int s = 0; s < 3; ++s) {
    rows.emplace_back(b, GetParam(), 64, Place::kPinned, kRows);
    fill(device, GetParam(), 64, kRows, rows.back().view());
  }
  std::vector<std::uint16_t> halves(3 * kEach * 2 * 64);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(0x3000 + i * 37 % 0x0C00);
  }
  const Tensor q = device.upload(GetParam(), {3 * kEach, 2, 64}, halves.data());
  const std::int32_t counts[] = {5, 0, 2};
  const Tensor lengths = device.upload(DType::kI32, {3}, kLengths),
               appended = device.upload(DType::kI32, {3}, counts);
  const auto view_of = [&](std::size_t s, bool padded) {
    KvView kv = rows[s].view();
    kv.length = static_cast<const std::int32_t*>(lengths.view().data) + s;
    if (padded) kv.appended = static_cast<const std::int32_t*>(appended.view().data) + s;
    return kv;
  };
  const auto attend = [&](std::span<const KvView> sequences, std::int64_t first, std::int64_t n) {
    const Tensor out(b.allocator(), GetParam(), {n, 2 * 64}, Place::kDevice, MemTag::kActivations);
    b.attention(q.view().rows(first, n), sequences, {}, out.view(), {}, 0);
    b.join_host();
    std::vector<float> values(static_cast<std::size_t>(n * 2 * 64));
    b.download(make_view(values.data(), DType::kF32, {n, 2 * 64}), out.view());
    return values;
  };
  const std::vector<float> all =
      attend(std::array{view_of(0, true), view_of(1, true), view_of(2, true)}, 0, 3 * kEach);
  for (const std::size_t s : {0U, 2U}) {
    const std::int64_t first = (static_cast<std::int64_t>(s) + 1) * kEach - kCounts[s];
    const std::vector<float> alone = attend(std::array{view_of(s, false)}, first, kCounts[s]);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + first * 2 * 64)) << s;
    EXPECT_NE(alone.front(), 0) << s;
  }
}

// Sequences that end in trees, one of them padded: each row as the last one of its own chain.
TEST_P(HostOrder, BranchesOfTreesAreComputedAsChains) {
  constexpr std::int64_t kEach = 6;
  constexpr std::int32_t kTreeRows = 6, kCounts[] = {6, 4};
  const std::int32_t numbers[] = {40, 23, kCounts[0], kCounts[1], -1, 0, 0, 1, -1, 4,  // parents
                                  -1, -1, 1,          2,          1,  0};  // of the second one
  Device device(GetParam());
  device.backend = make_cuda_backend(
      {.device = 0, .dtype = GetParam(), .host_attention = make_host_attention({2, std::nullopt})});
  Backend& b = *device.backend;
  const Lease lease(b, {.rows = 2 * kEach,
                        .context = kRows,
                        .heads = 2,
                        .kv_heads = 2,
                        .head_dim = 64,
                        .host_heads = 2,
                        .host_kv_heads = 2});
  std::vector<std::uint16_t> halves(2 * kEach * 2 * 64);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(0x3000 + i * 37 % 0x0C00);
  }
  const Tensor q = device.upload(GetParam(), {2 * kEach, 2, 64}, halves.data()),
               there = device.upload(DType::kI32, {16}, numbers);
  const auto* const at = static_cast<const std::int32_t*>(there.view().data);
  const auto attend = [&](std::span<const KvView> sequences, std::int64_t first, std::int64_t n) {
    const Tensor out(b.allocator(), GetParam(), {n, 2 * 64}, Place::kDevice, MemTag::kActivations);
    b.attention(q.view().rows(first, n), sequences, {}, out.view(), {}, 0);
    b.join_host();
    std::vector<float> values(static_cast<std::size_t>(n * 2 * 64));
    b.download(make_view(values.data(), DType::kF32, {n, 2 * 64}), out.view());
    return values;
  };
  std::deque<Rows> rows;
  std::vector<KvView> trees;
  for (int s = 0; s < 2; ++s) {
    KvView& kv =
        trees.emplace_back(rows.emplace_back(b, GetParam(), 64, Place::kPinned, kRows).view());
    fill(device, GetParam(), 64, kRows, kv);
    kv.length = at + s;
    kv.appended = at + 2 + s;
    kv.parents = at + 4 + s * kTreeRows;
    kv.tree_rows = kTreeRows;
  }
  const std::vector<float> all = attend(trees, 0, 2 * kEach);
  for (std::size_t s = 0; s < 2; ++s) {
    const std::int64_t before = numbers[s] - kTreeRows;
    for (std::int32_t node = kTreeRows - kCounts[s]; node < kTreeRows; ++node) {
      std::vector<std::int16_t> path;
      for (std::int32_t i = node; i >= 0; i = numbers[4 + static_cast<std::int32_t>(s) * 6 + i]) {
        path.insert(path.begin(), static_cast<std::int16_t>(i));
      }
      const Rows chain(b, GetParam(), 64, Place::kPinned,
                       before + static_cast<std::int64_t>(path.size()));
      fill(device, GetParam(), 64, kRows, [&] {
        KvView whole = chain.view();
        whole.length = rows[s].view().length;
        return whole;
      }());
      b.keep_rows(std::array{chain.view()}, before, path);
      const std::int64_t row = static_cast<std::int64_t>(s) * kEach + node;
      const std::vector<float> alone = attend(std::array{chain.view()}, row, 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * 2 * 64))
          << s << ", " << node;
      EXPECT_NE(alone.front(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HostOrder, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce
