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
  __shared__ ScheduleShared<kThreads> shared;
  bool ragged;
  const Schedule<Rows> piece = schedule_of_block<Rows, kThreads>(a, shared, ragged);
  const Queries staged(Rows, a.heads);
  Schedule<Rows> schedule = piece;
  int request = piece.request;
  bool wide = false;
  Segment segment;
  for (bool later = false; schedule.next(segment); later = true) {
    if (later) request = a.request_of_row[segment.group * Rows];
    wide = score_segment<Operand, Rows>(a, page_size, segment, request, staged) || wide;
  }
  if constexpr (Operand::kGrouped) {
    if (__syncthreads_or(wide)) rescore_piece<Rows>(a, piece);
  }
  if (ragged) fill_past_lengths(a, static_cast<int>(threadIdx.x), kThreads);
}

}  // namespace

template <class Operand, int Rows>
void launch_rows(const ScoreArguments& a, int processors, Stream stream) {
  constexpr char kName[] = "paged_scores (mma)";
  const auto kernel = score_kernel<Operand, Rows>;
  const int shared_bytes = query_bytes(Rows, a.heads);
  int resident = 0;
  check_cuda(kName, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, shared_bytes));
  const int64_t tiles = a.rows / Rows * ceil_divide(a.max_length, int64_t{kTileKeys});
  const int64_t blocks = static_cast<int64_t>(resident) * processors;
  const dim3 grid(static_cast<unsigned>(tiles < blocks ? tiles : blocks));
  launch(kName, kernel, grid, dim3(kThreads), shared_bytes, stream, a, Divisor(a.page_size));
}

// Scores by this file's kernel if the sizes allow; returns whether it did. `paired`: rows 2i and 2i + 1
// belong to one request.
template <class Operand>
bool try_launch(const ScoreArguments& a, bool paired, Stream stream) {
  if (a.heads > kMostHeads || a.rows * ceil_divide(a.max_length, int64_t{kTileKeys}) > 0x7FFFFFFF) return false;
  // Each key starts at a multiple of 16 bytes.
  if ((reinterpret_cast<uintptr_t>(a.cache) | static_cast<uintptr_t>(a.page_words * 4)) % 16 != 0) return false;
  const int processors = current_gpu().processors;
  if (paired && a.rows % 2 == 0 && 2 * padded_heads(a.heads) <= kMostHeads) {
    launch_rows<Operand, 2>(a, processors, stream);
  } else {
    launch_rows<Operand, 1>(a, processors, stream);
  }
  return true;
}

}  // namespace dsa::mma

#endif
