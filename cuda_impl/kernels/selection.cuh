// Settling what is selected once little is left to choose from, and writing it in index order.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "device.cuh"
#include "kth_largest.cuh"
#include "scope.cuh"

namespace dsa {

constexpr int kTopkMax = 2048;

struct Writer {
  const float* scores;
  const int32_t* indices;  // of the scores in the caller's row, or null: their position
  int64_t first;           // column of the first score
  float* best_scores;      // or null
  int32_t* best_indices;

  __device__ void operator()(uint32_t rank, int position) const {
    best_indices[rank] = indices != nullptr ? indices[position] : static_cast<int32_t>(first + position);
    if (best_scores != nullptr) best_scores[rank] = scores[position];
  }
};

// A row of at most k scores: all of them, then -1 if `padded`. Called by a block.
__device__ inline void select_all(const Writer& write, int length, int k, bool padded) {
  for (int i = threadIdx.x; i < length; i += kScanThreads) write(static_cast<uint32_t>(i), i);
  if (!padded) return;
  for (int i = length + threadIdx.x; i < k; i += kScanThreads) write.best_indices[i] = -1;
}

// One bit a position in either map: surely selected, or equal to the last selected key. A thread owns `Words`
// neighbouring words, which lie as far apart as there are threads: no two threads share a bank.
template <int Words>
struct Marks {
  uint32_t above[Words * kScanThreads];
  uint32_t equal[Words * kScanThreads];
  uint32_t all;  // packed counts of both, of the whole block

  __device__ static void mark(uint32_t* map, int position) {
    const int word = position / 32;
    atomicOr(&map[word % Words * kScanThreads + word / Words], 1u << position % 32);
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Words; ++i) above[i * kScanThreads + threadIdx.x] = equal[i * kScanThreads + threadIdx.x] = 0u;
  }
};

// Positions of what this block has selected, by rank: written from here by neighbouring threads together.
struct Chosen {
  int32_t position[kTopkMax];
};

__device__ inline void write_chosen(const Chosen& chosen, const Writer& write, uint32_t base, uint32_t count) {
  for (uint32_t i = threadIdx.x; i < count; i += kScanThreads) write(base + i, chosen.position[i]);
}

// Marks the `wanted` best of the scores that were found to be few; among equals the lowest positions.
template <int Words>
__device__ inline void mark_best_of_few(uint32_t count, uint32_t wanted, const RangeShared& shared,
                                        Marks<Words>& marks) {
  if (threadIdx.x >= count) return;
  const uint32_t key = shared.few[threadIdx.x], position = shared.few_positions[threadIdx.x];
  uint32_t better = 0u;
  for (uint32_t i = 0; i < count; ++i) {
    better += shared.few[i] > key || (shared.few[i] == key && shared.few_positions[i] < position);
  }
  if (better < wanted) marks.mark(marks.above, static_cast<int>(position));
}

// Selects the best `found.wanted` of the range and all that is above it, in maps that are all zero, and writes them in
// order: of all blocks of the scope, which each have a part of the row, one after another. The range is of one key,
// or, for a block alone, holds `inside` scores, which are few. A source has less than 2^16 keys.
template <class Source, int Words, class Scope>
__device__ inline void emit(const Source& source, Range found, uint32_t inside, const Writer& write,
                            Marks<Words>& marks, Chosen& chosen, RangeShared& shared, const Scope& scope) {
  const bool one = Scope::kFew == 0u || found.low == found.high;
  source.visit([&](uint32_t key, int position) {
    if (key < found.low) return;
    if (key > found.high) {
      marks.mark(marks.above, position);
    } else if (one) {
      marks.mark(marks.equal, position);
    } else {
      const uint32_t place = atomicAdd(&shared.few_count, 1u);
      shared.few[place] = key;
      shared.few_positions[place] = static_cast<uint32_t>(position);
    }
  });
  __syncthreads();
  if (!one) {
    mark_best_of_few(inside, found.wanted, shared, marks);  // and nothing is left to equals
    __syncthreads();
  }

  // Both counts of a block fit 16 bits: one scan serves the two.
  uint32_t above[Words], equal[Words], own = 0u;
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    above[i] = marks.above[i * kScanThreads + threadIdx.x];
    equal[i] = marks.equal[i * kScanThreads + threadIdx.x];
    own += Counts::packed(__popc(above[i]), __popc(equal[i]));
  }
  const uint32_t before = block_prefix_sum(own, shared.warp_sums);
  if (threadIdx.x == kScanThreads - 1) marks.all = before + own;
  const Counts earlier = scope.earlier(before + own);
  const uint32_t places = earlier.equal < found.wanted ? found.wanted - earlier.equal : 0u;  // left to equals
  const uint32_t base = earlier.above + found.wanted - places;
  Counts below = Counts::of(before);
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    for (uint32_t left = above[i] | equal[i]; left != 0u; left &= left - 1u) {
      const int bit = __ffs(static_cast<int>(left)) - 1;
      const bool better = (above[i] >> bit & 1u) != 0u;
      if (better || below.equal < places) {
        const uint32_t rank = below.above + (below.equal < places ? below.equal : places);  // of this block
        chosen.position[rank] = static_cast<int>((threadIdx.x * Words + i) * 32) + bit;
      }
      below.above += better;
      below.equal += !better;
    }
  }
  __syncthreads();
  const Counts all = Counts::of(marks.all);
  write_chosen(chosen, write, base, all.above + (all.equal < places ? all.equal : places));
}

// The same of a whole row by a source whose threads visit neighbours, one thread after another; `found` is one key.
template <class Source>
__device__ inline void emit_in_order(const Source& source, Range found, const Writer& write, uint32_t k, Chosen& chosen,
                                     uint32_t (&warp_sums)[kScanWarps]) {
  uint32_t own = 0u;
  source.visit([&](uint32_t key, int) { own += Counts::packed(key > found.low, key == found.low); });
  Counts below = Counts::of(block_prefix_sum(own, warp_sums));
  source.visit([&](uint32_t key, int position) {
    if (key > found.low || (key == found.low && below.equal < found.wanted)) {
      chosen.position[below.above + (below.equal < found.wanted ? below.equal : found.wanted)] = position;
    }
    below.above += key > found.low;
    below.equal += key == found.low;
  });
  __syncthreads();
  write_chosen(chosen, write, 0u, k);
}

}  // namespace dsa
