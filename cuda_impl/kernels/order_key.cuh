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

// The least float whose key is at least `key`, of a key above 0 and at most that of infinity.
__device__ inline float least_of_key(uint32_t key) {
  const uint32_t minus_infinity = 0x007FFFFFu;
  const uint32_t least = key < minus_infinity ? minus_infinity : key;
  return __uint_as_float(least & 0x80000000u ? least & 0x7FFFFFFFu : ~least);
}

}  // namespace dsa
