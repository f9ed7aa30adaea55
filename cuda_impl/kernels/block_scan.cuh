// Prefix sums over a block of kScanThreads threads.
#pragma once

#include <cstdint>

#include "device.cuh"

namespace dsa {

constexpr int kScanThreads = 512;
constexpr int kScanWarps = kScanThreads / 32;

// Inclusive prefix sum over a warp.
__device__ inline uint32_t warp_inclusive_sum(uint32_t value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t below = __shfl_up_sync(full_warp, value, step);
    if (lane >= step) value += below;
  }
  return value;
}

// Sum over the threads below this one. Every thread of the block calls it; warp_sums is shared and free
// again after the block's next barrier.
__device__ inline uint32_t block_prefix_sum(uint32_t value, uint32_t (&warp_sums)[kScanWarps]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const uint32_t inclusive = warp_inclusive_sum(value);
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  // Each warp scans the warp sums itself: one barrier less than sharing one warp's answer.
  const uint32_t sums = warp_inclusive_sum(lane < kScanWarps ? warp_sums[lane] : 0u);
  const uint32_t below = __shfl_sync(full_warp, sums, warp > 0 ? warp - 1 : 0);
  return inclusive - value + (warp > 0 ? below : 0u);
}

}  // namespace dsa
