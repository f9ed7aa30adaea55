// A block's share of a row, kept in registers: read once, reduced to maxima of groups, and looked through
// again for what reaches a bound.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "candidates.cuh"
#include "device.cuh"
#include "maxima.cuh"
#include "order_key.cuh"
#include "score_row.cuh"

namespace dsa {

constexpr int kHeldVectors = 8;  // of a thread
constexpr int kHeldGroups = 2;   // of them, each with its maximum
constexpr int kGroupVectors = kHeldVectors / kHeldGroups;
constexpr int kShareMax = kHeldVectors * kVector * kScanThreads;
constexpr int kGathered = 4096;  // scores that the first block takes
static_assert(kGathered < 1 << 16);

// This thread's scores of a share: vectors as far apart as there are threads.
struct Held {
  float4 v[kHeldVectors];
  int length;  // of the share

  __device__ static int start(int i) { return (i * kScanThreads + static_cast<int>(threadIdx.x)) * kVector; }

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

  // Groups of a share of that length that have a score.
  __device__ static int groups(int length) {
    const int vectors = ceil_divide(length, kVector);
    int count = 0;
#pragma unroll
    for (int g = 0; g < kHeldGroups; ++g) {
      const int rest = vectors - g * kGroupVectors * kScanThreads;
      count += rest < 0 ? 0 : rest < kScanThreads ? rest : kScanThreads;
    }
    return count;
  }
};

// What the first block selects from: key and position in the row.
struct Gathered {
  static constexpr bool kRuns = true;

  uint2 entries[kGathered];
  uint32_t count;

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    for (uint32_t i = threadIdx.x; i < count; i += kScanThreads) f(entries[i].x, static_cast<int>(entries[i].y));
  }
};

struct GatherShared {
  uint32_t warp_sums[kScanWarps];
  uint32_t start;  // of the block's entries in the list
};

// Adds the block's scores that reach the bound to a list of any block; the count may exceed the list. One
// reservation a block: to another block's memory, and all at one place, they would queue.
__device__ inline void gather(const Held& held, uint32_t bound, int first, GatherShared& shared, Gathered& to) {
  uint32_t hits = 0u;
  if (bound > 0u) {
    hits = reaching_bits(held.v, least_of_key(bound));  // nothing past the length: that is NaN
  } else {
#pragma unroll
    for (int i = 0; i < kHeldVectors; ++i) {
      const int left = held.length - Held::start(i);
      hits |= (left >= kVector ? 15u : left > 0 ? (1u << left) - 1u : 0u) << (i * kVector);
    }
  }
  const auto own = static_cast<uint32_t>(__popc(hits));
  const uint32_t before = block_prefix_sum(own, shared.warp_sums);
  if (threadIdx.x == kScanThreads - 1) shared.start = atomicAdd(&to.count, before + own);
  __syncthreads();
  uint32_t place = shared.start + before;
  const auto add = [&](int bit, float score) {
    if ((hits >> bit & 1u) == 0u) return;
    const int at = first + Held::start(bit / kVector) + bit % kVector;
    if (place < kGathered) to.entries[place] = make_uint2(order_key(score), static_cast<uint32_t>(at));
    ++place;
  };
#pragma unroll
  for (int i = 0; i < kHeldVectors; ++i) {
    if ((hits >> (i * kVector) & 15u) == 0u) continue;
    add(i * kVector, held.v[i].x);
    add(i * kVector + 1, held.v[i].y);
    add(i * kVector + 2, held.v[i].z);
    add(i * kVector + 3, held.v[i].w);
  }
}

}  // namespace dsa
