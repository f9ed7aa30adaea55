// float32 scores as integers that compare as the selection does.
#pragma once

#include <cstdint>

#include "device.cuh"

namespace dsa {

// Larger key = better score. -0.0 equals +0.0; every NaN, of either sign, is 0, below -inf.
__device__ inline uint32_t order_key(float score) {
  const uint32_t bits = __float_as_uint(score);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0u;
  if (bits == 0x80000000u) return 0x80000000u;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

}  // namespace dsa
