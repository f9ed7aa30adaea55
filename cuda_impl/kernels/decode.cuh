// Stored codes back to float32, one 32-bit word at a time. Every decode is exact.
//
// A codec says how a vector of kHeadDim elements is stored: kValueWords words of values, then
// kScaleWords words of scales (in a cache page the scales of all tokens follow the values of all
// tokens; in a query record they follow its own values). `decode_word` turns a word of values
// into kPerWord elements; `score_factor` is what is left to multiply the score with.
#pragma once

#include <cstdint>

#include "device.cuh"

namespace dsa {

constexpr int kHeadDim = 128;

// e4m3fn (OCP): bias 7, no infinity, S.1111.111 is NaN.
__device__ inline float decode_e4m3fn(uint32_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7Fu;
  // Subnormals go through an integer conversion: no host or device setting that flushes float
  // subnormals can then change them.
  const uint32_t subnormal = __float_as_uint(static_cast<float>(static_cast<int>(magnitude)) * 0.001953125f);
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const uint32_t finite = magnitude < 8u ? subnormal : normal;
  return __uint_as_float(sign | (magnitude == 0x7Fu ? 0x7FC00000u : finite));
}

// e2m1 (OCP MX): 0, 0.5, 1, 1.5, 2, 3, 4, 6.
__device__ inline float decode_e2m1(uint32_t code) {
  const uint32_t sign = (code & 8u) << 28;
  const uint32_t magnitude = code & 7u;
  const uint32_t subnormal = magnitude * 0x3F000000u;
  const uint32_t normal = (magnitude << 22) + (126u << 23);
  return __uint_as_float(sign | (magnitude < 2u ? subnormal : normal));
}

// UE8M0 (OCP MX): 2^(byte - 127), 255 is NaN; byte 0 is a subnormal float.
__device__ inline float decode_ue8m0(uint32_t byte) {
  const uint32_t finite = byte == 0u ? 0x00400000u : byte << 23;
  return __uint_as_float(byte == 255u ? 0x7FC00000u : finite);
}

// fp8 values, one float32 scale a vector that multiplies the score after the head sum.
struct Fp8 {
  static constexpr int kValueWords = kHeadDim / 4;
  static constexpr int kScaleWords = 1;
  static constexpr int kQueryWords = kValueWords;  // the query's scale is folded into its weight
  static constexpr int kPerWord = 4;

  __device__ static void decode_word(uint32_t word, const uint32_t*, int, float* element) {
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) element[i] = decode_e4m3fn((word >> (8 * i)) & 0xFFu);
  }
  __device__ static float score_factor(const uint32_t* scales) { return __uint_as_float(scales[0]); }
};

// bf16 values without a scale.
struct Bf16 {
  static constexpr int kValueWords = kHeadDim / 2;
  static constexpr int kScaleWords = 0;
  static constexpr int kQueryWords = kValueWords;
  static constexpr int kPerWord = 2;

  __device__ static void decode_word(uint32_t word, const uint32_t*, int, float* element) {
    element[0] = __uint_as_float(word << 16);
    element[1] = __uint_as_float(word & 0xFFFF0000u);
  }
  __device__ static float score_factor(const uint32_t*) { return 1.0f; }
};

// e2m1 values, even element in the low nibble, one UE8M0 byte for every 32 elements. The scale is a
// power of two, so an element times its scale is exact (infinite where it is beyond float32, from 2^126
// up) and the scales belong inside the product.
struct Fp4 {
  static constexpr int kValueWords = kHeadDim / 8;
  static constexpr int kScaleWords = 1;
  static constexpr int kQueryWords = kValueWords + kScaleWords;
  static constexpr int kPerWord = 8;

  __device__ static void decode_word(uint32_t word, const uint32_t* scales, int index, float* element) {
    const float scale = decode_ue8m0((scales[0] >> (8 * (index / 4))) & 0xFFu);
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) element[i] = decode_e2m1((word >> (4 * i)) & 0xFu) * scale;
  }
  __device__ static float score_factor(const uint32_t*) { return 1.0f; }
};

}  // namespace dsa
