// A bound of the k-th largest score of a row that several blocks share.
//
// Each block tells all others which key a given number of its groups reach, in 32 such steps. The k-th largest of
// all steps, each counted as the groups since the step before, is reached by at least k groups, so by at least k
// scores.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "cluster.cuh"
#include "device.cuh"
#include "kth_largest.cuh"
#include "mail.cuh"
#include "maxima.cuh"
#include "scope.cuh"

namespace dsa {

constexpr uint32_t kSteps = 32;  // of a block, one a lane
static_assert(kClusterMost <= kScanWarps, "a warp a block");

struct Steps {
  static constexpr bool kRuns = false;

  Mail mail;
  uint2 own[kSteps];                // key, and how many groups of this block reach it; {0, 0}: no such step
  uint2 all[kClusterMost][kSteps];  // key, and groups of that block since its step before

  // Thread t has step t % 32 of block t / 32.
  __device__ uint2 mine() const {
    const uint32_t block = threadIdx.x / kSteps;
    return block < cluster_blocks() ? all[block][threadIdx.x % kSteps] : make_uint2(0u, 0u);
  }

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    const uint2 step = mine();
    if (step.y > 0u) f(step.x, static_cast<int>(threadIdx.x));
  }
  __device__ uint32_t times(int) const { return mine().y; }

  // Before the cluster's first barrier; of thread 0.
  __device__ void open() {
    mail.open();
    mail.expect(cluster_blocks() * kSteps * sizeof(uint2));
  }
  // A barrier of the block must follow.
  __device__ void clear() {
    if (threadIdx.x < kSteps) own[threadIdx.x] = make_uint2(0u, 0u);
  }
};

// Steps at which the number of groups is at most `groups`: 16 at multiples of 2^first, then every eighth.
__device__ inline uint32_t steps_within(uint32_t groups, int first) {
  constexpr uint32_t kFine = kSteps / 2;
  const uint32_t units = groups >> first;
  const uint32_t steps = units <= kFine ? units : kFine + (units - kFine) / 8u;
  return steps < kSteps ? steps : kSteps;
}

// Fills `steps.own` from maxima in `range`, whose `wanted` is this block's equal part of k. A unit is an eighth of
// that or less, at least 1; the last step is more than nine times it. Where the row has 2 k groups, all blocks' steps
// together are more than k, and a block has as many groups as its part.
template <int Groups>
__device__ inline void find_steps(const Maxima<Groups>& maxima, Range range, Steps& steps, RangeShared& shared,
                                  BlockScope& scope) {
  const uint32_t part = range.wanted, spare = 8u + part / 8u;
  const int first = part < 8u ? 0 : 28 - __clz(static_cast<int>(part));
  uint32_t inside;
  do {
    const uint32_t better = part - range.wanted;  // than the range
    inside = narrow(maxima, range, shared, scope, [&](uint32_t before, const auto& count, const auto& lowest) {
      uint32_t reaching = better + before, all = reaching;
      for (const uint32_t one : count) all += one;
      uint32_t i = steps_within(reaching, first);
      if (i == steps_within(all, first)) return;  // few threads' bins hold a step
#pragma unroll
      for (int bin = 0; bin < BlockScope::kOwn; ++bin) {
        reaching += count[bin];
        for (const uint32_t end = steps_within(reaching, first); i < end; ++i) {
          steps.own[i] = make_uint2(lowest(bin), reaching);
        }
      }
    });
  } while (range.low < range.high && inside > spare);
}

// Sends this block's steps to every block of the cluster, itself too; a warp serves one.
__device__ inline void send_steps(Steps& steps) {
  const uint32_t lane = threadIdx.x % kSteps, block = threadIdx.x / kSteps;
  uint2 step = steps.own[lane];
  const uint32_t before = __shfl_up_sync(full_warp, step.y, 1);
  if (lane > 0u && step.y > 0u) step.y -= before;
  if (block < cluster_blocks()) Line(steps.all[cluster_rank()], steps.mail, block).send(lane, step);
}

// The bound, from all blocks' steps, which are at least k groups. The same in every block.
__device__ inline uint32_t bound_of_steps(const Steps& steps, uint32_t k, RangeShared& shared, BlockScope& scope) {
  const uint2 step = steps.mine();
  Range range = range_of_block(step.y > 0u ? step.x : ~0u, step.y > 0u ? step.x : 0u, k, shared);
  // What lies in the bin of the k-th is too much only if it outnumbers what is wanted by far.
  const uint32_t spare = 64u + k / 8u;
  uint32_t inside;
  do {
    inside = narrow(steps, range, shared, scope);
  } while (range.low < range.high && inside > spare);
  return range.low;
}

}  // namespace dsa
