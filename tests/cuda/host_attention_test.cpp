// The order in which kernels write KV rows is the one that HostAttention reads.
#include "core/host_allocator.h"
#include "cpu/attention_kernels.h"
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
