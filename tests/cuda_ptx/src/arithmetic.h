// What opcodes compute, a lane at a time: functions of values, and loops that apply them.
#pragma once
#include <cfenv>
#include <cmath>

#include "machine.h"
#include "tf_half_bits.h"

namespace tf_ptx::detail {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

// --- Arithmetic. Integers wrap round; f32 and f64 are the host's, which round to nearest even.
template <class T>
using Bits = std::make_unsigned_t<T>;

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Bits<T>>(a) + static_cast<Bits<T>>(b));
    else
      return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Bits<T>>(a) - static_cast<Bits<T>>(b));
    else
      return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Bits<T>>(a) * static_cast<Bits<T>>(b));
    else
      return a * b;
  }
};
// What division by zero gives is not specified: all ones, as devices do.
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return static_cast<T>(~T{0});
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub{}(T{0}, a);
      return static_cast<T>(a / b);
    } else {
      return a / b;
    }
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T{0};
    return static_cast<T>(a % b);
  }
};
// Of floats: a NaN loses against a number, -0 is less than +0, two NaNs give the canonical one.
template <class T, bool kLeast>
T extreme(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) {
      return sizeof(T) == 4 ? static_cast<T>(std::bit_cast<float>(0x7fffffffu))
                            : static_cast<T>(std::bit_cast<double>(u64{0x7fffffffffffffff}));
    }
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) == kLeast ? a : b;
  }
  return (a < b) == kLeast ? a : b;
}
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return extreme<T, true>(a, b);
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return extreme<T, false>(a, b);
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>)
      return Sub{}(T{0}, a);
    else
      return -a;
  }
};
struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};
struct Abs {
  float operator()(float a) const { return std::fabs(a); }
};
struct Sqrt {
  float operator()(float a) const { return std::sqrt(a); }
};
struct Reciprocal {
  float operator()(float a) const { return 1.0F / a; }
};
// The upper 32 bits of 1 / a, those below zero.
struct RoughReciprocal {
  double operator()(double a) const {
    return std::bit_cast<double>(std::bit_cast<u64>(1.0 / a) & 0xffffffff00000000u);
  }
};
inline float flushed(float a) { return std::fabs(a) < 0x1p-126F ? std::copysign(0.0F, a) : a; }
// 2^a. Devices are off by up to 2 units in the last place.
struct Exp2 {
  float operator()(float a) const { return std::exp2(a); }
};
struct FlushedExp2 {
  float operator()(float a) const { return flushed(std::exp2(flushed(a))); }
};
struct Saturate {
  float operator()(float a) const { return a > 1 ? 1.0F : a > 0 ? a : 0.0F; }
};
struct Fma {
  float operator()(float a, float b, float c) const { return std::fma(a, b, c); }
  double operator()(double a, double b, double c) const { return std::fma(a, b, c); }
};
struct FmaDown {  // rounded down
  float operator()(float a, float b, float c) const {
    std::fesetround(FE_DOWNWARD);
    const volatile float x = a, y = b, z = c;
    const volatile float sum = std::fma(x, y, z);
    std::fesetround(FE_TONEAREST);
    return sum;
  }
};
struct MulAdd {
  s32 operator()(s32 a, s32 b, s32 c) const { return Add{}(Mul{}(a, b), c); }
};
struct ReverseBits {
  u32 operator()(u32 a) const {
    u32 out = 0;
    for (unsigned i = 0; i < 32; ++i) out |= (a >> i & 1u) << (31 - i);
    return out;
  }
};
struct LeadingZeros {
  u32 operator()(u32 a) const { return static_cast<u32>(std::countl_zero(a)); }
};
// By how much the highest bit that is set has to go left; none: all ones.
struct FindShift {
  u32 operator()(u32 a) const { return a == 0 ? ~u32{0} : LeadingZeros{}(a); }
};

// --- Conversions
struct FromHalf {
  float operator()(u16 a) const { return tf_emulator::detail::float_of_half(a); }
};
struct FromBfloat {
  float operator()(u16 a) const { return tf_emulator::detail::float_of_bfloat(a); }
};
struct ToHalf {
  u16 operator()(float a) const { return tf_emulator::detail::half_of_float(a); }
};
struct ToBfloat {
  u16 operator()(float a) const { return tf_emulator::detail::bfloat_of_float(a); }
};
// Of both 16-bit elements of pairs, each rounded once.
template <class From, class To>
struct FmaOfPairs {
  u32 operator()(u32 a, u32 b, u32 c) const {
    u32 out = 0;
    for (int shift = 0; shift < 32; shift += 16) {
      const auto of = [&](u32 pair) { return From{}(static_cast<u16>(pair >> shift)); };
      out |= u32{To{}(tf_emulator::detail::fma_to_odd(of(a), of(b), of(c)))} << shift;
    }
    return out;
  }
};
// The nearest whole number, the even one of two.
struct Nearest {
  float operator()(float a) const { return std::nearbyint(a); }
};
template <class To>
struct Convert {
  template <class T>
  To operator()(T a) const {
    return static_cast<To>(a);
  }
};
// Towards zero; what does not fit becomes the nearest that does, a NaN 0.
template <class To>
struct Truncate {
  To operator()(float a) const {
    if (std::isnan(a)) return 0;
    const double whole = std::trunc(static_cast<double>(a));
    if (whole <= static_cast<double>(std::numeric_limits<To>::min()))
      return std::numeric_limits<To>::min();
    if (whole >= static_cast<double>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
  }
};

// --- Over lanes
template <class To, class From, class F>
void one(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes,
                [&](int i) { set<To>(w, in.operand[0], i, F{}(get<From>(w, in.operand[1], i))); });
}
// The same of the low bits of a register that may be wider.
template <class To, class From, class F>
void one_of_low(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    set<To>(w, in.operand[0], i, F{}(static_cast<From>(get_bits(w, in.operand[1], i))));
  });
}
template <class T, class F>
void two(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    set<T>(w, in.operand[0], i, F{}(get<T>(w, in.operand[1], i), get<T>(w, in.operand[2], i)));
  });
}
template <class T, class F>
void three(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    set<T>(
        w, in.operand[0], i,
        F{}(get<T>(w, in.operand[1], i), get<T>(w, in.operand[2], i), get<T>(w, in.operand[3], i)));
  });
}
template <class T>
void copy(Warp& w, const Instruction& in, LaneMask lanes) {
  one<T, T, Same>(w, in, lanes);
}
template <class To, class From>
void multiply_wide(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    set<To>(
        w, in.operand[0], i,
        static_cast<To>(To{get<From>(w, in.operand[1], i)} * To{get<From>(w, in.operand[2], i)}));
  });
}
// Past the last bit: zeros, or the sign.
template <class T>
void shift_left(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    const u32 by = get<u32>(w, in.operand[2], i);
    set<T>(w, in.operand[0], i,
           by >= 8 * sizeof(T) ? T{0} : static_cast<T>(get<T>(w, in.operand[1], i) << by));
  });
}
template <class T>
void shift_right(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    const T value = get<T>(w, in.operand[1], i);
    const u32 by = get<u32>(w, in.operand[2], i), most = 8 * sizeof(T) - 1;
    const T past = value < T{0} ? static_cast<T>(~T{0}) : T{0};
    set<T>(w, in.operand[0], i, by > most ? past : static_cast<T>(value >> by));
  });
}
// b with the lowest bits of a, as many as operand 4 says, from bit operand 3 on.
template <class T>
void insert_bits(Warp& w, const Instruction& in, LaneMask lanes) {
  constexpr u32 kBits = 8 * sizeof(T);
  for_each_lane(lanes, [&](int i) {
    const u32 at = get<u32>(w, in.operand[3], i) & 255u,
              count = get<u32>(w, in.operand[4], i) & 255u;
    const T low = count >= kBits ? ~T{0} : (T{1} << count) - 1;
    const T there = at >= kBits ? T{0} : low << at;
    const T value = at >= kBits ? T{0} : get<T>(w, in.operand[1], i) << at;
    set<T>(w, in.operand[0], i, (get<T>(w, in.operand[2], i) & ~there) | (value & there));
  });
}
// Four of the eight bytes of a (low) and b, as the digits of operand 3 say; digit 8 and up: its
// sign.
inline void permute_bytes(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    const u64 bytes = u64{get<u32>(w, in.operand[2], i)} << 32 | get<u32>(w, in.operand[1], i);
    const u32 select = get<u32>(w, in.operand[3], i);
    u32 out = 0;
    for (u32 k = 0; k < 4; ++k) {
      const u32 digit = select >> 4 * k & 15u;
      u32 byte = static_cast<u32>(bytes >> 8 * (digit & 7u)) & 255u;
      if (digit >= 8) byte = byte >= 128 ? 255u : 0u;
      out |= byte << 8 * k;
    }
    set<u32>(w, in.operand[0], i, out);
  });
}
// Each bit from those of operands 1 to 3, which say, the first highest, which bit of the number.
inline void look_up_bits(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    u32 out = 0;
    for (u32 row = 0; row < 8; ++row) {
      if ((in.number >> row & 1) == 0) continue;
      u32 rows = ~u32{0};
      for (u32 k = 0; k < 3; ++k) {
        const u32 bits = get<u32>(w, in.operand[k + 1], i);
        rows &= (row >> (2 - k) & 1u) != 0 ? bits : ~bits;
      }
      out |= rows;
    }
    set<u32>(w, in.operand[0], i, out);
  });
}
// operand 0 = {1, 2, ...}, the first lowest; each of `bytes`.
inline void join(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    u64 bits = 0;
    for (u32 k = 1; k < in.operands; ++k) {
      bits |= (get_bits(w, in.operand[k], i) & (~u64{0} >> (64 - 8 * in.bytes)))
              << (8 * in.bytes * (k - 1));
    }
    set_bits(w, in.operand[0], i, bits);
  });
}
// {0, 1, ...} = the last operand.
inline void part(Warp& w, const Instruction& in, LaneMask lanes) {
  for_each_lane(lanes, [&](int i) {
    const u64 bits = get_bits(w, in.operand[in.operands - 1u], i);
    for (u32 k = 0; k + 1 < in.operands; ++k) {
      set_bits(w, in.operand[k], i, bits >> (8 * in.bytes * k) & (~u64{0} >> (64 - 8 * in.bytes)));
    }
  });
}
template <class T>
void select(Warp& w, const Instruction& in, LaneMask lanes) {
  const LaneMask first = get_predicate(w, in.operand[3]);
  for_each_lane(lanes, [&](int i) {
    set<T>(w, in.operand[0], i, get<T>(w, in.operand[(first >> i & 1u) != 0 ? 1 : 2], i));
  });
}
template <class F>
void predicates(Warp& w, const Instruction& in, LaneMask lanes, F f) {
  set_predicate(w, in.operand[0], lanes, f(get_predicate(w, in.operand[1])));
}
inline void copy_predicate(Warp& w, const Instruction& in, LaneMask lanes) {
  predicates(w, in, lanes, [](LaneMask a) { return a; });
}
inline void not_predicate(Warp& w, const Instruction& in, LaneMask lanes) {
  predicates(w, in, lanes, [](LaneMask a) { return ~a; });
}
template <class F>
void two_predicates(Warp& w, const Instruction& in, LaneMask lanes) {
  const LaneMask b = get_predicate(w, in.operand[2]);
  predicates(w, in, lanes, [&](LaneMask a) { return F{}(a, b); });
}

// Comparisons; those that end in U are true of NaNs.
struct Eq {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Ne {
  template <class T>
  bool operator()(T a, T b) const {
    return a != b && !(a != a || b != b);
  }
};
struct Lt {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct Ge {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct NeU {
  template <class T>
  bool operator()(T a, T b) const {
    return !(a == b);
  }
};
struct LtU {
  template <class T>
  bool operator()(T a, T b) const {
    return !(a >= b);
  }
};
struct LeU {
  template <class T>
  bool operator()(T a, T b) const {
    return !(a > b);
  }
};
struct GtU {
  template <class T>
  bool operator()(T a, T b) const {
    return !(a <= b);
  }
};
struct GeU {
  template <class T>
  bool operator()(T a, T b) const {
    return !(a < b);
  }
};
struct Nan {
  template <class T>
  bool operator()(T a, T b) const {
    return a != a || b != b;
  }
};
struct Num {
  template <class T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};
template <class T, class F>
void compare(Warp& w, const Instruction& in, LaneMask lanes) {
  LaneMask result = 0;
  for_each_lane(lanes, [&](int i) {
    result |= static_cast<LaneMask>(F{}(get<T>(w, in.operand[1], i), get<T>(w, in.operand[2], i)))
              << i;
  });
  set_predicate(w, in.operand[0], lanes, result);
}

}  // namespace tf_ptx::detail
