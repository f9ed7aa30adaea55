// Top-k of a row by a cluster of blocks: one launch for rows that are too long for one block.
//
// Each block keeps its share of the row in registers. The blocks bound the k-th largest score from below by
// maxima of disjoint groups, as one block does (candidates.cuh), and send what reaches the bound to the
// first block, which selects among it and writes. If that is too much, as on a plateau, all blocks search
// their shares together and each writes what is selected of its own.
//
// Every block of a cluster decides alike: from the row's length, or from numbers that all of them read.
#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "device.cuh"
#include "held_share.cuh"
#include "kth_largest.cuh"
#include "score_row.cuh"
#include "selection.cuh"
#include "topk.cuh"

namespace dsa {

constexpr int kShareMin = kShareMax / 4;  // of a row that is cut further than it must be

struct TopkClusterShared {
  Gathered gathered;
  GatherShared gather;
  RangeShared range;
  ClusterShared cluster;
  uint2 ends[kClusterMost * kScanWarps];  // smallest and largest maximum of each warp of the cluster
  union {
    Marks<kClusterMost * kShareMax / (32 * kScanThreads)> row;
    Marks<kShareMax / (32 * kScanThreads)> share;
  } marks;
};

// Range of all maxima of the cluster. Between its two meetings every block writes to all others.
__device__ inline Range range_of_maxima(const Maxima<kHeldGroups>& maxima, int length, int k, uint2* ends) {
  uint32_t low = ~0u, high = 0u;
  maxima.visit([&](uint32_t key, int g) {
    if (Held::start(g * kGroupVectors) < length) low = key < low ? key : low;
    high = key > high ? key : high;
  });
  low = __reduce_min_sync(full_warp, low);
  high = __reduce_max_sync(full_warp, high);
  const uint32_t lane = threadIdx.x % 32;
  cluster_wait();
  uint2* own = &ends[cluster_rank() * kScanWarps + threadIdx.x / 32];
  if (lane < cluster_blocks()) *of_block(own, lane) = make_uint2(low, high);
  cluster_sync();
  for (uint32_t i = lane; i < cluster_blocks() * kScanWarps; i += 32) {
    low = ends[i].x < low ? ends[i].x : low;
    high = ends[i].y > high ? ends[i].y : high;
  }
  return {__reduce_min_sync(full_warp, low), __reduce_max_sync(full_warp, high), static_cast<uint32_t>(k)};
}

namespace {

// One cluster a row, of a power of two of blocks: the last level. lengths as in topk_kernel, and at most
// kShareMax a block.
__global__ void __launch_bounds__(kTopkThreads, 2) topk_cluster_kernel(const __grid_constant__ TopkLevel level,
                                                                        const __grid_constant__ TopkArguments a) {
  TopkClusterShared& shared = *dynamic_shared<TopkClusterShared>();
  const int rank = static_cast<int>(cluster_rank()), blocks = static_cast<int>(cluster_blocks());
  const int halvings = __ffs(blocks) - 1;  // a power of two: no division before the first read
  const int64_t row = blockIdx.x >> halvings;
  const int length = static_cast<int>(length_at(a, row));
  // From the scores at `first` on.
  const auto writer = [&](int first) -> Writer {
    const int64_t at = row * level.columns + first;
    const int32_t* indices = level.indices == nullptr ? nullptr : level.indices + at;
    return {level.scores + at, indices, first, nullptr, level.best_indices + row * a.k};
  };
  if (length <= a.k) {
    if (rank == 0) select_all(writer(0), length, a.k, true);
    return;
  }
  cluster_arrive_empty();  // begun
  const int share = ceil_divide((length + blocks - 1) >> halvings, kVector) * kVector;
  const int first = rank * share < length ? rank * share : length;
  const ScoreRow scores = {level.scores + row * level.columns + first, length - first < share ? length - first : share};
  const Held held(scores);
  if (rank == 0) {
    shared.marks.row.clear();
  } else {
    shared.marks.share.clear();
  }
  ClusterScope scope{shared.cluster};
  BlockScope alone{shared.range.histogram};
  scope.clear();
  alone.clear();
  if (threadIdx.x == 0) shared.gathered.count = 0u;

  const Maxima<kHeldGroups> maxima = held.maxima();
  Range range = range_of_maxima(maxima, held.length, a.k, shared.ends);
  const uint32_t highest = range.high;
  const int groups = length / share * Held::groups(share) + Held::groups(length % share);
  bool fits = length <= kGathered;
  if (fits) {
    range.low = 0u;
  } else if (groups >= 2 * a.k) {
    // What lies in the bin of the k-th maximum is too much only if it outnumbers what is wanted by far.
    const uint32_t spare = 256u + range.wanted / 8u;
    uint32_t inside = ~0u;
    while (range.low < range.high && inside > spare) inside = narrow(maxima, range, shared.range, scope);
    fits = true;
  }
  const auto wanted = static_cast<uint32_t>(a.k);
  if (fits) {
    Gathered& all = *of_block(&shared.gathered, 0);
    gather(held, range.low, first, shared.gather, all);
    cluster_sync();
    fits = all.count <= kGathered;
  }
  if (fits) {
    cluster_arrive_empty();  // the first block's memory is needed no longer
    if (rank == 0) {
      const Gathered& few = shared.gathered;
      const Range found = kth_largest(few, {range.low, highest, wanted}, shared.range, alone);
      emit(few, found, writer(0), shared.marks.row, shared.range.warp_sums, alone);
    }
    cluster_wait();
  } else {
    const Range found = kth_largest(scores, {0u, ~0u, wanted}, shared.range, scope);
    emit(scores, found, writer(first), shared.marks.share, shared.range.warp_sums, scope);
  }
}

}  // namespace

// Blocks that may share a row on the current device.
inline int topk_cluster_blocks() {
  return most_cluster_blocks("topk", reinterpret_cast<const void*>(topk_cluster_kernel), dim3(kTopkThreads),
                             sizeof(TopkClusterShared));
}

}  // namespace dsa
