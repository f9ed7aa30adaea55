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

constexpr int kCandidates = 8192;  // more than that, and the row is searched as a whole
constexpr int kFilteredMin = 2 * kGroups;
constexpr int kFilteredMax = 2 * kVector * kGroups;
static_assert(kFilteredMax <= 1 << 16, "positions are 16 bits");

struct Candidates {
  static constexpr bool kRuns = true;

  uint32_t keys[kCandidates];
  uint16_t positions[kCandidates];
  uint32_t count;
  uint32_t low;  // all candidates lie in [low, high]
  uint32_t high;

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    for (uint32_t i = threadIdx.x; i < count; i += kScanThreads) f(keys[i], static_cast<int>(positions[i]));
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

// Adds the positions of a warp's scores that reach the bound, which is not 0, to `out`.
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
  for (int first = lane; first - lane < count; first += kBatch * 32) {
    float4 v[kBatch][Vectors];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int entry = first + b * 32;
      const int start = entry < count ? reaching[entry] * kSize : row.length;
#pragma unroll
      for (int i = 0; i < Vectors; ++i) v[b][i] = row.load(start + i * kVector, whole);
    }
    uint32_t hits = 0u;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first - lane + b * 32 < count) hits |= reaching_bits(v[b], least) << (b * kSize);
    }
    uint32_t place = reserve(static_cast<uint32_t>(__popc(hits)), out.count);
    for (; hits != 0u && place < kCandidates; hits &= hits - 1u, ++place) {
      const int bit = __ffs(static_cast<int>(hits)) - 1;
      out.positions[place] = static_cast<uint16_t>(reaching[first + bit / kSize * 32] * kSize + bit % kSize);
    }
  }
}

// Fills in the keys of those that this thread will visit. Read once more, several at once: registers can't be
// chosen by a number.
__device__ inline void find_keys(const ScoreRow& row, Candidates& out) {
  for (uint32_t first = threadIdx.x; first < out.count; first += kBatch * kScanThreads) {
    float score[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const uint32_t i = first + b * kScanThreads;
      score[b] = row.scores[out.positions[i < out.count ? i : first]];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const uint32_t i = first + b * kScanThreads;
      if (i < out.count) out.keys[i] = order_key(score[b]);
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
  if (out.count > kCandidates) return false;
  find_keys(row, out);
  return true;
}

}  // namespace dsa
