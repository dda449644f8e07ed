// The order in which kernels write KV rows is the one that HostAttention reads.
#include "core/host_allocator.h"
#include "cpu/attention_kernels.h"
#include "cpu/cpu_backend.h"
#include "cpu/kv_import.h"
#include "cpu/kv_layout.h"
#include "cuda/cuda_backend.h"
#include "cuda/cuda_test_support.h"

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
  shape.rows = 136;
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

class HostOrder : public ::testing::TestWithParam<DType> {};

// Angles of 0, so that rows are stored as they come; then a tile of them is imported.
TEST_P(HostOrder, IsTheOneInWhichKernelsWriteRows) {
  const DType type = GetParam();
  const Device device(type);
  for (const int d : {64, 128}) {
    constexpr std::int64_t kRows = cpu::kTileKeys;
    const std::int64_t elements = kRows * d;
    std::vector<std::uint16_t> qkv(static_cast<std::size_t>(3 * elements));
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      qkv[i] = static_cast<std::uint16_t>(0x2000 + i % 0x4000);  // a normal number in both formats
    }
    const std::vector<std::int32_t> positions(kRows), length{kRows};
    const std::vector<float> cos(static_cast<std::size_t>(d / 2), 1.0F), sin(cos.size());
    const Tensor on_device = device.upload(type, {kRows, 3 * d}, qkv.data());
    const Tensor at = device.upload(DType::kI32, {kRows}, positions.data());
    const Tensor rows = device.upload(DType::kI32, {1}, length.data());
    const Tensor c = device.upload(DType::kF32, {1, d / 2}, cos.data());
    const Tensor s = device.upload(DType::kF32, {1, d / 2}, sin.data());
    Allocator& allocator = device.backend->allocator();
    const Tensor q(allocator, type, {kRows, 1, d}, Place::kDevice, MemTag::kActivations);
    const Tensor k(allocator, type, {kRows, d}, Place::kPinned, MemTag::kKvFull);
    const Tensor v(allocator, type, {kRows, d}, Place::kPinned, MemTag::kKvFull);
    const KvView kv{.k = k.view().data,
                    .v = v.view().data,
                    .dtype = type,
                    .kv_heads = 1,
                    .layer_heads = 1,
                    .head_dim = d,
                    .capacity = kRows,
                    .head_stride = elements,
                    .length = rows.view().as<std::int32_t>()};
    device.backend->rope_append(on_device.view(), at.view(), {c.view(), s.view()}, q.view(), kv);
    device.backend->synchronize();

    HostAllocator host;
    const Tensor keys(host, type, {kRows, d}, Place::kHost, MemTag::kWorkspace);
    const Tensor values(host, type, {kRows, d}, Place::kHost, MemTag::kWorkspace);
    const cpu::ImportKernels& import = cpu::import_kernels(cpu::best_isa(), type);
    const auto* from_k = static_cast<const std::byte*>(kv.k);
    const auto* from_v = static_cast<const std::byte*>(kv.v);
    import.keys(from_k, from_v, d, static_cast<std::byte*>(keys.view().data));
    import.values(from_v, d, static_cast<std::byte*>(values.view().data));
    const int pair = cpu::pairing(type);
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (int i = 0; i < d; ++i) {
        const auto at_row = static_cast<std::size_t>(row * 3 * d + i);
        const auto step = static_cast<std::size_t>(d);
        ASSERT_EQ(keys.view().as<std::uint16_t>()[cpu::k_element(pair, d, row, i)],
                  qkv[at_row + step])
            << "K " << row << ", " << i;
        ASSERT_EQ(values.view().as<std::uint16_t>()[cpu::v_element(pair, d, row, i)],
                  qkv[at_row + 2 * step])
            << "V " << row << ", " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HostOrder, ::testing::Values(DType::kF16, DType::kBF16));

}  // namespace
}  // namespace triforce
