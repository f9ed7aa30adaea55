// Paged scoring on the matrix unit of any GPU that the kernels are built for (compute capability 8.0 and later):
// the same scores as score.cuh, in another order of additions.
//
// As many blocks as the GPU holds take equal pieces of all tiles. A block converts a row's queries once into
// shared memory; each of its warps turns 32 keys at a time into 16-bit operands in registers, multiplies
// them with 16 heads after another, and adds the heads up while its next keys are under way. Products of
// fp8, fp4 and bf16 codes are exact; what the unit keeps of their sums is the GPU's own affair.
#pragma once

#include <cstdint>

#include "divisor.cuh"
#include "mma_heads.cuh"
#include "mma_keys.cuh"
#include "mma_query.cuh"
#include "score.cuh"
#include "score_schedule.cuh"
#include "score_wide.cuh"

#if defined(__CUDACC__)

namespace dsa::mma {

constexpr int kBlockKeys = kThreads / 32 * kWarpKeys;

// Blocks on a processor, for whose sake the registers of a thread are limited: bf16 keys take the most.
template <class Operand>
constexpr int kBlocks = Operand::kBf16 ? 2 : 3;

// The whole block scores a segment, whose keys are those of `request`. True where 16-bit operands cannot hold the
// scales of some of the thread's keys, or of a row's queries: those scores are wrong.
template <class Operand, int Rows>
__device__ __forceinline__ bool score_segment(const ScoreArguments& a, const Divisor& page_size, const Segment& segment,
                                              int request, const Queries& staged) {
  const int lane = threadIdx.x % 32;
  const uint32_t own = own_key(lane);
  const int padded = padded_heads(a.heads);
  const int64_t row = int64_t{segment.group} * Rows;
  const int32_t* table = a.block_table + static_cast<int64_t>(request) * a.max_pages;
  uint32_t length[Rows], end = 0;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    length[r] = a.lengths[row + r];
    end = max(end, length[r]);
  }
  end = min(end, static_cast<uint32_t>(segment.first + segment.count) * kTileKeys);

  // What a warp has too many of are further copies of the last key.
  const auto place = [&](uint32_t key) { return place_of(table, page_size, min(key, end - 1)); };
  const uint32_t warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);  // the compiler sees that a warp stays together
  uint32_t first = static_cast<uint32_t>(segment.first) * kTileKeys + warp * kWarpKeys;
  Keys<Operand> keys;
  if (first < end) fetch(a, place(first + own), keys);
  Place next = place(first + kBlockKeys + own);
  __syncthreads();  // the queries before are done with
  const bool wide = stage_queries<Operand, Rows>(a, segment.group, staged);

  bool narrow = true;
  for (; first < end; first += kBlockKeys) {
    uint32_t key[4][8][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t shift = 0u;
      if constexpr (Operand::kGrouped) {
        shift = group_shift(__shfl_sync(full_warp, keys.scale, owner(i, lane / 4)), lane % 4);
      }
#pragma unroll
      for (int s = 0; s < 8; ++s) {
        Operand::pairs(keys.chunk[i][s / Operand::kSteps], shift, s % Operand::kSteps, key[i][s][0], key[i][s][1]);
      }
    }
    const uint32_t scale = keys.scale;
    if (first + kBlockKeys < end) fetch(a, next, keys);
    next = place(first + 2 * kBlockKeys + own);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const uint4* operand = staged.operand + r * padded / kHeadStep * kStepVectors + lane;
      const auto* weights = reinterpret_cast<const float2*>(staged.weights + r * padded) + lane / 4;
      float score = sum_over_heads<Operand>(key, operand, weights, a.heads);
      const uint32_t column = first + own;
      if (column < end && column < length[r]) {
        if constexpr (Operand::kGrouped) {
          score = reference_scale(score, scale);
          narrow = narrow && scales_fit(scale);
        } else if constexpr (Operand::kScaleBytes > 0) {
          score = score * __uint_as_float(scale);
        }
        a.scores[(row + r) * a.max_length + column] = score;
      }
    }
  }
  return wide || !narrow;
}

// Scores those keys of the block's piece once more whose scales, or whose row's, 16-bit operands cannot hold. Apart
// from the kernel, whose registers it would take: few come here.
template <int Rows>
__device__ __noinline__ void rescore_piece(ScoreArguments a, Schedule<Rows> schedule) {
  Segment segment;
  while (schedule.next(segment)) {
    for (int r = 0; r < Rows; ++r) {
      const int64_t row = int64_t{segment.group} * Rows + r;
      bool wide = false;
      for (int head = threadIdx.x; head < a.heads; head += kThreads) {
        wide = wide || !scales_fit(a.codes[(row * a.heads + head) * Fp4::kQueryWords + Fp4::kValueWords]);
      }
      const bool all = __syncthreads_or(wide);
      const int64_t start = static_cast<int64_t>(segment.first) * kTileKeys + threadIdx.x;
      const int64_t stop = static_cast<int64_t>(segment.first + segment.count) * kTileKeys;
      rescore_wide(a, row, start, kThreads, min(stop, static_cast<int64_t>(a.lengths[row])), all);
    }
  }
}

namespace {

template <class Operand, int Rows>
__global__ void __launch_bounds__(kThreads, kBlocks<Operand>) score_kernel(ScoreArguments a, Divisor page_size) {
  after_earlier_kernels();
  const Share share = a.shares[blockIdx.x].share;
  const Queries staged(Rows, a.heads);
  Schedule<Rows> schedule(a, share);
  int request = share.request;
  bool wide = false;
  Segment segment;
  for (bool more = schedule.next(segment, share.count); more;) {
    wide = score_segment<Operand, Rows>(a, page_size, segment, request, staged) || wide;
    more = schedule.next(segment);
    if (more) request = a.request_of_row[int64_t{segment.group} * Rows];
  }
  if constexpr (Operand::kGrouped) {
    if (__syncthreads_or(wide)) rescore_piece<Rows>(a, Schedule<Rows>(a, share));
  }
  if (share.ragged) fill_past_lengths(a, static_cast<int>(threadIdx.x), kThreads);
}

}  // namespace

// Blocks of this kernel that a GPU holds at once.
template <class Operand, int Rows>
int64_t resident_blocks(int heads, int processors) {
  int resident = 0;
  check_cuda("paged_scores (mma)", cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                       &resident, score_kernel<Operand, Rows>, kThreads, query_bytes(Rows, heads)));
  return int64_t{resident} * processors;
}

// How this file's kernel would do a call on the current device. `paired`: rows 2i and 2i + 1 belong to one request.
template <class Operand>
ScoreLayout layout(const ScoreSizes& s, bool paired) {
  if (s.heads > kMostHeads || (s.cache_at | s.page_bytes) % 16 != 0) return {};  // each key starts at a multiple of 16
  const int heads = static_cast<int>(s.heads), processors = current_gpu().processors;
  if (paired && s.rows % 2 == 0 && 2 * padded_heads(heads) <= kMostHeads) {
    return layout_of(s, 2, resident_blocks<Operand, 2>(heads, processors));
  }
  return layout_of(s, 1, resident_blocks<Operand, 1>(heads, processors));
}

template <class Operand, int Rows>
void launch_rows(const ScoreArguments& a, dim3 blocks, Stream stream) {
  launch("paged_scores (mma)", score_kernel<Operand, Rows>, blocks, dim3(kThreads), query_bytes(Rows, a.heads), stream,
         a, Divisor(a.page_size));
}

}  // namespace dsa::mma

#endif
