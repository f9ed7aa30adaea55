// A block's share of a row, kept in registers: read once, reduced to maxima of groups, and looked through
// again for what reaches a bound.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "candidates.cuh"
#include "device.cuh"
#include "kth_largest.cuh"
#include "maxima.cuh"
#include "order_key.cuh"
#include "score_row.cuh"

namespace dsa {

constexpr int kHeldVectors = 8;  // of a thread
constexpr int kHeldGroups = 2;   // of them, each with its maximum
constexpr int kGroupVectors = kHeldVectors / kHeldGroups;
constexpr int kShareMax = kHeldVectors * kVector * kScanThreads;

// This thread's scores of a share. A warp has neighbouring scores, and reads 32 vectors of them at a time: its
// scores are in order of vector, lane, place in the vector.
struct Held {
  float4 v[kHeldVectors];
  int length;  // of the share

  __device__ static int start(int i) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    return ((warp * kHeldVectors + i) * 32 + lane) * kVector;
  }

  __device__ explicit Held(const ScoreRow& share) : length(share.length) {
    const bool whole = share.aligned();
#pragma unroll
    for (int i = 0; i < kHeldVectors; ++i) v[i] = share.load(start(i), whole);
  }

  __device__ Maxima<kHeldGroups> maxima() const {
    Maxima<kHeldGroups> of;
#pragma unroll
    for (int g = 0; g < kHeldGroups; ++g) {
      float4 group[kGroupVectors];
#pragma unroll
      for (int i = 0; i < kGroupVectors; ++i) group[i] = v[g * kGroupVectors + i];
      of.key[g] = largest_key(group);
    }
    return of;
  }

  // Range of a share's maxima, of which the `wanted` largest will be sought.
  __device__ Range range(const Maxima<kHeldGroups>& maxima, uint32_t wanted, RangeShared& shared) const {
    uint32_t low = ~0u, high = 0u;
    maxima.visit([&](uint32_t key, int g) {
      if (start(g * kGroupVectors) < length) low = key < low ? key : low;
      high = key > high ? key : high;
    });
    return range_of_block(low, high, wanted, shared);
  }

  // One bit a score that reaches the bound, the lowest for v[0].x.
  __device__ uint32_t reaching(uint32_t bound) const {
    if (bound > 0u) return reaching_bits(v, least_of_key(bound));  // nothing past the length: that is NaN
    uint32_t bits = 0u;
#pragma unroll
    for (int i = 0; i < kHeldVectors; ++i) {
      const int left = length - start(i);
      bits |= (left >= kVector ? 15u : left > 0 ? (1u << left) - 1u : 0u) << (i * kVector);
    }
    return bits;
  }

  // Groups of a share of that length that have a score.
  __device__ static int groups(int length) {
    constexpr int kWarpScores = kGroupVectors * 32 * kVector;  // of the groups of a warp of the same number
    const int rest = ceil_divide(length % kWarpScores, kVector);
    return length / kWarpScores * 32 + (rest < 32 ? rest : 32);
  }
};

}  // namespace dsa
