// Top-k of a row by a cluster of blocks: one launch for rows that are too long for one block.
//
// Each block keeps its share of the row in registers. The blocks bound the k-th largest score from below
// (steps.cuh) and send what reaches the bound to the first block, which selects among it and writes. If that
// is too much, as on a plateau, all blocks search their shares together and each writes what is selected of
// its own.
//
// Every block of a cluster decides alike: from the row's length, or from numbers that all of them read.
#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "device.cuh"
#include "gathered.cuh"
#include "held_share.cuh"
#include "kth_largest.cuh"
#include "maxima.cuh"
#include "score_row.cuh"
#include "selection.cuh"
#include "steps.cuh"
#include "topk.cuh"

namespace dsa {

constexpr int kShareMin = kShareMax / 4;  // of a row that is cut further than it must be

struct TopkClusterShared {
  Steps steps;
  Announced announced;
  Gathered gathered;
  RangeShared range;
  ClusterShared cluster;
  Marks<kShareMax / (32 * kScanThreads)> marks;
  Chosen chosen;
};

namespace {

// One cluster a row, of a power of two of blocks: the last level. lengths as in topk_kernel, and at most
// kShareMax a block.
__global__ void __launch_bounds__(kTopkThreads, 2) topk_cluster_kernel(const __grid_constant__ TopkLevel level,
                                                                        const __grid_constant__ TopkArguments a) {
  after_earlier_kernels();
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
  if (threadIdx.x == 0) {
    shared.steps.open();
    shared.announced.open(shared.gathered);
  }
  cluster_arrive_empty();  // mails are open
  const int share = ceil_divide((length + blocks - 1) >> halvings, kVector) * kVector;
  const int first = rank * share < length ? rank * share : length;
  const ScoreRow scores = {level.scores + row * level.columns + first, length - first < share ? length - first : share};
  const Held held(scores);
  shared.marks.clear();
  ClusterScope scope{shared.cluster};
  BlockScope alone{shared.range.histogram};
  scope.clear();
  alone.clear();
  shared.steps.clear();

  const auto wanted = static_cast<uint32_t>(a.k);
  const Maxima<kHeldGroups> maxima = held.maxima();
  const Range range = held.range(maxima, (wanted + blocks - 1) >> halvings, shared.range);
  uint32_t highest = range.high;
  const int groups = length / share * Held::groups(share) + Held::groups(length % share);
  bool fits = length <= kGathered;
  uint32_t bound = 0u;
  if (!fits && groups >= 2 * a.k) {
    find_steps(maxima, range, shared.steps, shared.range, alone);
    cluster_wait();
    send_steps(shared.steps);
    shared.steps.mail.wait(true);
    bound = bound_of_steps(shared.steps, wanted, shared.range, alone);
    fits = true;
  } else {
    cluster_wait();
  }
  if (fits) fits = gather(held, bound, first, highest, shared.announced, shared.gathered);
  if (!fits) {
    Range found = {0u, ~0u, wanted};
    const uint32_t inside = narrow_to_few(scores, found, shared.range, scope);
    emit(scores, found, inside, writer(first), shared.marks, shared.chosen, shared.range, scope);
  } else if (rank == 0) {
    const Listed few(shared.gathered);
    const Range found = kth_largest(few, {bound, highest, wanted}, shared.range, alone);
    emit_in_order(few, found, writer(0), wanted, shared.chosen, shared.range.warp_sums);
  }
}

}  // namespace

// Blocks that may share a row on the current device.
inline int topk_cluster_blocks() {
  return most_cluster_blocks("topk", reinterpret_cast<const void*>(topk_cluster_kernel), dim3(kTopkThreads),
                             sizeof(TopkClusterShared));
}

}  // namespace dsa
