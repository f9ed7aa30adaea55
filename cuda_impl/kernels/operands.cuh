// Stored vectors as operands of the matrix unit: how each format's bytes become pairs of 16-bit floats.
//
// The unit takes K = 16 elements a step, of which lane t of four holds elements 2t, 2t + 1, 2t + 8 and
// 2t + 9. A dot product may visit its elements in any order, so each step takes four consecutive
// elements of what lane t has loaded, and both operands agree on the order: 16-byte chunk 4c + t of a
// stored vector is lane t's, for steps kSteps * c + s. All conversions are exact.
#pragma once

#include <cstdint>

#include "device.cuh"

#if defined(__CUDACC__)

namespace dsa {

// Products of two pairs of fp16 values, subnormals kept.
__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
  uint32_t halves;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(a), "r"(b));
  return halves;
}

// Four e4m3 codes to fp16 values: exact, NaN stays NaN.
__device__ __forceinline__ void halves_of_e4m3(uint32_t four, uint32_t& low, uint32_t& high) {
#if __CUDA_ARCH__ >= 890
  // Both halves of the register are named, so that the upper one is converted without a shift.
  asm("{\n.reg .b16 first, second;\nmov.b32 {first, second}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, first;\ncvt.rn.f16x2.e4m3x2 %1, second;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
#else
  // The fields of a code moved to where fp16 has them are its value / 2^8, subnormals too. Adding one to the
  // largest magnitude, NaN, carries into the exponent's top bit, which makes an fp16 NaN of it.
  const auto convert = [](uint32_t wide) {
    const uint32_t magnitude = wide >> 1 & 0x3F803F80u;
    const uint32_t nan = (magnitude + 0x00800080u) & 0x40004000u;
    return multiply_halves((wide & 0x80008000u) | magnitude | nan, 0x5C005C00u);
  };
  low = convert(__byte_perm(four, 0u, 0x1404));
  high = convert(__byte_perm(four, 0u, 0x3424));
#endif
}

// max(x, 0), NaN for NaN.
__device__ __forceinline__ float relu(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// 2 max(x, 0) of a finite x or NaN, for |x| below 2^127. Additions are twice as fast as maxima.
__device__ __forceinline__ float twice_relu(float x) { return x + fabsf(x); }

// A format: bytes of values and scales of a key, bytes of a query record, 16-byte chunks of a vector that
// one lane holds, and the steps that each of them covers.
//   pairs(chunk, shift, step, low, high): elements 0, 1 and 2, 3 of a step of one chunk;
//   rectified(x): kRectified max(x, 0) of a product, NaN for NaN. Weights are divided by kRectified.
struct Fp8Operand {
  static constexpr int kValueBytes = 128, kScaleBytes = 4, kQueryBytes = 128;
  static constexpr int kChunks = 2, kSteps = 4;
  static constexpr bool kBf16 = false, kGrouped = false;
  static constexpr float kRectified = 2.0f;

  __device__ static float rectified(float x) { return twice_relu(x); }
  __device__ static void pairs(const uint4& chunk, uint32_t, int step, uint32_t& low, uint32_t& high) {
    const uint32_t word = step == 0 ? chunk.x : step == 1 ? chunk.y : step == 2 ? chunk.z : chunk.w;
    halves_of_e4m3(word, low, high);
  }
};

struct Bf16Operand {
  static constexpr int kValueBytes = 256, kScaleBytes = 0, kQueryBytes = 256;
  static constexpr int kChunks = 4, kSteps = 2;
  static constexpr bool kBf16 = true, kGrouped = false;
  static constexpr float kRectified = 1.0f;  // bf16 products reach infinity

  __device__ static float rectified(float x) { return relu(x); }
  __device__ static void pairs(const uint4& chunk, uint32_t, int step, uint32_t& low, uint32_t& high) {
    low = step == 0 ? chunk.x : chunk.z;
    high = step == 0 ? chunk.y : chunk.w;
  }
};

// e2m1 with a power-of-two scale for each 32 elements. A chunk is one group, so a lane's group has one
// scale, and it enters the 16-bit exponent: `shift` is its exponent above the vector's reference (the
// largest less kTop). fp16 holds shifts of kTop - kSpread to kTop; a wider spread of scales is left to
// the caller. An e2m1 code is the e4m3 code of its value / 64, so the fp8 conversion does the rest.
struct Fp4Operand {
  static constexpr int kValueBytes = 64, kScaleBytes = 4, kQueryBytes = 68;
  static constexpr int kChunks = 1, kSteps = 8;
  static constexpr bool kBf16 = false, kGrouped = true;
  static constexpr int kTop = 9, kSpread = 26;
  static constexpr float kRectified = 2.0f;

  __device__ static float rectified(float x) { return twice_relu(x); }
  // A step is the even or the odd elements of eight; both operands agree on it.
  __device__ static void pairs(const uint4& chunk, uint32_t shift, int step, uint32_t& low, uint32_t& high) {
    const uint32_t word = step / 2 == 0 ? chunk.x : step / 2 == 1 ? chunk.y : step / 2 == 2 ? chunk.z : chunk.w;
    const uint32_t signs = (step % 2 == 0 ? word << 4 : word) & 0x80808080u;
    const uint32_t codes = signs | ((step % 2 == 0 ? word << 2 : word >> 2) & 0x1C1C1C1Cu);
    const uint32_t power = (shift + 15u + 6u) * 0x04000400u;
    halves_of_e4m3(codes, low, high);
    low = multiply_halves(low, power);
    high = multiply_halves(high, power);
  }
};

__device__ __forceinline__ int largest_byte(uint32_t bytes) {
  const int low = max(static_cast<int>(bytes & 0xFFu), static_cast<int>(bytes >> 8 & 0xFFu));
  return max(low, max(static_cast<int>(bytes >> 16 & 0xFFu), static_cast<int>(bytes >> 24)));
}

__device__ __forceinline__ int smallest_byte(uint32_t bytes) { return 255 - largest_byte(~bytes); }

// Whether fp16 can hold every group of a vector beside the largest: also false for a NaN scale (255).
__device__ __forceinline__ bool scales_fit(uint32_t scales) {
  const int top = largest_byte(scales);
  return top < 255 && top - smallest_byte(scales) <= Fp4Operand::kSpread;
}

__device__ __forceinline__ uint32_t group_shift(uint32_t scales, int group) {
  return (scales >> (8 * group) & 0xFFu) - largest_byte(scales) + Fp4Operand::kTop;
}

// x * 2^(top - 127 - kTop): what is left of the scales once the shifts are in the elements.
__device__ __forceinline__ float reference_scale(float x, uint32_t scales) {
  const int top = largest_byte(scales);
  const float power = __uint_as_float(top == 0 ? 0x00400000u : static_cast<uint32_t>(top) << 23);
  return x * 0.001953125f * power;
}

}  // namespace dsa

#endif
