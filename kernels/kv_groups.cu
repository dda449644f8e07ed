// Rows of a KV cache to groups of codes, with the numbers of quantise_range() of core/quantise.h.
#include "kernels/element.cuh"
#include "kernels/kernels.h"
#include "kernels/kv_layout.cuh"
#include "kernels/launch.cuh"

namespace triforce::kernels {
namespace {

constexpr int kThreads = 128;

// The least and the largest of what is added; the least is NaN once one is.
struct Range {
  float least, largest;
  TF_DEVICE explicit Range(float x) : least(x), largest(x) {}
  TF_DEVICE void add(const Range& r) {
    if (r.least < least || r.least != r.least) least = r.least;
    if (r.largest > largest) largest = r.largest;
  }
};

// What codes of a range are read with: scale and zero of f16, and their bits as they are stored.
template <int kBits>
struct Scale {
  static constexpr float kLowest = -(1 << (kBits - 1));
  float scale, zero;

  TF_DEVICE static std::uint32_t bits_of(const Range& r) {
    __half both[2];
    both[0] = __float2half_rn(__fdiv_rn(__fsub_rn(r.largest, r.least), -2 * kLowest - 1));
    both[1] = __float2half_rn(__fsub_rn(r.least, __fmul_rn(kLowest, __half2float(both[0]))));
    std::uint32_t bits;
    memcpy(&bits, both, sizeof bits);
    return bits;
  }
  Scale() = default;
  TF_DEVICE explicit Scale(std::uint32_t bits) {
    __half both[2];
    memcpy(both, &bits, sizeof bits);
    scale = __half2float(both[0]);
    zero = __half2float(both[1]);
  }
  // As it is stored.
  TF_DEVICE std::uint32_t code(float x) const {
    constexpr float kMost = -kLowest - 1;
    const float at = __fdiv_rn(__fsub_rn(x, zero), scale);  // NaN: 0 / 0, or not finite
    const float kept = at > kMost ? kMost : at < kLowest ? kLowest : at == at ? at : 0.0F;
    return static_cast<std::uint32_t>(static_cast<int>(rintf(kept)) - static_cast<int>(kLowest));
  }
};

template <class T>
struct Part {
  T x[kPartElements];
  TF_DEVICE explicit Part(uint4 bits) { memcpy(x, &bits, sizeof x); }
};

// The kKvGroup rows from `row` on, of keys or of values, as they lie in a device's order.
template <class T, int kDim>
TF_DEVICE void bring_rows(const KvView& kv, bool is_k, int head, std::int64_t row, uint4* to) {
  constexpr int kParts = kKvGroup * kDim / kPartElements;
  const auto* const rows =
      static_cast<const std::uint16_t*>(is_k ? kv.k : kv.v) + head * kv.head_stride + row * kDim;
  const uint4* const from = reinterpret_cast<const uint4*>(rows) + threadIdx.x;
  if (!kv.on_host) {
    TF_UNROLL
    for (int i = 0; i < kParts; i += kThreads) to[i + static_cast<int>(threadIdx.x)] = from[i];
    return;
  }
  constexpr int kPair = pairing(std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16);
  T* const elements = reinterpret_cast<T*>(to);
  TF_UNROLL_N(1)
  for (int i = 0; i < kParts; i += kThreads) {
    const uint4 bits = from[i];
    const Part<T> part(bits);
    const int first = (i + static_cast<int>(threadIdx.x)) * kPartElements;
    TF_UNROLL
    for (int j = 0; j < kPartElements; ++j) {
      const HostKvPlace at =
          is_k ? k_place(kPair, kDim, first + j) : v_place(kPair, kDim, first + j);
      elements[kv_element(at.token, at.dim, kDim)] = part.x[j];
    }
  }
}

// The codes of a part to their words. at(j): the scale of its element j.
template <class Group, class T, class At>
TF_DEVICE void store_codes(const Part<T>& part, const At& at, std::uint32_t* to) {
  TF_UNROLL
  for (int w = 0; w < Group::kPartWords; ++w) {
    constexpr int kOfWord = kPartElements / Group::kPartWords;
    std::uint32_t word = 0;
    TF_UNROLL
    for (int j = w * kOfWord; j < (w + 1) * kOfWord; ++j) {
      word |= at(j).code(to_float(part.x[j])) << (Group::code_bit(j) % 32);
    }
    to[w] = word;
  }
}

// grid: (group, KV head)
template <class T, int kDim, int kBits>
__global__ void __launch_bounds__(kThreads)
    quantise_rows_kernel(KvView src, std::int64_t src_row, KvGroups dst, std::int64_t first_group) {
  using Group = KvGroup<kDim, kBits>;
  constexpr int kParts = kDim / kPartElements, kTile = kKvGroup * kParts;
  const int thread = static_cast<int>(threadIdx.x), head = static_cast<int>(blockIdx.y);
  TF_SHARED(uint4, keys);
  uint4* const values = keys + kTile;
  auto* const key_scales = reinterpret_cast<std::uint32_t*>(values + kTile);
  std::uint32_t* const value_scales = key_scales + kDim;
  const std::int64_t row = src_row + std::int64_t{blockIdx.x} * kKvGroup;
  bring_rows<T, kDim>(src, true, head, row, keys);
  bring_rows<T, kDim>(src, false, head, row, values);
  __syncthreads();

  const std::int64_t at = head * dst.capacity + first_group + blockIdx.x;
  auto* const to_keys =
      reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(dst.k) + at * Group::kKeyBytes);
  auto* const to_values =
      reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(dst.v) + at * Group::kValueBytes);
  if (thread < kDim) {  // a dimension's scale
    const T* const elements = reinterpret_cast<const T*>(keys);
    Range range(to_float(elements[kv_element(0, thread, kDim)]));
    TF_UNROLL_N(8)
    for (int r = 1; r < kKvGroup; ++r) {
      range.add(Range(to_float(elements[kv_element(r, thread, kDim)])));
    }
    const std::uint32_t bits = Scale<kBits>::bits_of(range);
    key_scales[thread] = bits;
    to_keys[Group::kCodeBytes / 4 + thread] = bits;
  }
  {  // a row's scale, by two threads of a warp
    const int lane = thread % 32, r = thread / 32 * 16 + lane % 16,
              first = lane / 16 * (kParts / 2);
    Range range(to_float(Part<T>(values[kv_part(r, first, kDim) / kPartElements]).x[0]));
    TF_UNROLL
    for (int c = 0; c < kParts / 2; ++c) {
      const Part<T> part(values[kv_part(r, first + c, kDim) / kPartElements]);
      TF_UNROLL
      for (int j = 0; j < kPartElements; ++j) range.add(Range(to_float(part.x[j])));
    }
    Range other(__shfl_xor_sync(0xffffffffU, range.least, 16));
    other.largest = __shfl_xor_sync(0xffffffffU, range.largest, 16);
    range.add(other);
    const std::uint32_t bits = Scale<kBits>::bits_of(range);
    if (lane < 16) {
      value_scales[r] = bits;
      to_values[Group::kCodeBytes / 4 + r] = bits;
    }
  }
  __syncthreads();
  const int c = thread % kParts;
  Scale<kBits> scales[kPartElements];
  TF_UNROLL
  for (int j = 0; j < kPartElements; ++j) {
    scales[j] = Scale<kBits>(key_scales[c * kPartElements + j]);
  }
  TF_UNROLL_N(1)
  for (int i = thread; i < kTile; i += kThreads) {
    const int r = i / kParts, place = static_cast<int>(kv_part(r, c, kDim)) / kPartElements;
    store_codes<Group>(
        Part<T>(keys[place]), [&](int j) { return scales[j]; }, to_keys + i * Group::kPartWords);
    const Scale<kBits> of_row(value_scales[r]);
    store_codes<Group>(
        Part<T>(values[place]), [&](int) { return of_row; }, to_values + i * Group::kPartWords);
  }
}

}  // namespace

void quantise_rows(const KvView& src, std::int64_t src_row, const KvView& dst, std::int64_t group,
                   std::int64_t count, cudaStream_t stream) {
  with_rows_and_groups_of(dst, [&](auto rows, auto dim) {
    using Rows = RowsOf<decltype(rows)>;
    if constexpr (Rows::kBits > 0) {
      constexpr int kDim = dim;
      constexpr std::size_t kShared =
          std::size_t{2} * kKvGroup * kDim * 2 + (kDim + kKvGroup) * kKvScaleBytes;
      launch(quantise_rows_kernel<typename Rows::Element, kDim, Rows::kBits>,
             dims(count, dst.kv_heads), dims(kThreads), kShared, stream, src, src_row, dst.older,
             group);
    }
  });
}

}  // namespace triforce::kernels
