// Rotary embedding of the last 64 elements, pairs (2i, 2i+1): (a, b) -> (a c - b s, a s + b c).
// The float32 table holds c0, s0, c1, s1, ... for each position.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "index_vector.cuh"
#include "sizes.cuh"

namespace dsa {

// Rotates a chunk by its four numbers of the table.
__device__ __forceinline__ void rotate(float (&x)[kChunk], float4 t) {
  const float cosine[2] = {t.x, t.z}, sine[2] = {t.y, t.w};
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const float a = x[2 * pair], b = x[2 * pair + 1];
    x[2 * pair] = a * cosine[pair] - b * sine[pair];
    x[2 * pair + 1] = a * sine[pair] + b * cosine[pair];
  }
}

__device__ __forceinline__ const float4* angles_of(const float* table, int64_t position) {
  return reinterpret_cast<const float4*>(table + position * kRopeDim);
}

// What the table holds for an index vector, loaded long before it is needed.
struct Angles {
  static_assert(2 * kRopeDim == kIndexDim, "the second half of a vector's chunks is rotated");
  static constexpr int kFirst = kVectorChunks / 2;
  float4 of_chunk[kVectorChunks - kFirst];

  __device__ __forceinline__ void load(const float* table, int64_t position, unsigned lane) {
#pragma unroll
    for (int j = kFirst; j < kVectorChunks; ++j) {
      of_chunk[j - kFirst] = angles_of(table, position)[(j - kFirst) * kVectorLanes + lane];
    }
  }
};

__device__ __forceinline__ void rope(IndexVector& v, const Angles& angles) {
#pragma unroll
  for (int j = Angles::kFirst; j < kVectorChunks; ++j) rotate(v.chunk[j], angles.of_chunk[j - Angles::kFirst]);
}

}  // namespace dsa
