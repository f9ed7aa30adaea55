// Writing what is selected, in index order.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "device.cuh"
#include "kth_largest.cuh"
#include "scope.cuh"

namespace dsa {

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
  static_assert(Words <= 32);
  uint32_t above[Words * kScanThreads];
  uint32_t equal[Words * kScanThreads];

  __device__ static int place(int word) { return word % Words * kScanThreads + word / Words; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < Words; ++i) above[i * kScanThreads + threadIdx.x] = equal[i * kScanThreads + threadIdx.x] = 0u;
  }
};

// Marks what is above the threshold and what equals it in maps that are all zero, then writes the
// selection in order: of all blocks of the scope, which each have a part of the row, one after another.
// A source has less than 2^16 keys.
template <class Source, int Words, class Scope>
__device__ inline void emit(const Source& source, Range found, const Writer& write, Marks<Words>& marks,
                            uint32_t (&warp_sums)[kScanWarps], const Scope& scope) {
  source.visit([&](uint32_t key, int position) {
    if (key < found.low) return;
    uint32_t* map = key > found.low ? marks.above : marks.equal;
    atomicOr(&map[Marks<Words>::place(position / 32)], 1u << position % 32);
  });
  __syncthreads();

  // Both counts of a block fit 16 bits: one scan serves the two.
  uint32_t own = 0u, marked = 0u;
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    const int at = i * kScanThreads + threadIdx.x;
    const int above = __popc(marks.above[at]), equal = __popc(marks.equal[at]);
    const uint32_t both = Counts::packed(static_cast<uint32_t>(above), static_cast<uint32_t>(equal));
    marked |= both > 0u ? 1u << i : 0u;
    own += both;
  }
  const uint32_t before = block_prefix_sum(own, warp_sums);
  const Counts earlier = scope.earlier(before + own);
  uint32_t above = earlier.above + Counts::of(before).above, equal = earlier.equal + Counts::of(before).equal;
  // One loop over a thread's bits, not one a word: threads of a warp have them in different words.
  uint32_t better = 0u, left = 0u;
  int word = 0;
  while ((left | marked) != 0u) {
    if (left == 0u) {
      const int i = __ffs(static_cast<int>(marked)) - 1;
      marked &= marked - 1u;
      better = marks.above[i * kScanThreads + threadIdx.x];
      left = better | marks.equal[i * kScanThreads + threadIdx.x];
      word = static_cast<int>(threadIdx.x) * Words + i;
    }
    const int bit = __ffs(static_cast<int>(left)) - 1;
    left &= left - 1u;
    const bool is_above = better >> bit & 1u;
    if (is_above || equal < found.wanted) {
      write(above + (equal < found.wanted ? equal : found.wanted), word * 32 + bit);
    }
    above += is_above;
    equal += !is_above;
  }
}

}  // namespace dsa
