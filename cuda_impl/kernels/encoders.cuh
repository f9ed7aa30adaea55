// How a warp's 128-element vector becomes stored bytes.
//
// An encoder turns a lane's 4 elements into `Packed` bytes (lane l's lie at l * sizeof(Packed)) and
// a scale: a stored number stands for code * scale. `put_scale` writes the scale bytes of a vector,
// `kScaleBytes` long. `kFoldsScale` says whether a query's scale multiplies its head weight instead of
// being stored.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "rounding.cuh"
#include "sizes.cuh"

namespace dsa {

template <class T>
struct Encoded {
  T packed;
  float scale;
};

// Largest magnitude in aligned groups of `lanes` lanes; NaN is passed over.
__device__ __forceinline__ float group_amax(const float (&x)[kPerLane], int lanes) {
  float amax = 0.0f;
  for (int i = 0; i < kPerLane; ++i) {
    const float a = magnitude(x[i]);
    amax = a > amax ? a : amax;
  }
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(full_warp, amax, offset);
    amax = other > amax ? other : amax;
  }
  return amax;
}

// The float32 quotient max(floor, amax) / max_value, by division or by the rounded reciprocal.
struct ScaleRule {
  float amax_floor;
  bool by_reciprocal;
  __device__ __forceinline__ float operator()(float amax, float max_value) const {
    const float bounded = amax > amax_floor ? amax : amax_floor;
    return by_reciprocal ? bounded * (1.0f / max_value) : bounded / max_value;
  }
};

__device__ __forceinline__ uint32_t pack_e4m3fn(const float (&x)[kPerLane], float factor) {
  uint32_t packed = 0;
  for (int i = 0; i < kPerLane; ++i) packed |= static_cast<uint32_t>(to_e4m3fn(x[i] * factor)) << (8 * i);
  return packed;
}

__device__ __forceinline__ uint2 pack_bf16(const float (&x)[kPerLane]) {
  return make_uint2(to_bf16(x[0]) | static_cast<uint32_t>(to_bf16(x[1])) << 16,
                    to_bf16(x[2]) | static_cast<uint32_t>(to_bf16(x[3])) << 16);
}

enum class ScaleKind { fp32, power_of_two, unit };

// e4m3fn with one scale: float32, a float32 power of two (rounded up), or none.
template <ScaleKind kind>
struct Fp8Encoder {
  using Packed = uint32_t;
  static constexpr int kScaleBytes = kind == ScaleKind::unit ? 0 : 4;
  static constexpr bool kFoldsScale = true;
  ScaleRule rule;

  __device__ __forceinline__ Encoded<Packed> operator()(const float (&x)[kPerLane]) const {
    if constexpr (kind == ScaleKind::unit) return {pack_e4m3fn(x, 1.0f), 1.0f};
    const float quotient = rule(group_amax(x, 32), kMaxE4m3);
    if constexpr (kind == ScaleKind::fp32) return {pack_e4m3fn(x, 1.0f / quotient), quotient};
    const uint32_t exponent = ceil_ue8m0(quotient);
    return {pack_e4m3fn(x, reciprocal_power(exponent)), power_of_two(exponent)};
  }
  __device__ __forceinline__ static void put_scale(unsigned char* scales, unsigned lane, float scale) {
    if (kScaleBytes != 0 && lane == 0) *reinterpret_cast<float*>(scales) = scale;
  }
};

// bfloat16, no scale.
struct Bf16Encoder {
  using Packed = uint2;
  static constexpr int kScaleBytes = 0;
  static constexpr bool kFoldsScale = false;

  __device__ __forceinline__ Encoded<Packed> operator()(const float (&x)[kPerLane]) const { return {pack_bf16(x), 1.0f}; }
  __device__ __forceinline__ static void put_scale(unsigned char*, unsigned, float) {}
};

// e2m1 in 4 groups of 32 (8 lanes each), one UE8M0 byte a group; the even element is the low nibble.
template <Ties ties>
struct Fp4Encoder {
  using Packed = uint16_t;
  static constexpr int kScaleBytes = 4;
  static constexpr bool kFoldsScale = false;
  ScaleRule rule;

  __device__ __forceinline__ Encoded<Packed> operator()(const float (&x)[kPerLane]) const {
    const uint32_t exponent = ceil_ue8m0(rule(group_amax(x, 8), kMaxE2m1));
    const float factor = reciprocal_power(exponent);
    uint32_t packed = 0;
    for (int i = 0; i < kPerLane; ++i) packed |= static_cast<uint32_t>(to_e2m1<ties>(x[i] * factor)) << (4 * i);
    return {static_cast<uint16_t>(packed), power_of_two(exponent)};
  }
  __device__ __forceinline__ static void put_scale(unsigned char* scales, unsigned lane, float scale) {
    if (lane % 8 == 0) scales[lane / 8] = static_cast<unsigned char>(__float_as_uint(scale) >> 23);
  }
};

}  // namespace dsa
