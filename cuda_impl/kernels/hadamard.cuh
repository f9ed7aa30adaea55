// 128-point Walsh-Hadamard transform of a warp's vector, natural (Sylvester) order, times
// fl(128^-1/2) once at the end. Additions: strides 1 and 2 in the lane, then 4 to 64 across lanes.
#pragma once

#include "device.cuh"
#include "sizes.cuh"

namespace dsa {

__device__ __forceinline__ void hadamard(float (&x)[kPerLane], unsigned lane) {
  for (int stride = 1; stride < kPerLane; stride *= 2) {
    for (int i = 0; i < kPerLane; ++i) {
      if (i & stride) continue;
      const float low = x[i], high = x[i + stride];
      x[i] = low + high;
      x[i + stride] = low - high;
    }
  }
  for (unsigned stride = 1; stride < 32; stride *= 2) {
    const bool upper = lane & stride;
    for (int i = 0; i < kPerLane; ++i) {
      const float other = __shfl_xor_sync(full_warp, x[i], static_cast<int>(stride));
      x[i] = upper ? other - x[i] : x[i] + other;
    }
  }
  constexpr float scale = 0.088388347648318447f;
  for (int i = 0; i < kPerLane; ++i) x[i] = x[i] * scale;
}

}  // namespace dsa
