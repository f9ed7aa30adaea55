// How an index vector becomes stored bytes.
//
// An encoder writes a vector's values and scales (a stored number stands for code * scale) and returns
// its scale, which a query with `kFoldsScale` multiplies into its head weight instead of storing it:
// `scales` is then null. All lanes of the warp take part; those that are not `live` write nothing.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "index_vector.cuh"
#include "rounding.cuh"
#include "sizes.cuh"

namespace dsa {

// The larger of a magnitude and a running maximum that is no NaN; NaN is passed over.
__device__ __forceinline__ float larger(float a, float maximum) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, maximum);
#else
  return a > maximum ? a : maximum;
#endif
}

__device__ __forceinline__ float chunk_amax(const float (&x)[kChunk]) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) amax = larger(magnitude(x[i]), amax);
  return amax;
}

// Largest in aligned groups of `lanes` lanes.
__device__ __forceinline__ float amax_over_lanes(float amax, int lanes) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    amax = larger(__shfl_xor_sync(full_warp, amax, offset), amax);
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

__device__ __forceinline__ uint32_t pack_e4m3fn(const float (&x)[kChunk], float factor) {
  return pair_to_e4m3fn(x[0] * factor, x[1] * factor) | pair_to_e4m3fn(x[2] * factor, x[3] * factor) << 16;
}

__device__ __forceinline__ uint2 pack_bf16(const float (&x)[kChunk]) {
  return make_uint2(to_bf16(x[0]) | static_cast<uint32_t>(to_bf16(x[1])) << 16,
                    to_bf16(x[2]) | static_cast<uint32_t>(to_bf16(x[3])) << 16);
}

template <Ties ties>
__device__ __forceinline__ uint32_t pack_e2m1(const float (&x)[kChunk], float factor) {
  uint32_t packed = 0;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) packed |= static_cast<uint32_t>(to_e2m1<ties>(x[i] * factor)) << (4 * i);
  return packed;
}

enum class ScaleKind { fp32, power_of_two, unit };

// e4m3fn with one scale: float32, a float32 power of two (rounded up), or none.
template <ScaleKind kind>
struct Fp8Encoder {
  static constexpr int kValueBytes = kIndexDim;
  static constexpr int kScaleBytes = kind == ScaleKind::unit ? 0 : 4;
  static constexpr bool kFoldsScale = true;
  ScaleRule rule;

  __device__ __forceinline__ float operator()(const IndexVector& v, unsigned lane, bool live, unsigned char* values,
                                              unsigned char* scales) const {
    float scale = 1.0f, factor = 1.0f;
    if constexpr (kind != ScaleKind::unit) {
      float amax = 0.0f;
#pragma unroll
      for (int j = 0; j < kVectorChunks; ++j) amax = larger(chunk_amax(v.chunk[j]), amax);
      scale = rule(amax_over_lanes(amax, kVectorLanes), kMaxE4m3);
      if constexpr (kind == ScaleKind::fp32) {
        factor = 1.0f / scale;
      } else {
        const uint32_t exponent = ceil_ue8m0(scale);
        factor = reciprocal_power(exponent);
        scale = power_of_two(exponent);
      }
    }
    if (!live) return scale;
#pragma unroll
    for (int j = 0; j < kVectorChunks; ++j) {
      reinterpret_cast<uint32_t*>(values)[j * kVectorLanes + lane] = pack_e4m3fn(v.chunk[j], factor);
    }
    if (kScaleBytes != 0 && scales != nullptr && lane == 0) *reinterpret_cast<float*>(scales) = scale;
    return scale;
  }
};

// bfloat16, no scale.
struct Bf16Encoder {
  static constexpr int kValueBytes = 2 * kIndexDim;
  static constexpr int kScaleBytes = 0;
  static constexpr bool kFoldsScale = false;

  __device__ __forceinline__ float operator()(const IndexVector& v, unsigned lane, bool live, unsigned char* values,
                                              unsigned char*) const {
    if (!live) return 1.0f;
#pragma unroll
    for (int j = 0; j < kVectorChunks; ++j) {
      reinterpret_cast<uint2*>(values)[j * kVectorLanes + lane] = pack_bf16(v.chunk[j]);
    }
    return 1.0f;
  }
};

// e2m1 in 4 groups of 32, which are chunk j of all lanes, one UE8M0 byte a group; the even element is the
// low nibble.
template <Ties ties>
struct Fp4Encoder {
  static constexpr int kValueBytes = kIndexDim / 2;
  static constexpr int kScaleBytes = 4;
  static constexpr bool kFoldsScale = false;
  ScaleRule rule;

  __device__ __forceinline__ float operator()(const IndexVector& v, unsigned lane, bool live, unsigned char* values,
                                              unsigned char* scales) const {
    uint32_t packed[kVectorChunks];
    uint32_t exponents = 0;
#pragma unroll
    for (int j = 0; j < kVectorChunks; ++j) {
      const uint32_t exponent = ceil_ue8m0(rule(amax_over_lanes(chunk_amax(v.chunk[j]), kVectorLanes), kMaxE2m1));
      packed[j] = pack_e2m1<ties>(v.chunk[j], reciprocal_power(exponent));
      exponents |= exponent << (8 * j);
    }
    // A chunk is two bytes. Two lanes trade halves, so that each has whole words: an even lane those of
    // groups 0 and 2, an odd lane those of 1 and 3, and one store of the warp fills 32-byte sectors.
    const bool odd = lane % 2 != 0;
    const uint32_t give = odd ? packed[0] | packed[2] << 16 : packed[1] | packed[3] << 16;
    const uint32_t taken = __shfl_xor_sync(full_warp, give, 1);
    if (!live) return 1.0f;
    auto* words = reinterpret_cast<uint32_t*>(values) + (odd ? kVectorLanes / 2 : 0) + lane / 2;
    words[0] = odd ? (taken & 0xffffu) | packed[1] << 16 : packed[0] | taken << 16;
    words[kVectorLanes] = odd ? taken >> 16 | packed[3] << 16 : packed[2] | (taken & 0xffff0000u);
    if (lane == 0) *reinterpret_cast<uint32_t*>(scales) = exponents;
    return 1.0f;
  }
};

}  // namespace dsa
