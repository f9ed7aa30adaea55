// float32 scores as integers that compare as the selection does.
#pragma once

#include <cstdint>

#include "device.cuh"

namespace dsa {

// Larger key = better score. -0.0 equals +0.0; every NaN, of either sign, is 0, below -inf.
__device__ inline uint32_t order_key(float score) {
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));  // -0.0 becomes +0.0
  const auto negative = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
  return score == score ? bits ^ (negative | 0x80000000u) : 0u;
}

// The least float whose key is at least `key`, of a key above 0 and at most that of infinity.
__device__ inline float least_of_key(uint32_t key) {
  const uint32_t minus_infinity = 0x007FFFFFu;
  const uint32_t least = key < minus_infinity ? minus_infinity : key;
  return __uint_as_float(least & 0x80000000u ? least & 0x7FFFFFFFu : ~least);
}

}  // namespace dsa
