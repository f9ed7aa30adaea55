// RMSNorm in float32: (x * rsqrt(sum(x^2) / n + eps)) * weight.
//
// Order of the sum: ((x0^2 + x1^2) + x2^2) + x3^2 in a chunk, then chunks 16, 8, 4, 2, 1 apart among
// 32 in a row, then (latent rows) the four runs of 32 chunks in order.
#pragma once

#include "device.cuh"
#include "index_vector.cuh"
#include "sizes.cuh"

namespace dsa {

__device__ __forceinline__ float sum_of_squares(const float (&x)[kChunk]) {
  float sum = x[0] * x[0];
#pragma unroll
  for (int i = 1; i < kChunk; ++i) sum = sum + x[i] * x[i];
  return sum;
}

// Sums over aligned groups of `lanes` lanes.
__device__ __forceinline__ float sum_over_lanes(float sum, int lanes) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) sum = sum + __shfl_xor_sync(full_warp, sum, offset);
  return sum;
}

__device__ __forceinline__ void apply_norm(float (&x)[kChunk], float factor, const float4* weight) {
  float w[kChunk];
  load_chunk(w, weight);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) x[i] = (x[i] * factor) * w[i];
}

// An index vector; `weight` has 32 chunks.
__device__ __forceinline__ void rms_norm(IndexVector& v, float eps, const float4* weight, unsigned lane) {
  static_assert(kVectorChunks == 4 && kVectorLanes == 8, "chunks 16 and 8 apart lie in one lane");
  const float apart16 = sum_of_squares(v.chunk[0]) + sum_of_squares(v.chunk[2]);
  const float sum = apart16 + (sum_of_squares(v.chunk[1]) + sum_of_squares(v.chunk[3]));
  const float factor = __frsqrt_rn(sum_over_lanes(sum, kVectorLanes) * (1.0f / kIndexDim) + eps);
#pragma unroll
  for (int j = 0; j < kVectorChunks; ++j) apply_norm(v.chunk[j], factor, weight + j * kVectorLanes + lane);
}

// One block of 4 warps, 512 elements, a chunk a thread.
__device__ __forceinline__ void rms_norm_block(float (&x)[kChunk], float eps, const float4* weight) {
  __shared__ float partial[kWarpsPerBlock];
  const float sum = sum_over_lanes(sum_of_squares(x), 32);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  const float total = ((partial[0] + partial[1]) + partial[2]) + partial[3];
  apply_norm(x, __frsqrt_rn(total * (1.0f / kLatentDim) + eps), weight);
}

}  // namespace dsa
