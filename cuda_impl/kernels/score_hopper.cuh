// Paged scoring on Hopper's matrix unit: the same scores as score.cuh, in another order of additions.
//
// One block a processor takes an equal piece of all tiles (64 keys of a row, or of the two rows of one
// request). Two warps copy tiles into a ring in shared memory, two convert the queries of the next rows,
// and each of several warpgroups turns its tile's keys into 16-bit operands in registers, multiplies them
// with all heads' queries and adds the heads up. Products of fp8, fp4 and bf16 codes are exact. The unit
// was measured to add 16 of them at once with 26 bits and to cut their sum to float32, which is within the
// ieee-fp32 model; fp8 instructions keep 14 bits.
#pragma once

#include <cstdint>

#include "hopper_query.cuh"
#include "hopper_ring.cuh"
#include "hopper_tiles.cuh"
#include "operands.cuh"
#include "score.cuh"
#include "score_schedule.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

namespace {

template <class Operand, int Rows>
__global__ void __launch_bounds__(Shape<Operand, Rows>::kThreads, 1) score_kernel(ScoreArguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using S = Shape<Operand, Rows>;
  Shared<Operand, Rows>& shared = *dynamic_shared<Shared<Operand, Rows>>();
  if (threadIdx.x == S::kFeederThreads) shared.queries.init(S::kStagers, kWarpgroup * S::kConsumers);
  if (threadIdx.x == S::kThreads - 32) shared.ring.init();
  __syncthreads();
  after_earlier_kernels();
  // Of a single group it is known at once whose queries are needed.
  const bool alone = a.rows == Rows;
  if (threadIdx.x == S::kFeederThreads && alone) fetch_group<Operand, Rows>(a, 0, shared.queries);
  const PlannedShare& planned = a.shares[blockIdx.x];

  // The first group's queries are staged by all warps but those that feed.
  constexpr int kAll = S::kThreads - S::kFeederThreads;
  const int thread = static_cast<int>(threadIdx.x) - S::kFeederThreads;
  if (threadIdx.x < kWarpgroup) {
    shrink_to<S::kFeedRegisters>();
    if (thread < 0) {
      feed<Operand, Rows>(a, planned, shared.ring, static_cast<int>(threadIdx.x) / 32);
      return;
    }
    const Share share = planned.share;
    Schedule<Rows> ahead(a, share);
    Segment segment;
    bool more = ahead.next(segment, share.count);
    if (thread == 0) {
      if (more && !alone) fetch_group<Operand, Rows>(a, segment.group, shared.queries);
      if (!more && alone) barrier_wait(shared_address(&shared.queries.fetched), 0);  // no copy outlives its block
    }
    uint32_t number = 0;
    for (; more; ++number) {
      const int buffer = number % 2;
      const int64_t group = segment.group;
      if (number > 0) barrier_wait(shared_address(&shared.queries.empty[buffer]), (number / 2 + 1) % 2);
      if (thread == 0) {
        shared.queries.group[buffer].announce(segment, number == 0 ? planned.share.lengths : a.lengths + group * Rows);
      }
      if (number == 0) {
        stage_group<Operand, Rows>(a, group, number, shared.queries, thread, kAll);
        meet<1>(kAll);
      } else {
        stage_group<Operand, Rows>(a, group, number, shared.queries, thread, S::kStagers);
        meet<2>(S::kStagers);
      }
      barrier_arrive(shared_address(&shared.queries.full[buffer]));
      more = ahead.next(segment);
      if (more && thread == 0) fetch_group<Operand, Rows>(a, segment.group, shared.queries);
    }
    if (share.ragged) fill_past_lengths(a, thread, S::kStagers);
    // A group without tiles ends the others' work.
    barrier_wait(shared_address(&shared.queries.empty[number % 2]), (number / 2 + 1) % 2);
    if (thread == 0) shared.queries.group[number % 2].segment.count = 0;
    barrier_arrive(shared_address(&shared.queries.full[number % 2]));
  } else {
    grow_to<S::kScoreRegisters>();
    if (planned.share.tiles > 0) {
      stage_group<Operand, Rows>(a, planned.share.group, 0, shared.queries, thread, kAll);
      announce<1>(kAll);
    }
    score_tiles<Operand, Rows>(a, shared, static_cast<int>(threadIdx.x) / kWarpgroup - 1);
  }
#else
  __trap();  // launched only where the device is the one that this was compiled for
#endif
}

}  // namespace

// How this file's kernel would do a call on the current device. `paired`: rows 2i and 2i + 1 belong to one request.
template <class Operand>
ScoreLayout layout(const ScoreSizes& s, bool paired) {
  const int64_t query_bytes = s.heads * Operand::kQueryBytes;
  if (s.heads > kHeads || s.page_size % kTileKeys != 0 || (s.cache_at | s.codes_at | query_bytes) % 16 != 0) return {};
  // Heads that a row lacks are zeros here: times an infinite key they would be NaN. Only bf16 keys can be.
  if (Operand::kBf16 && s.heads != kHeads) return {};
  const Gpu gpu = current_gpu();
  if (gpu.capability != 90) return {};
  return layout_of(s, paired && s.rows % 2 == 0 ? 2 : 1, gpu.processors);
}

template <class Operand, int Rows>
void launch_rows(const ScoreArguments& a, dim3 blocks, Stream stream) {
  launch("paged_scores (hopper)", score_kernel<Operand, Rows>, blocks, dim3(Shape<Operand, Rows>::kThreads),
         sizeof(Shared<Operand, Rows>), stream, a);
}

}  // namespace dsa::hopper

#endif
