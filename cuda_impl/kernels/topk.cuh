// Exact top-k of float32 rows: deterministic, ties to the lowest index, output in index order.
//
// A block takes a part of a row. It leaves out what cannot be among the k best (candidates.cuh), finds the
// k-th largest key and how many of its equals belong to the selection, marks the selected positions in a
// bit map, and writes them in order. Rows longer than a part are reduced to the k best of each part, and
// these to the k best of the row by the same kernel: among equals a part keeps the lowest indices, so
// nothing that the row selects is lost.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "candidates.cuh"
#include "device.cuh"
#include "kth_largest.cuh"
#include "score_row.cuh"

namespace dsa {

constexpr int kTopkThreads = kScanThreads;
constexpr int kTopkMax = 2048;
constexpr int kPartMax = kFilteredMax;
constexpr int kMapWords = kPartMax / 32;
constexpr int kMostLevels = 8;

// Numbers of one level of reduction. `size` scores a part, `parts` a row.
struct TopkLevel {
  const float* scores;       // [rows, columns]
  const int32_t* indices;    // of the scores in the caller's row, or null: their position
  float* best_scores;        // [rows, parts, k], or null on the last level
  int32_t* best_indices;     // [rows, parts, k]; on the last level padded with -1
  int64_t columns;
  int64_t size;
  int64_t parts;
};

struct TopkArguments {
  const int32_t* lengths;  // [rows], of the caller's rows
  int64_t earlier[kMostLevels];  // part sizes of the levels before this one
  int levels;
  int k;
};

struct TopkShared {
  Maxima maxima;
  Candidates candidates;
  RangeShared range;
  uint32_t above[kMapWords];
  uint32_t equal[kMapWords];
};

// How many scores of a row are left at this level: the k best of each part, or all of a shorter one.
__device__ inline int64_t length_at(const TopkArguments& a, int64_t row) {
  int64_t length = a.lengths[row];
  for (int level = 0; level < a.levels; ++level) {
    const int64_t size = a.earlier[level], rest = length % size;
    length = length / size * a.k + (rest < a.k ? rest : a.k);
  }
  return length;
}

struct Writer {
  const float* scores;
  const int32_t* indices;
  int64_t first;  // column of the part's first score
  float* best_scores;
  int32_t* best_indices;

  __device__ void operator()(uint32_t rank, int position) const {
    best_indices[rank] = indices != nullptr ? indices[position] : static_cast<int32_t>(first + position);
    if (best_scores != nullptr) best_scores[rank] = scores[position];
  }
};

// Marks what is above the threshold and what equals it in maps that are all zero, then writes the
// selection in order.
template <class Source>
__device__ inline void emit(const Source& source, Range found, const Writer& write, TopkShared& shared) {
  source.visit([&](uint32_t key, int position) {
    if (key < found.low) return;
    uint32_t* map = key > found.low ? shared.above : shared.equal;
    atomicOr(&map[position / 32], 1u << position % 32);
  });
  __syncthreads();

  // Both counts of the whole part fit 16 bits: one scan serves the two.
  static_assert(kPartMax < 1 << 16);
  constexpr int kWords = kMapWords / kTopkThreads;
  uint32_t packed = 0u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int word = threadIdx.x * kWords + i;
    packed += static_cast<uint32_t>(__popc(shared.above[word])) << 16 | static_cast<uint32_t>(__popc(shared.equal[word]));
  }
  const uint32_t before = block_prefix_sum(packed, shared.range.warp_sums);
  uint32_t above = before >> 16, equal = before & 0xFFFFu;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int word = threadIdx.x * kWords + i;
    const uint32_t better = shared.above[word];
    for (uint32_t left = better | shared.equal[word]; left != 0u; left &= left - 1u) {
      const int bit = __ffs(static_cast<int>(left)) - 1;
      const bool is_above = better >> bit & 1u;
      if (is_above || equal < found.wanted) {
        write(above + (equal < found.wanted ? equal : found.wanted), word * 32 + bit);
      }
      above += is_above;
      equal += !is_above;
    }
  }
}

namespace {

// One block a part. lengths in [0, columns of the first level], k in [1, kTopkMax]. A part of at most k
// scores selects them all without reading them.
__global__ void __launch_bounds__(kTopkThreads, 2) topk_kernel(TopkLevel level, TopkArguments a) {
  TopkShared& shared = *dynamic_shared<TopkShared>();
  const int64_t row = blockIdx.x / level.parts;
  const int64_t first = blockIdx.x % level.parts * level.size;
  const int64_t left = length_at(a, row) - first;
  const int length = static_cast<int>(left < 0 ? 0 : left < level.size ? left : level.size);
  const int64_t at = row * level.columns + first;
  const int64_t out = static_cast<int64_t>(blockIdx.x) * a.k;
  const bool last = level.best_scores == nullptr;
  const Writer write = {level.scores + at, level.indices == nullptr ? nullptr : level.indices + at, first,
                        last ? nullptr : level.best_scores + out, level.best_indices + out};
  if (length <= a.k) {
    for (int i = threadIdx.x; i < length; i += kTopkThreads) write(static_cast<uint32_t>(i), i);
    if (!last) return;
    for (int i = length + threadIdx.x; i < a.k; i += kTopkThreads) write.best_indices[i] = -1;
    return;
  }
  // Barriers follow in every search before the maps are used.
  for (int word = threadIdx.x; word < kMapWords; word += kTopkThreads) shared.above[word] = shared.equal[word] = 0u;
  const ScoreRow scores = {write.scores, length};
  const bool filtered = length >= kFilteredMin && (length <= kFilteredMax / 2
                            ? filter_groups<1>(scores, a.k, shared.maxima, shared.candidates, shared.range)
                            : filter_groups<2>(scores, a.k, shared.maxima, shared.candidates, shared.range));
  const auto wanted = static_cast<uint32_t>(a.k);
  if (filtered) {
    const Candidates& few = shared.candidates;
    emit(few, kth_largest(few, {few.low, few.high, wanted}, shared.range), write, shared);
  } else {
    emit(scores, kth_largest(scores, {0u, ~0u, wanted}, shared.range), write, shared);
  }
}

}  // namespace

// How rows are cut: part sizes of each level. About kFewParts blocks fill a device; smaller parts than
// four times k reduce nothing.
struct TopkPlan {
  int levels = 0;
  int64_t size[kMostLevels];
  int64_t parts[kMostLevels];
  int64_t columns[kMostLevels];
  int64_t words = 0;  // of the workspace: scores and indices of every level but the last

  TopkPlan(int64_t rows, int64_t width, int64_t k) {
    constexpr int64_t kFewParts = 96;
    while (width > kPartMax) {
      int64_t part = kPartMax;
      while (part / 2 >= 4 * k && part > kFilteredMin && rows * ceil_divide(width, part) < kFewParts) part /= 2;
      add(width, part);
      width = parts[levels - 1] * k;
      words += 2 * rows * width;
    }
    add(width, width > 0 ? width : 1);
  }

 private:
  void add(int64_t width, int64_t part) {
    columns[levels] = width;
    size[levels] = part;
    parts[levels] = width > 0 ? ceil_divide(width, part) : 1;
    ++levels;
  }
};

}  // namespace dsa
