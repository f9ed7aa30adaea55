// Rotary embedding of the last 64 elements, pairs (2i, 2i+1): (a, b) -> (a c - b s, a s + b c).
// The float32 table holds c0, s0, c1, s1, ... for each position.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "sizes.cuh"

namespace dsa {

// `first` is the index of x[0] in the head of `dim` elements; elements before the last 64 stay.
__device__ __forceinline__ void rope(float (&x)[kPerLane], int first, int dim, const float* table, int64_t position) {
  const int angle = first - (dim - kRopeDim);
  if (angle < 0) return;
  const float4 t = *reinterpret_cast<const float4*>(table + position * kRopeDim + angle);
  const float cosine[2] = {t.x, t.z}, sine[2] = {t.y, t.w};
  for (int pair = 0; pair < 2; ++pair) {
    const float a = x[2 * pair], b = x[2 * pair + 1];
    x[2 * pair] = a * cosine[pair] - b * sine[pair];
    x[2 * pair + 1] = a * sine[pair] + b * cosine[pair];
  }
}

}  // namespace dsa
