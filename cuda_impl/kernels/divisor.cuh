// Division of sizes known at launch: 64-bit division is dozens of instructions, and most divisors are
// powers of two.
#pragma once

#include <cstdint>

#include "device.cuh"

namespace dsa {

struct Divided {
  int64_t quotient;
  int64_t remainder;
};

// A positive divisor of numbers >= 0.
struct Divisor {
  int64_t value;
  int shift;  // log2 of a power of two, else -1

  explicit Divisor(int64_t divisor) : value(divisor), shift(-1) {
    if ((divisor & (divisor - 1)) != 0) return;
    for (shift = 0; int64_t{1} << shift < divisor;) ++shift;
  }

  __device__ __forceinline__ Divided divide(int64_t n) const {
    if (shift >= 0) return {n >> shift, n & (value - 1)};
    return {n / value, n % value};
  }
};

}  // namespace dsa
