// Exact top-k of float32 rows: deterministic, ties to the lowest index, output in index order.
//
// A block takes a part of a row. It leaves out what cannot be among the k best (candidates.cuh), narrows the
// range of the k-th largest key until few scores or one key are left, marks the selected positions in a bit
// map, and writes them in order. Rows longer than a part are taken by a cluster of blocks
// (topk_cluster.cuh). Where a GPU has none of use, and for rows too long for them, rows are reduced to the k
// best of each part, and these to the k best of the row: among equals a part keeps the lowest indices, so
// nothing that the row selects is lost.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "candidates.cuh"
#include "device.cuh"
#include "kth_largest.cuh"
#include "score_row.cuh"
#include "selection.cuh"

namespace dsa {

constexpr int kTopkThreads = kScanThreads;
constexpr int kPartMax = kFilteredMax;
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
  FilterShared filter;
  Candidates candidates;
  RangeShared range;
  Marks<kPartMax / (32 * kTopkThreads)> marks;
  Chosen chosen;
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

namespace {

// One block a part. lengths in [0, columns of the first level], k in [1, kTopkMax]. A part of at most k
// scores selects them all without reading them.
__global__ void __launch_bounds__(kTopkThreads, 2) topk_kernel(const __grid_constant__ TopkLevel level,
                                                                const __grid_constant__ TopkArguments a) {
  after_earlier_kernels();
  TopkShared& shared = *dynamic_shared<TopkShared>();
  const unsigned parts = static_cast<unsigned>(level.parts);
  const int64_t row = blockIdx.x / parts;
  const int64_t first = blockIdx.x % parts * level.size;
  const int64_t left = length_at(a, row) - first;
  const int length = static_cast<int>(left < 0 ? 0 : left < level.size ? left : level.size);
  const int64_t at = row * level.columns + first;
  const int64_t out = static_cast<int64_t>(blockIdx.x) * a.k;
  const bool last = level.best_scores == nullptr;
  const Writer write = {level.scores + at, level.indices == nullptr ? nullptr : level.indices + at, first,
                        last ? nullptr : level.best_scores + out, level.best_indices + out};
  if (length <= a.k) {
    select_all(write, length, a.k, last);
    return;
  }
  BlockScope scope{shared.range.histogram};
  scope.clear();
  shared.marks.clear();
  const ScoreRow scores = {write.scores, length};
  const bool filtered = length >= kFilteredMin && (length <= kFilteredMax / 2
                            ? filter_groups<1>(scores, a.k, shared.filter, shared.candidates, shared.range, scope)
                            : filter_groups<2>(scores, a.k, shared.filter, shared.candidates, shared.range, scope));
  const auto wanted = static_cast<uint32_t>(a.k);
  const auto select = [&](const auto& source, Range range) {
    const uint32_t inside = narrow_to_few(source, range, shared.range, scope);
    emit(source, range, inside, write, shared.marks, shared.chosen, shared.range, scope);
  };
  if (filtered) {
    select(shared.candidates, {shared.candidates.low, shared.candidates.high, wanted});
  } else {
    __syncthreads();  // the bins are clear
    select(scores, {0u, ~0u, wanted});
  }
}

}  // namespace

}  // namespace dsa
