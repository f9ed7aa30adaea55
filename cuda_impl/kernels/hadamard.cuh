// 128-point Walsh-Hadamard transform of an index vector, natural (Sylvester) order, times
// fl(128^-1/2) once at the end. Additions by ascending stride: 1 and 2 in a chunk, 4 to 16 across
// lanes, 32 and 64 between a lane's chunks.
#pragma once

#include "device.cuh"
#include "index_vector.cuh"
#include "sizes.cuh"

namespace dsa {

// (low, high) becomes (low + high, low - high).
__device__ __forceinline__ void butterfly(float& low, float& high) {
  const float sum = low + high;
  high = low - high;
  low = sum;
}

__device__ __forceinline__ void hadamard(IndexVector& v, unsigned lane) {
#pragma unroll
  for (int j = 0; j < kVectorChunks; ++j) {
#pragma unroll
    for (int stride = 1; stride < kChunk; stride *= 2) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if ((i & stride) == 0) butterfly(v.chunk[j][i], v.chunk[j][i + stride]);
      }
    }
  }
#pragma unroll
  for (unsigned stride = 1; stride < kVectorLanes; stride *= 2) {
    const uint32_t sign = lane & stride ? 0x80000000u : 0u;
#pragma unroll
    for (int j = 0; j < kVectorChunks; ++j) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const float x = v.chunk[j][i];
        const float other = __shfl_xor_sync(full_warp, x, static_cast<int>(stride));
        v.chunk[j][i] = other + __uint_as_float(__float_as_uint(x) ^ sign);
      }
    }
  }
#pragma unroll
  for (int stride = 1; stride < kVectorChunks; stride *= 2) {
#pragma unroll
    for (int j = 0; j < kVectorChunks; ++j) {
      if (j & stride) continue;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) butterfly(v.chunk[j][i], v.chunk[j + stride][i]);
    }
  }
  constexpr float scale = 0.088388347648318447f;
#pragma unroll
  for (int j = 0; j < kVectorChunks; ++j) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v.chunk[j][i] = v.chunk[j][i] * scale;
  }
}

}  // namespace dsa
