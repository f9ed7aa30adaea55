// The few scores of a long row that can belong to its k largest.
//
// The maxima of disjoint groups are scores of the row, so the k-th largest of the maxima is at most the
// k-th largest score: whatever lies below it is out. With random scores about 1.3 k are left, found by
// one sweep that takes maxima and a second look at those groups that reach the bound.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "kth_largest.cuh"
#include "maxima.cuh"
#include "order_key.cuh"
#include "score_row.cuh"

namespace dsa {

constexpr int kCandidates = 6144;  // more than that, and the row is searched as a whole
constexpr int kFilteredMin = 2 * kGroups;
constexpr int kFilteredMax = 2 * kVector * kGroups;
static_assert(kGroups <= 1 << 16, "groups are numbered in 16 bits");

struct Candidates {
  static constexpr bool kRuns = true;

  uint2 entries[kCandidates];  // a score's bits and its position
  uint32_t count;
  uint32_t low;  // all their keys lie in [low, high]
  uint32_t high;

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    for (uint32_t i = threadIdx.x; i < count; i += kScanThreads) {
      f(order_key(__uint_as_float(entries[i].x)), static_cast<int>(entries[i].y));
    }
  }
};

struct FilterShared {
  uint16_t reaching[kScanWarps][32 * kThreadGroups];  // groups of a warp whose maximum reaches the bound
};

// Place of the first of this thread's `own` entries in a list that the block fills in any order: one
// atomic a warp. Every lane calls it.
__device__ inline uint32_t reserve(uint32_t own, uint32_t& count) {
  const uint32_t inclusive = warp_inclusive_sum(own);
  uint32_t place = 0u;
  if (threadIdx.x % 32 == 31 && inclusive > 0u) place = atomicAdd(&count, inclusive);
  return __shfl_sync(full_warp, place, 31) + inclusive - own;
}

// One bit a score, the lowest for v[0].x: whether it is at least `least`, which is not NaN.
template <int Vectors>
__device__ __forceinline__ uint32_t reaching_bits(const float4 (&v)[Vectors], float least) {
  uint32_t bits = 0u;
#pragma unroll
  for (int i = 0; i < Vectors; ++i) {
    bits |= (v[i].x >= least ? 1u : 0u) << (i * kVector);
    bits |= (v[i].y >= least ? 1u : 0u) << (i * kVector + 1);
    bits |= (v[i].z >= least ? 1u : 0u) << (i * kVector + 2);
    bits |= (v[i].w >= least ? 1u : 0u) << (i * kVector + 3);
  }
  return bits;
}

// Adds a warp's scores that reach the bound, which is not 0, to `out`.
template <int Vectors>
__device__ inline void look_again(const ScoreRow& row, const Maxima<kThreadGroups>& maxima, uint32_t bound,
                                  uint16_t* reaching, Candidates& out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int count = 0;
  maxima.visit([&](uint32_t key, int i) {
    const uint32_t votes = __ballot_sync(full_warp, key >= bound);
    const int place = count + __popc(votes & ((1u << lane) - 1u));
    if (key >= bound) reaching[place] = static_cast<uint16_t>(i * kScanThreads + static_cast<int>(threadIdx.x));
    count += __popc(votes);
  });
  __syncwarp();

  constexpr int kSize = Vectors * kVector;
  const bool whole = row.aligned();
  const float least = least_of_key(bound);
  float4 v[Vectors];
  // A group a lane; what lies past the row is NaN.
  const auto load = [&](int entry) {
    const int start = entry < count ? reaching[entry] * kSize : row.length;
#pragma unroll
    for (int i = 0; i < Vectors; ++i) v[i] = row.load(start + i * kVector, whole);
    return start;
  };
  int start = load(lane);
  // Not unrolled: a block comes through here once, and has to fetch every instruction that it executes.
#pragma unroll 1
  for (int first = 0; first < count; first += 32) {
    float4 now[Vectors];
#pragma unroll
    for (int i = 0; i < Vectors; ++i) now[i] = v[i];
    const int here = start;
    start = load(first + 32 + lane);  // while this one is looked through
    const auto own = static_cast<uint32_t>(__popc(reaching_bits(now, least)));
    uint32_t place = reserve(own, out.count);
    if (place + own > kCandidates) continue;
    const auto add = [&](float score, int position) {
      if (score >= least) out.entries[place++] = make_uint2(__float_as_uint(score), static_cast<uint32_t>(position));
    };
#pragma unroll
    for (int i = 0; i < Vectors; ++i) {
      const int at = here + i * kVector;
      add(now[i].x, at);
      add(now[i].y, at + 1);
      add(now[i].z, at + 2);
      add(now[i].w, at + 3);
    }
  }
}

// Fills `out` for groups of `Vectors` vectors, in no particular order; returns false if there are too many
// candidates. The row has at least k groups; the scope's bins need no barrier yet.
template <int Vectors>
__device__ inline bool filter_groups(const ScoreRow& row, int k, FilterShared& filter, Candidates& out,
                                     RangeShared& shared, BlockScope& scope) {
  if (threadIdx.x == 0) out.count = 0u;
  Maxima<kThreadGroups> maxima;
  Range range = find_maxima<Vectors>(row, k, maxima, shared);
  const uint32_t highest = range.high;
  if (range.low < range.high) narrow(maxima, range, shared, scope);
  if (range.low == 0u) return false;
  if (threadIdx.x == 0) {
    out.low = range.low;
    out.high = highest;
  }
  look_again<Vectors>(row, maxima, range.low, filter.reaching[threadIdx.x / 32], out);
  __syncthreads();
  return out.count <= kCandidates;
}

}  // namespace dsa
