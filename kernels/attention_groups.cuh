// Tiles of keys and values that are groups of codes (kv_layout.cuh): they arrive in shared memory
// as they lie, and then their values are written to a tile that is as one of plain rows.
#pragma once
#include "kernels/attention_tile.cuh"
#include "kernels/weights.cuh"

namespace triforce::kernels {

static_assert(kKvGroup == kTileKeys);

// Groups of a lane that are valid, which all lie before its plain rows.
template <class Rows>
TF_DEVICE int groups_before(const KvLanes& lanes, unsigned lane) {
  if constexpr (RowsOf<Rows>::kBits == 0) return 0;
  return lanes.kv.older.used[lane];
}
// The lane's rows, with those of its groups.
template <class Rows>
TF_DEVICE std::int64_t whole_length(const KvLanes& lanes, unsigned lane, int groups) {
  const std::int64_t length = lanes.kv.length[lane];
  if constexpr (RowsOf<Rows>::kBits == 0) return length;
  return length + std::int64_t{groups} * kKvGroup;
}
// The same where it is known at run time alone whether there are any.
TF_DEVICE std::int64_t rows_before(const KvLanes& lanes, unsigned lane) {
  return lanes.kv.older.k == nullptr ? 0 : std::int64_t{lanes.kv.older.used[lane]} * kKvGroup;
}

// Copies kParts of 16 bytes as they lie.
template <int kParts>
TF_DEVICE void load_parts(const std::byte* from, uint4* to) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint4* const parts = reinterpret_cast<const uint4*>(from) + thread;
  to += thread;
  TF_UNROLL
  for (int i = 0; i < kParts; i += kAttentionThreads) {
    if (i + kAttentionThreads <= kParts || thread < kParts - i) {
      ptx::cp_async16(to + i, parts + i, true);
    }
  }
}

// The code that lies in `stored` from bit kAt on, exactly. Or-ed into the fraction of a power of
// two it is added to it, and that is taken off again.
template <int kBits, int kAt>
TF_DEVICE float code_of(std::uint32_t stored) {
  static_assert(kAt + kBits <= 23);
  constexpr std::uint32_t kMask = ((1U << kBits) - 1) << kAt, kPower = (127U + 23 - kAt) << 23;
  constexpr auto kLess = static_cast<float>((1 << (23 - kAt)) + (1 << (kBits - 1)));
  return __uint_as_float(ptx::and_or(stored, kMask, kPower)) - kLess;
}
// The codes of a part.
template <int kBits>
struct alignas(kBits / 4 * 4) PartCodes {
  std::uint32_t words[kBits / 4];
};
// Codes 4 kHalf to 4 kHalf + 3 of a part.
template <int kBits, int kHalf>
TF_DEVICE void four_codes(const PartCodes<kBits>& part, float (&codes)[4]) {
  const std::uint32_t low = part.words[kBits == 8 ? kHalf : 0], high = low >> 16;
  constexpr int kAt = kBits == 8 ? 0 : kHalf * 8;
  codes[0] = code_of<kBits, kAt>(low);
  codes[kBits == 8 ? 2 : 1] = code_of<kBits, kAt>(high);
  codes[kBits == 8 ? 1 : 2] = code_of<kBits, kAt + kBits>(low);
  codes[3] = code_of<kBits, kAt + kBits>(high);
}

// What codes are multiplied with, and what is added.
struct CodeRange {
  float scale, zero;
  CodeRange() = default;
  TF_DEVICE explicit CodeRange(std::uint32_t bits) {
    __half both[2];
    memcpy(both, &bits, sizeof bits);
    scale = __half2float(both[0]);
    zero = __half2float(both[1]);
  }
  TF_DEVICE float value(float code) const { return fmaf(code, scale, zero); }
};
// Values of a part's codes half a part at a time, each half with ranges of its own.
template <class T, int kBits>
struct HalfPartRanges {
  CodeRange ranges[4];
  TF_DEVICE explicit HalfPartRanges(const uint4& bits)
      : ranges{CodeRange(bits.x), CodeRange(bits.y), CodeRange(bits.z), CodeRange(bits.w)} {}
  TF_DEVICE explicit HalfPartRanges(std::uint32_t bits_of_all)
      : HalfPartRanges(uint4{bits_of_all, bits_of_all, bits_of_all, bits_of_all}) {}
  template <int kHalf>
  TF_DEVICE uint2 values(const PartCodes<kBits>& part) const {
    float codes[4];
    four_codes<kBits, kHalf>(part, codes);
    return {pack_pair<T>(ranges[0].value(codes[0]), ranges[1].value(codes[1])),
            pack_pair<T>(ranges[2].value(codes[2]), ranges[3].value(codes[3]))};
  }
};
// The same of 4 bits in f16, which rounds once: with ranges that are made of f16 a value of 4 bits
// that is not rounded is always one of f32, so that rounding to that first changes nothing.
template <>
struct HalfPartRanges<__half, 4> {
  std::uint32_t scale[2], zero[2];  // of pairs
  TF_DEVICE explicit HalfPartRanges(const uint4& bits)
      : scale{low_halves(bits.x, bits.y), low_halves(bits.z, bits.w)},
        zero{low_halves(bits.x >> 16, bits.y >> 16), low_halves(bits.z >> 16, bits.w >> 16)} {}
  TF_DEVICE explicit HalfPartRanges(std::uint32_t bits_of_all)
      : HalfPartRanges(uint4{bits_of_all, bits_of_all, bits_of_all, bits_of_all}) {}
  template <int kHalf>
  TF_DEVICE uint2 values(const PartCodes<4>& part) const {
    const std::uint32_t word = part.words[0] >> (kHalf * 8);
    return {ptx::fma_pairs<__half>(codes_of<__half, 4, 0>(word), scale[0], zero[0]),
            ptx::fma_pairs<__half>(codes_of<__half, 4, 4>(word), scale[1], zero[1])};
  }

 private:
  TF_DEVICE static std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) {
    return (a & 0xffffU) | b << 16;
  }
};

// kKeys rows each of kTileKeys / kKeys groups in shared memory.
template <class T, int kDim, int kBits, int kKeys = kTileKeys>
class CodeStage {
 public:
  using Group = KvGroup<kDim, kBits>;
  static constexpr int kRuns = kTileKeys / kKeys;
  // In parts of 16 bytes.
  static constexpr int kRunCodes = kKeys * Group::kRowBytes / 16, kKeyScales = kDim / 4,
                       kValueScales = kKeys / 4, kCodes = kRuns * kRunCodes,
                       kStageParts = 2 * kCodes + kRuns * (kKeyScales + kValueScales);

  // Rows [first, first + kKeys) of a group of a head become run `run` of the stage `to`.
  TF_DEVICE static void load(const KvLanes& lanes, unsigned lane, int head, std::int64_t group,
                             int first, int run, uint4* to) {
    const KvGroups& older = lanes.kv.older;
    const std::int64_t at = head * older.capacity + group;
    const std::byte* const k =
        static_cast<const std::byte*>(older.k) + lane * lanes.older_k_step + at * Group::kKeyBytes;
    const std::byte* const v = static_cast<const std::byte*>(older.v) + lane * lanes.older_v_step +
                               at * Group::kValueBytes;
    load_parts<kRunCodes>(k + first * Group::kRowBytes, to + run * kRunCodes);
    load_parts<kRunCodes>(v + first * Group::kRowBytes, to + kCodes + run * kRunCodes);
    load_parts<kKeyScales>(k + Group::kCodeBytes, to + 2 * kCodes + run * kKeyScales);
    load_parts<kValueScales>(v + Group::kCodeBytes + first * kKvScaleBytes,
                             to + 2 * kCodes + kRuns * kKeyScales + run * kValueScales);
  }

  // The values of run `run` to tiles, in the pattern of load_tile().
  TF_DEVICE static void write_values(const uint4* stage, int run, uint4* keys, uint4* values) {
    const int thread = static_cast<int>(ptx::opaque(threadIdx.x) % kAttentionThreads);
    const int part = thread % kParts, first = thread / kParts;
    // Rows that are on their way at once: compilers for these take more registers for them.
    [[maybe_unused]] constexpr int kUnroll = ptx::compiled_for<1000, 1200>() ? 2 : 8;
    const auto* const of_keys = reinterpret_cast<const Codes*>(stage + run * kRunCodes);
    const auto write_keys = [&](auto part_half) {  // fewer scales in registers
      const Ranges ranges(stage[2 * kCodes + run * kKeyScales + part * 2 + part_half]);
      TF_UNROLL_N(kUnroll)
      for (int row = 0; row < kKeys; row += kRowsAtOnce) {
        reinterpret_cast<uint2*>(keys + place(row + first, part))[part_half] =
            ranges.template values<part_half>(of_keys[row * kParts + thread]);
      }
    };
    write_keys(std::integral_constant<int, 0>{});
    write_keys(std::integral_constant<int, 1>{});
    const auto* const of_values = reinterpret_cast<const Codes*>(stage + kCodes + run * kRunCodes);
    const auto* const scales = reinterpret_cast<const std::uint32_t*>(
        stage + 2 * kCodes + kRuns * kKeyScales + run * kValueScales);
    TF_UNROLL_N(kUnroll)
    for (int row = 0; row < kKeys; row += kRowsAtOnce) {
      const Ranges ranges(scales[row + first]);
      const Codes codes = of_values[row * kParts + thread];
      const uint2 low = ranges.template values<0>(codes), high = ranges.template values<1>(codes);
      values[place(row + first, part)] = {low.x, low.y, high.x, high.y};
    }
  }

 private:
  static constexpr int kParts = kDim / kPartElements, kRowsAtOnce = kAttentionThreads / kParts;
  static_assert(kKeys % kRowsAtOnce == 0);
  using Codes = PartCodes<kBits>;
  using Ranges = HalfPartRanges<T, kBits>;
  TF_DEVICE static int place(int row, int part) {
    return static_cast<int>(kv_part(row, part, kDim)) / kPartElements;
  }
};

}  // namespace triforce::kernels
