// Writing what is selected, in index order.
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

// One bit a position in either map: above the last selected key, or equal to it. A thread owns `Words`
// neighbouring words, which lie as far apart as there are threads: no two threads share a bank.
template <int Words>
struct Marks {
  uint32_t above[Words * kScanThreads];
  uint32_t equal[Words * kScanThreads];
  uint32_t before[Words * kScanThreads];  // packed counts of both of this block below each word
  uint32_t all;                           // the same of the whole block

  __device__ static int place(int word) { return word % Words * kScanThreads + word / Words; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Words; ++i) above[i * kScanThreads + threadIdx.x] = equal[i * kScanThreads + threadIdx.x] = 0u;
  }
};

// Positions of what this block has selected, by rank: written from here by neighbouring threads together.
struct Chosen {
  int32_t position[kTopkMax];
};

// Of a selected key: `above` scores above the last selected one and `equal` equals lie at lower positions of the
// row. `base` is the rank of the block's first.
__device__ __forceinline__ void choose(Chosen& chosen, uint32_t base, Range found, uint32_t key, int position,
                                       uint32_t above, uint32_t equal) {
  if (key == found.low && equal >= found.wanted) return;
  chosen.position[above + (equal < found.wanted ? equal : found.wanted) - base] = position;
}

__device__ inline void write_chosen(const Chosen& chosen, const Writer& write, uint32_t base, uint32_t count) {
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kScanThreads) write(base + i, chosen.position[i]);
}

// Marks what is above the threshold and what equals it in maps that are all zero, then ranks each: of all blocks
// of the scope, which each have a part of the row, one after another. A source has less than 2^16 keys.
template <class Source, int Words, class Scope>
__device__ inline void emit(const Source& source, Range found, const Writer& write, Marks<Words>& marks,
                            Chosen& chosen, uint32_t (&warp_sums)[kScanWarps], const Scope& scope) {
  source.visit([&](uint32_t key, int position) {
    if (key < found.low) return;
    uint32_t* map = key > found.low ? marks.above : marks.equal;
    atomicOr(&map[Marks<Words>::place(position / 32)], 1u << position % 32);
  });
  __syncthreads();

  // Both counts of a block fit 16 bits: one scan serves the two.
  uint32_t of_word[Words], own = 0u;
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    const int at = i * kScanThreads + threadIdx.x;
    of_word[i] = Counts::packed(__popc(marks.above[at]), __popc(marks.equal[at]));
    own += of_word[i];
  }
  uint32_t before = block_prefix_sum(own, warp_sums);
  if (threadIdx.x == kScanThreads - 1) marks.all = before + own;
  const Counts earlier = scope.earlier(before + own);
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    marks.before[i * kScanThreads + threadIdx.x] = before;
    before += of_word[i];
  }
  __syncthreads();

  const uint32_t places = earlier.equal < found.wanted ? found.wanted - earlier.equal : 0u;  // left to equals
  const uint32_t base = earlier.above + found.wanted - places;
  source.visit([&](uint32_t key, int position) {
    if (key < found.low) return;
    const int at = Marks<Words>::place(position / 32);
    const uint32_t lower = (1u << position % 32) - 1u;
    const Counts below = Counts::of(marks.before[at]);
    choose(chosen, base, found, key, position, earlier.above + below.above + __popc(marks.above[at] & lower),
           earlier.equal + below.equal + __popc(marks.equal[at] & lower));
  });
  const Counts all = Counts::of(marks.all);
  write_chosen(chosen, write, base, all.above + (all.equal < places ? all.equal : places));
}

// The same of a whole row by a source whose threads visit neighbours, one thread after another.
template <class Source>
__device__ inline void emit_in_order(const Source& source, Range found, const Writer& write, uint32_t k, Chosen& chosen,
                                     uint32_t (&warp_sums)[kScanWarps]) {
  uint32_t own = 0u;
  source.visit([&](uint32_t key, int) { own += Counts::packed(key > found.low, key == found.low); });
  Counts below = Counts::of(block_prefix_sum(own, warp_sums));
  source.visit([&](uint32_t key, int position) {
    if (key < found.low) return;
    choose(chosen, 0u, found, key, position, below.above, below.equal);
    below.above += key > found.low;
    below.equal += key == found.low;
  });
  write_chosen(chosen, write, 0u, k);
}

}  // namespace dsa
