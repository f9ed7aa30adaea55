// A run of scores as a source of keys: `visit(f)` calls f(key, position) for each, every thread of the
// block for its own, in ascending order of the position.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "order_key.cuh"

namespace dsa {

constexpr int kVector = 4;  // consecutive scores a thread reads at once
constexpr int kBatch = 4;   // reads of a thread that are under way together

struct ScoreRow {
  static constexpr bool kRuns = true;  // a thread may meet many equal keys in a row

  const float* scores;
  int length;

  __device__ bool aligned() const { return reinterpret_cast<uintptr_t>(scores) % sizeof(float4) == 0; }

  // Scores of [at, at + kVector) of a row that holds them all and is aligned.
  __device__ float4 vector(int at) const { return *reinterpret_cast<const float4*>(scores + at); }

  // The same of any row; what lies past the length is NaN, which ranks below everything.
  __device__ float4 load(int at, bool whole) const {
    if (whole && at + kVector <= length) return vector(at);
    const float none = __uint_as_float(0x7FFFFFFFu);
    return make_float4(at < length ? scores[at] : none, at + 1 < length ? scores[at + 1] : none,
                       at + 2 < length ? scores[at + 2] : none, at + 3 < length ? scores[at + 3] : none);
  }

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    const bool whole = aligned();
    const int mine = static_cast<int>(threadIdx.x) * kVector;
    constexpr int kStep = kScanThreads * kVector;
    int64_t first = 0;
    // Loads that depend on no branch: several are under way at once.
    for (; whole && first + kBatch * kStep <= length; first += kBatch * kStep) {
      float4 four[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) four[b] = vector(static_cast<int>(first) + b * kStep + mine);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int at = static_cast<int>(first) + b * kStep + mine;
        f(order_key(four[b].x), at);
        f(order_key(four[b].y), at + 1);
        f(order_key(four[b].z), at + 2);
        f(order_key(four[b].w), at + 3);
      }
    }
    for (; first + mine < length; first += kStep) {
      const int at = static_cast<int>(first) + mine;
      const float4 four = load(at, whole);
      f(order_key(four.x), at);
      if (at + 1 < length) f(order_key(four.y), at + 1);
      if (at + 2 < length) f(order_key(four.z), at + 2);
      if (at + 3 < length) f(order_key(four.w), at + 3);
    }
  }
};

}  // namespace dsa
