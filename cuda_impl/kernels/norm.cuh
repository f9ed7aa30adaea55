// RMSNorm in float32: (x * rsqrt(sum(x^2) / n + eps)) * weight.
//
// Order of the sum: ((x0^2 + x1^2) + x2^2) + x3^2 in a lane, then lane pairs 16, 8, 4, 2, 1 apart,
// then (latent rows) warps 0, 1, 2, 3.
#pragma once

#include "sizes.cuh"
#include "device.cuh"

namespace dsa {

__device__ __forceinline__ float sum_of_squares(const float (&x)[kPerLane]) {
  float sum = x[0] * x[0];
  for (int i = 1; i < kPerLane; ++i) sum = sum + x[i] * x[i];
  for (int offset = 16; offset > 0; offset /= 2) sum = sum + __shfl_xor_sync(full_warp, sum, offset);
  return sum;
}

__device__ __forceinline__ void apply_norm(float (&x)[kPerLane], float sum, float inverse_count, float eps, float4 weight) {
  const float w[kPerLane] = {weight.x, weight.y, weight.z, weight.w};
  const float factor = __frsqrt_rn(sum * inverse_count + eps);
  for (int i = 0; i < kPerLane; ++i) x[i] = (x[i] * factor) * w[i];
}

// One warp, 128 elements.
__device__ __forceinline__ void rms_norm_warp(float (&x)[kPerLane], float eps, float4 weight) {
  apply_norm(x, sum_of_squares(x), 1.0f / kIndexDim, eps, weight);
}

// One block of 4 warps, 512 elements.
__device__ __forceinline__ void rms_norm_block(float (&x)[kPerLane], float eps, float4 weight) {
  __shared__ float partial[kWarpsPerBlock];
  const float sum = sum_of_squares(x);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  const float total = ((partial[0] + partial[1]) + partial[2]) + partial[3];
  apply_norm(x, total, 1.0f / kLatentDim, eps, weight);
}

}  // namespace dsa
