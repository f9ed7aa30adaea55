// The few scores of a long row that can belong to its k largest.
//
// The maxima of disjoint groups are scores of the row, so the k-th largest of the maxima is at most the
// k-th largest score: whatever lies below it is out. With random scores about 1.3 k are left, found by
// one sweep that takes maxima and a look at those groups again that reach the bound.
#pragma once

#include <cmath>
#include <cstdint>

#include "kth_largest.cuh"
#include "score_row.cuh"

namespace dsa {

constexpr int kGroups = 4096;      // at most, of one or two vectors each
constexpr int kCandidates = 8192;  // more than that, and the row is searched as a whole
constexpr int kFilteredMin = 2 * kGroups;
constexpr int kFilteredMax = 2 * kVector * kGroups;
static_assert(kFilteredMax <= 1 << 16, "positions are 16 bits");

struct Candidates {
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

struct Maxima {
  uint32_t key[kGroups];
  uint16_t reaching[kGroups];  // groups whose maximum reaches the bound
  uint32_t reaching_count;
  uint32_t low[kScanWarps];
  uint32_t high[kScanWarps];
  int count;

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    for (int group = threadIdx.x; group < count; group += kScanThreads) f(key[group], group);
  }
};

// Place of the first of this thread's `own` entries in a list that the block fills in any order: one
// atomic a warp. Every lane calls it.
__device__ inline uint32_t reserve(uint32_t own, uint32_t& count) {
  const uint32_t inclusive = warp_inclusive_sum(own);
  uint32_t place = 0u;
  if (threadIdx.x % 32 == 31 && inclusive > 0u) place = atomicAdd(&count, inclusive);
  return __shfl_sync(full_warp, place, 31) + inclusive - own;
}

// Largest of some vectors, NaN passed over; NaN if there is nothing else.
template <int Vectors>
__device__ __forceinline__ uint32_t largest_key(const float4 (&v)[Vectors]) {
  float most = __uint_as_float(0x7FFFFFFFu);
#pragma unroll
  for (int i = 0; i < Vectors; ++i) most = fmaxf(most, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
  return order_key(most);
}

// Fills maxima.key; returns their range.
template <int Vectors>
__device__ inline Range find_maxima(const ScoreRow& row, int k, Maxima& maxima) {
  constexpr int kSize = Vectors * kVector;
  const bool whole = row.aligned();
  const int groups = ceil_divide(row.length, kSize);
  const int mine = static_cast<int>(threadIdx.x);
  uint32_t low = ~0u, high = 0u;
  const auto keep = [&](int group, uint32_t key) {
    maxima.key[group] = key;
    low = key < low ? key : low;
    high = key > high ? key : high;
  };
  int first = 0;
  // Loads that depend on no branch: several are under way at once.
  for (; whole && (first + kBatch * kScanThreads) * kSize <= row.length; first += kBatch * kScanThreads) {
    float4 v[kBatch][Vectors];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int i = 0; i < Vectors; ++i) v[b][i] = row.vector((first + b * kScanThreads + mine) * kSize + i * kVector);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) keep(first + b * kScanThreads + mine, largest_key<Vectors>(v[b]));
  }
  for (; first + mine < groups; first += kScanThreads) {
    float4 v[Vectors];
#pragma unroll
    for (int i = 0; i < Vectors; ++i) v[i] = row.load((first + mine) * kSize + i * kVector, whole);
    keep(first + mine, largest_key<Vectors>(v));
  }
  low = __reduce_min_sync(full_warp, low);
  high = __reduce_max_sync(full_warp, high);
  if (threadIdx.x % 32 == 0) {
    maxima.low[threadIdx.x / 32] = low;
    maxima.high[threadIdx.x / 32] = high;
  }
  if (threadIdx.x == 0) {
    maxima.count = groups;
    maxima.reaching_count = 0u;
  }
  __syncthreads();
  const int warp = threadIdx.x % kScanWarps;
  return {__reduce_min_sync(full_warp, maxima.low[warp]), __reduce_max_sync(full_warp, maxima.high[warp]),
          static_cast<uint32_t>(k)};
}

// Fills `out` for groups of `Vectors` vectors, in no particular order; returns false if it overflows.
// The row has at least k groups.
template <int Vectors>
__device__ inline bool filter_groups(const ScoreRow& row, int k, Maxima& maxima, Candidates& out, RangeShared& shared,
                                     BlockScope& scope) {
  Range range = find_maxima<Vectors>(row, k, maxima);
  const uint32_t highest = range.high;
  if (range.low < range.high) narrow(maxima, range, shared, scope);
  const uint32_t bound = range.low;
  if (threadIdx.x == 0) {
    out.count = 0u;
    out.low = bound;
    out.high = highest;
  }
  // One reservation for all of a thread's groups.
  uint32_t mine = 0u;
#pragma unroll
  for (int i = 0; i < kGroups / kScanThreads; ++i) {
    const int group = i * kScanThreads + static_cast<int>(threadIdx.x);
    if (group < maxima.count && maxima.key[group] >= bound) mine |= 1u << i;
  }
  uint32_t next = reserve(static_cast<uint32_t>(__popc(mine)), maxima.reaching_count);
  for (; mine != 0u; mine &= mine - 1u) {
    const int i = __ffs(static_cast<int>(mine)) - 1;
    maxima.reaching[next++] = static_cast<uint16_t>(i * kScanThreads + static_cast<int>(threadIdx.x));
  }
  __syncthreads();

  // The next group's scores are under way while those of this one are sorted out.
  constexpr int kSize = Vectors * kVector;
  const bool whole = row.aligned();
  const int reaching = static_cast<int>(maxima.reaching_count);
  const auto start_of = [&](int entry) { return entry < reaching ? maxima.reaching[entry] * kSize : row.length; };
  int start = start_of(static_cast<int>(threadIdx.x));
  float4 v[Vectors];
#pragma unroll
  for (int i = 0; i < Vectors; ++i) v[i] = row.load(start + i * kVector, whole);
  for (int first = 0; first < reaching; first += kScanThreads) {
    const int later = start_of(first + kScanThreads + static_cast<int>(threadIdx.x));
    float4 after[Vectors];
#pragma unroll
    for (int i = 0; i < Vectors; ++i) after[i] = row.load(later + i * kVector, whole);
    uint32_t key[kSize];
    uint32_t own = 0u;
#pragma unroll
    for (int i = 0; i < Vectors; ++i) {
      key[i * kVector] = order_key(v[i].x);
      key[i * kVector + 1] = order_key(v[i].y);
      key[i * kVector + 2] = order_key(v[i].z);
      key[i * kVector + 3] = order_key(v[i].w);
    }
#pragma unroll
    for (int e = 0; e < kSize; ++e) own += start + e < row.length && key[e] >= bound;
    uint32_t place = reserve(own, out.count);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      if (start + e >= row.length || key[e] < bound) continue;
      if (place < kCandidates) {
        out.keys[place] = key[e];
        out.positions[place] = static_cast<uint16_t>(start + e);
      }
      ++place;
    }
    start = later;
#pragma unroll
    for (int i = 0; i < Vectors; ++i) v[i] = after[i];
  }
  __syncthreads();
  return out.count <= kCandidates;
}

}  // namespace dsa
