// exp for arguments at or below zero, in plain float32 multiplications and additions.
//
// The math libraries of the two compilers disagree in the last bit, and a hardware exp2 is
// approximate; this one gives the same bits wherever float arithmetic is IEEE and not contracted.
#pragma once

#include "device.cuh"

namespace dsa {

// 2^n for n in [-126, 127].
__device__ inline float power_of_two(int n) { return __uint_as_float(static_cast<unsigned int>(n + 127) << 23); }

// exp(x) for x <= 0, within 1 unit in the last place of every argument (0.98 at worst, 0.76 where the
// result is subnormal). 0 for x < -104; exp(-0.0) = exp(0.0) = 1; exp(-inf) = 0; NaN for NaN.
__device__ inline float exp_nonpositive(float x) {
  if (x < -104.0f) return 0.0f;
  if (!(x == x)) return x;
  // Adding and removing 1.5 * 2^23 rounds to the nearest integer.
  const float n = (x * 1.44269502f + 12582912.0f) - 12582912.0f;
  // ln 2 in two parts; the first has nine significant bits, so that its product with n is exact.
  const float r = (x - n * 0.693359375f) - n * -2.12194442e-4f;
  // Degree 6, fitted so that the largest relative error of exp on |r| <= ln(2) / 2 is least (0.07 ulp).
  const float tail = 0.49999994f + r * (0.1666652f + r * (0.041668408f + r * (0.0083689215f + r * 0.0013814174f)));
  const float mantissa = 1.0f + (r + r * r * tail);
  // Two factors: the first product is exact, so a subnormal result is rounded only once.
  const int whole = static_cast<int>(n);
  const int half = whole / 2;
  return mantissa * power_of_two(half) * power_of_two(whole - half);
}

}  // namespace dsa
