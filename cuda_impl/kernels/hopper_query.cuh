// Queries in shared memory as the matrix unit's second operand, two groups deep: while one is used, the
// next is converted.
#pragma once

#include <cstdint>

#include "hopper.cuh"
#include "operands.cuh"
#include "score_schedule.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

constexpr int kHeads = 64;
constexpr int kOperandBytes = kHeads * kHeadDim * 2;

// All heads of a group's rows, row after row: columns of one operand. Heads past a row's are zero, with
// weight zero. A core (8 heads x 8 elements, 128 bytes) that straddles two lines is read more slowly.
template <class Operand, int Rows>
struct alignas(128) StagedGroup {
  uint32_t operand[Rows * kOperandBytes / 4];  // cores, those of one element after another
  // Lane t of four adds up heads 8j + 2t and 8j + 2t + 1: entries 2j and 2j + 1 of its weights. They are over
  // kRectified, and times what a grouped format leaves of the query's scales.
  float weights[Rows][4][kHeads / 4];
  bool fit[kHeads / 32];  // 16-bit operands hold the query scales of these 32 heads
  Segment segment;        // the block's tiles of this group; none after its last group
  int length[Rows];       // of the rows

  __device__ void announce(const Segment& tiles, const int32_t* lengths) {
    segment = tiles;
#pragma unroll
    for (int r = 0; r < Rows; ++r) length[r] = lengths[r];
  }
};

template <class Operand, int Rows>
struct Queries {
  StagedGroup<Operand, Rows> group[2];
  uint4 codes[Rows * kHeads * Operand::kQueryBytes / 16];  // of the next group, as they lie in memory
  uint64_t full[2];
  uint64_t empty[2];
  uint64_t fetched;

  // Of one thread; that many convert a group together, and use one.
  __device__ void init(uint32_t stagers, uint32_t users) {
    barrier_init(shared_address(&fetched), 1);
    for (int buffer = 0; buffer < 2; ++buffer) {
      barrier_init(shared_address(&full[buffer]), stagers);
      barrier_init(shared_address(&empty[buffer]), users);
    }
    barrier_publish();
  }
};

// Bytes of a group's codes.
template <class Operand, int Rows>
__device__ __forceinline__ uint32_t group_bytes(const ScoreArguments& a) {
  return Rows * static_cast<uint32_t>(a.heads) * Operand::kQueryBytes;
}

// One thread asks for the codes of a group; `queries.codes` is free.
template <class Operand, int Rows>
__device__ inline void fetch_group(const ScoreArguments& a, int64_t group, Queries<Operand, Rows>& queries) {
  const uint32_t bytes = group_bytes<Operand, Rows>(a);
  const uint32_t arrival = shared_address(&queries.fetched);
  barrier_expect(arrival, bytes);
  copy_bulk(shared_address(queries.codes), reinterpret_cast<const uint8_t*>(a.codes) + group * bytes, bytes, arrival);
}

// Converts what thread `thread` of `threads` (at least one a head) does of a fetched group. `use` counts
// the groups fetched before it.
template <class Operand, int Rows>
__device__ inline void stage_group(const ScoreArguments& a, int64_t group, uint32_t use,
                                   Queries<Operand, Rows>& queries, int thread, int threads) {
  constexpr int kChunks = 4 * Operand::kChunks;
  constexpr int kHeadCores = kHeads / 8;
  StagedGroup<Operand, Rows>& staged = queries.group[use % 2];
  float weight[Rows];
#pragma unroll
  for (int r = 0; r < Rows; ++r) weight[r] = thread < a.heads ? a.weights[(group * Rows + r) * a.heads + thread] : 0.0f;
  barrier_wait(shared_address(&queries.fetched), use % 2);

  const auto* records = reinterpret_cast<const uint8_t*>(queries.codes);
  for (int flat = thread; flat < Rows * kHeads * kChunks; flat += threads) {
    const int of_group = flat / (kHeads * kChunks);
    const int head = flat / kChunks % kHeads;
    const int lane = flat % kChunks % 4;
    const uint8_t* record = records + (of_group * a.heads + head) * Operand::kQueryBytes;
    uint4 chunk = make_uint4(0u, 0u, 0u, 0u);
    uint32_t shift = 0u;
    if (head < a.heads) {
      const auto* words = reinterpret_cast<const uint32_t*>(record + flat % kChunks * 16);
      chunk = make_uint4(words[0], words[1], words[2], words[3]);
      if constexpr (Operand::kGrouped) {
        shift = group_shift(*reinterpret_cast<const uint32_t*>(record + Operand::kValueBytes), lane);
      }
    }
#pragma unroll
    for (int s = 0; s < Operand::kSteps; ++s) {
      const int step = flat % kChunks / 4 * Operand::kSteps + s;
      uint32_t low, high;
      Operand::pairs(chunk, shift, s, low, high);
      const int first = (2 * step * Rows + of_group) * kHeadCores + head / 8;
      uint32_t* core = staged.operand + first * 32 + head % 8 * 4 + lane;
      core[0] = low;
      core[Rows * kHeadCores * 32] = high;
    }
  }
  if (thread < kHeads) {
    bool fit = true;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      float left = weight[r] * (1.0f / Operand::kRectified);
      if constexpr (Operand::kGrouped) {
        const uint8_t* of_head = records + (r * a.heads + thread) * Operand::kQueryBytes + Operand::kValueBytes;
        const uint32_t scales = thread < a.heads ? *reinterpret_cast<const uint32_t*>(of_head) : 0u;
        left = reference_scale(left, scales);
        fit = fit && scales_fit(scales);
      }
      staged.weights[r][thread % 8 / 2][thread / 8 * 2 + thread % 2] = left;
    }
    if constexpr (Operand::kGrouped) {
      fit = __all_sync(full_warp, fit);
      if (thread % 32 == 0) staged.fit[thread / 32] = fit;
    }
  }
  publish_to_matrix_unit();
}

}  // namespace dsa::hopper

#endif
