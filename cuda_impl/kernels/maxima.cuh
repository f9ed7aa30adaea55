// Maxima of groups of neighbouring scores: each thread keeps those of its own groups in registers.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "kth_largest.cuh"
#include "order_key.cuh"
#include "score_row.cuh"

namespace dsa {

constexpr int kGroups = 4096;  // of a block at most, of one or two vectors each
constexpr int kThreadGroups = kGroups / kScanThreads;

// Largest keys of a thread's groups. A group that does not exist has the lowest key: it changes no k-th
// largest of at least k groups.
template <int Groups>
struct Maxima {
  static constexpr bool kRuns = false;

  uint32_t key[Groups];

  template <class Visit>
  __device__ void visit(Visit&& f) const {
#pragma unroll
    for (int i = 0; i < Groups; ++i) f(key[i], i);
  }
  __device__ static constexpr uint32_t times(int) { return 1u; }
};

// The larger of two scores; of a NaN and a number the number. A host's fmaxf may be NaN where one is signalling.
__device__ __forceinline__ float larger_score(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a > b || b != b ? a : b;
#endif
}

// Largest of some vectors, NaN passed over; NaN if there is nothing else.
template <int Vectors>
__device__ __forceinline__ uint32_t largest_key(const float4 (&v)[Vectors]) {
  float most = __uint_as_float(0x7FFFFFFFu);
#pragma unroll
  for (int i = 0; i < Vectors; ++i) {
    most = larger_score(most, larger_score(larger_score(v[i].x, v[i].y), larger_score(v[i].z, v[i].w)));
  }
  return order_key(most);
}

// Group i of thread t is the (i * kScanThreads + t)-th of the row. Returns the range of all maxima.
template <int Vectors>
__device__ inline Range find_maxima(const ScoreRow& row, int k, Maxima<kThreadGroups>& maxima, RangeShared& shared) {
  constexpr int kSize = Vectors * kVector;
  const bool whole = row.aligned();
  uint32_t low = ~0u, high = 0u;
#pragma unroll
  for (int first = 0; first < kThreadGroups; first += kBatch) {
    float4 v[kBatch][Vectors];
    const int start = (first * kScanThreads + static_cast<int>(threadIdx.x)) * kSize;
    const auto load = [&](auto&& one) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int i = 0; i < Vectors; ++i) v[b][i] = one(start + b * kScanThreads * kSize + i * kVector);
      }
    };
    // Loads that depend on no branch: several are under way at once.
    if (whole && (first + kBatch) * kScanThreads * kSize <= row.length) {
      load([&](int at) { return row.vector(at); });
    } else {
      load([&](int at) { return row.load(at, whole); });
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const uint32_t key = largest_key(v[b]);
      maxima.key[first + b] = key;
      if (start + b * kScanThreads * kSize < row.length) low = key < low ? key : low;
      high = key > high ? key : high;
    }
  }
  return range_of_block(low, high, static_cast<uint32_t>(k), shared);
}

}  // namespace dsa
