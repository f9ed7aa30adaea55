// A run of scores as a source of keys: `visit(f)` calls f(key, position) for each, every thread of the
// block for its own, in ascending order of the position.
#pragma once

#include <cmath>
#include <cstdint>

#include "block_scan.cuh"
#include "order_key.cuh"

namespace dsa {

constexpr int kVector = 4;  // consecutive scores a thread reads at once

struct ScoreRow {
  const float* scores;
  int length;

  __device__ bool aligned() const { return reinterpret_cast<uintptr_t>(scores) % sizeof(float4) == 0; }

  // Scores of [at, at + kVector); what lies past the length is NaN, which ranks below everything.
  __device__ float4 load(int at, bool whole) const {
    if (whole && at + kVector <= length) return *reinterpret_cast<const float4*>(scores + at);
    const float none = __uint_as_float(0x7FFFFFFFu);
    return make_float4(at < length ? scores[at] : none, at + 1 < length ? scores[at + 1] : none,
                       at + 2 < length ? scores[at + 2] : none, at + 3 < length ? scores[at + 3] : none);
  }

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    const bool whole = aligned();
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * kVector; at < length; at += kScanThreads * kVector) {
      const int first = static_cast<int>(at);
      const float4 four = load(first, whole);
      f(order_key(four.x), first);
      if (first + 1 < length) f(order_key(four.y), first + 1);
      if (first + 2 < length) f(order_key(four.z), first + 2);
      if (first + 3 < length) f(order_key(four.w), first + 3);
    }
  }
};

}  // namespace dsa
