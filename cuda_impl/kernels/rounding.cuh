// float32 to bfloat16, e4m3fn, e2m1 and UE8M0, the same bits on every machine: in integer code, and by
// the GPU's own conversion where a test has compared the two for every float.
//
// Sources: OCP 8-bit Floating Point Specification (e4m3fn), OCP Microscaling Formats (e2m1, e8m0).
#pragma once

#include <cstdint>

#include "device.cuh"

namespace dsa {

constexpr float kMaxE4m3 = 448.0f;
constexpr float kMaxE2m1 = 6.0f;

enum class Ties { even, toward_zero };

__device__ __forceinline__ float magnitude(float x) { return __uint_as_float(__float_as_uint(x) & 0x7fffffffu); }

// Nearest bfloat16, ties to even. Overflow goes to infinity; NaN keeps its sign and becomes 0x7fc0.
__device__ __forceinline__ uint16_t to_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__device__ __forceinline__ float round_bf16(float x) { return __uint_as_float(static_cast<uint32_t>(to_bf16(x)) << 16); }

// Nearest e4m3fn of x clamped to +-448, ties to even. NaN becomes 0x7f; -0 keeps its sign.
__device__ __forceinline__ uint8_t to_e4m3fn(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t a = bits & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7f;
  if (a >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);
  if (a < 0x3c800000u) {
    // Below 2^-6 codes count multiples of 2^-9, the spacing of floats at 2^14: the sum rounds.
    return static_cast<uint8_t>(sign | (__float_as_uint(__uint_as_float(a) + 16384.0f) - 0x46800000u));
  }
  const uint32_t rounded = a + 0x7ffffu + (a >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

// Two codes, the first in the low byte.
__device__ __forceinline__ uint32_t pair_to_e4m3fn(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return to_e4m3fn(low) | static_cast<uint32_t>(to_e4m3fn(high)) << 8;
#endif
}

// Nearest e2m1 of x clamped to +-6: how many midpoints between neighbours |x| has passed.
// Ties::even counts a midpoint whose upper neighbour is even as passed when met, and keeps the sign
// of zero; Ties::toward_zero counts none when met, and never makes a negative zero. NaN becomes 0.
template <Ties ties>
__device__ __forceinline__ uint8_t to_e2m1(float x) {
  const float a = magnitude(x);
  constexpr bool even = ties == Ties::even;
  uint32_t code = 0;
  code += a > 0.25f;
  code += even ? a >= 0.75f : a > 0.75f;
  code += a > 1.25f;
  code += even ? a >= 1.75f : a > 1.75f;
  code += a > 2.5f;
  code += even ? a >= 3.5f : a > 3.5f;
  code += a > 5.0f;
  const bool nan = !(a == a);
  const bool keep_sign = !nan && (even || code != 0);
  return static_cast<uint8_t>(code | (keep_sign ? __float_as_uint(x) >> 28 & 8u : 0u));
}

// Biased exponent of the smallest power of two >= x (x > 0), by exponent bits. Infinity gives 254.
__device__ __forceinline__ uint32_t ceil_ue8m0(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0u);
  return exponent < 254u ? exponent : 254u;
}

// 2^(exponent - 127) and its reciprocal, for a biased exponent of 1 to 253.
__device__ __forceinline__ float power_of_two(uint32_t exponent) { return __uint_as_float(exponent << 23); }
__device__ __forceinline__ float reciprocal_power(uint32_t exponent) { return __uint_as_float((254u - exponent) << 23); }

}  // namespace dsa
