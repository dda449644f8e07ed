// The built-in vector types of CUDA that the kernels use.
#pragma once

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define TF_EMULATOR_VECTORS(name, scalar, align2, align4)                 \
  struct alignas(align2) name##2 {                                        \
    scalar x, y;                                                          \
  };                                                                      \
  struct alignas(align4) name##4 {                                        \
    scalar x, y, z, w;                                                    \
  };                                                                      \
  constexpr name##2 make_##name##2(scalar x, scalar y) { return {x, y}; } \
  constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
TF_EMULATOR_VECTORS(char, signed char, 2, 4)
TF_EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
TF_EMULATOR_VECTORS(short, short, 4, 8)
TF_EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
TF_EMULATOR_VECTORS(int, int, 8, 16)
TF_EMULATOR_VECTORS(uint, unsigned, 8, 16)
TF_EMULATOR_VECTORS(float, float, 8, 16)
#undef TF_EMULATOR_VECTORS

struct float3 {
  float x, y, z;
};
struct int3 {
  int x, y, z;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
constexpr float3 make_float3(float x, float y, float z) { return {x, y, z}; }
constexpr int3 make_int3(int x, int y, int z) { return {x, y, z}; }
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
constexpr double2 make_double2(double x, double y) { return {x, y}; }
constexpr longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
constexpr ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
