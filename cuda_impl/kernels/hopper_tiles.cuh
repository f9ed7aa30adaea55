// What a block of the Hopper scorer is made of, and what its warpgroups do with the tiles that it copies in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hopper_query.cuh"
#include "hopper_ring.cuh"
#include "operands.cuh"
#include "score.cuh"
#include "score_schedule.cuh"
#include "score_wide.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

// How a block is made up for `Rows` rows at once. Registers: what is left to the warpgroup that feeds and
// stages, and what each of the others gets; together no more than the block starts with.
template <class Operand, int Rows>
struct Shape {
  static constexpr int kConsumers = Rows == 1 ? 4 : 3;
  // Products of several warpgroups at once share the unit and end together, which leaves it idle while all
  // add up heads. In turns they end one after another. One row's products are too short for it to pay.
  static constexpr bool kInTurns = Rows > 1;
  static constexpr int kThreads = kWarpgroup * (1 + kConsumers);
  static constexpr int kFeedRegisters = 40;
  static constexpr int kScoreRegisters = Rows == 1 ? 104 : 152;
  static constexpr int kFeederThreads = 32 * kFeeders;
  static constexpr int kStagers = kWarpgroup - kFeederThreads;
  static constexpr int kSharedBytes = 224 * 1024;
  static constexpr int kMostStages = 24;
  static constexpr std::size_t kRingBytes = kSharedBytes - sizeof(Queries<Operand, Rows>);
  static constexpr int kFit = static_cast<int>(kRingBytes / (sizeof(Tile<Operand>) + 16));
  // A stage is always read by the same warpgroup, and filled by the same warp: each sees all its phases.
  static constexpr int kCycle = kFeeders * kConsumers;
  static constexpr int kStages = (kFit < kMostStages ? kFit : kMostStages) / kCycle * kCycle;
  static_assert(kStages > 0);
};

template <class Operand, int Rows>
struct Shared {
  Ring<Operand, Shape<Operand, Rows>::kStages> ring;
  Queries<Operand, Rows> queries;
};

// Warpgroup `consumer` scores every kConsumers-th tile of the block's piece.
template <class Operand, int Rows>
__device__ inline void score_tiles(const ScoreArguments& a, Shared<Operand, Rows>& shared, int consumer) {
  using S = Shape<Operand, Rows>;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int first_of_warp = threadIdx.x % kWarpgroup / 32 * 16;
  // Lane t = 0 writes the score of key g of the warp's 16, lane t = 1 that of key g + 8; others write none.
  const int mine = first_of_warp + 8 * (t % 2) + g;

  // Where in the first stage's tile this lane reads, and that stage's barrier.
  const uint32_t tiles = shared_address(shared.ring.tile);
  const uint32_t values = held(tiles + (first_of_warp + g) * Operand::kValueBytes + 16 * t);
  const uint32_t scale_words =
      held(tiles + kTileKeys * Operand::kValueBytes + (Operand::kGrouped ? first_of_warp + g : mine) * 4);
  const uint32_t full = held(shared_address(shared.ring.full));
  Cursor<S::kStages> at{consumer, 0};
  int skip = consumer;  // tiles until this warpgroup's next
  if (S::kInTurns && consumer == S::kConsumers - 1) pass_turn_to(0);
  for (uint32_t number = 0;; ++number) {
    const int buffer = number % 2;
    barrier_wait(shared_address(&shared.queries.full[buffer]), number / 2 % 2);
    const StagedGroup<Operand, Rows>& staged = shared.queries.group[buffer];
    const Segment segment = staged.segment;
    if (segment.count == 0) break;
    const int64_t row = int64_t{segment.group} * Rows;
    int end[Rows];  // of the columns that this lane writes
#pragma unroll
    for (int r = 0; r < Rows; ++r) end[r] = t < 2 ? staged.length[r] : 0;
    float weight[Rows][16];
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
#pragma unroll
      for (int i = 0; i < 16; ++i) weight[r][i] = staged.weights[r][t][i];
    }
    const uint64_t query = uniform(operand(shared_address(staged.operand), Rows * kHeads * 16, 128));

    bool narrow = true;
    int i = skip;
    int column = (segment.first + i) * kTileKeys + mine;
    float* out = held(a.scores + row * a.max_length + column);  // of the first row
    for (; i < segment.count; i += S::kConsumers, column += S::kConsumers * kTileKeys) {
      const uint32_t arrival = full + 8 * at.stage;
      barrier_wait(arrival, at.parity);
      const uint32_t stage = at.stage * static_cast<uint32_t>(sizeof(Tile<Operand>));
      uint32_t scales[2] = {0u, 0u};  // of the keys that this lane converts, where their groups have some
      uint32_t scale = 0u;            // of the key whose score it writes
      if constexpr (Operand::kGrouped) {
#pragma unroll
        for (int half = 0; half < 2; ++half) scales[half] = read_word(scale_words + stage + 32 * half);
        scale = t % 2 ? scales[1] : scales[0];
      } else if constexpr (Operand::kScaleBytes > 0) {
        scale = read_word(scale_words + stage);
      }
      uint4 chunk[2][Operand::kChunks];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int c = 0; c < Operand::kChunks; ++c) {
          chunk[half][c] = read_four(values + stage + 8 * half * Operand::kValueBytes + 64 * c);
        }
      }

      uint32_t key[8][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t shift = Operand::kGrouped ? group_shift(scales[half], t) : 0u;
#pragma unroll
        for (int s = 0; s < 8; ++s) {
          Operand::pairs(chunk[half][s / Operand::kSteps], shift, s % Operand::kSteps, key[s][half], key[s][half + 2]);
        }
      }
      float d[Rows][32];
      if constexpr (S::kInTurns) take_turn(consumer);
      products_begin();
#pragma unroll
      for (int s = 0; s < 8; ++s) {
        product<Operand::kBf16>(d, key[s], query + s * 2 * Rows * kHeads * 16 / 16, s > 0);
      }
      products_commit();
      if constexpr (S::kInTurns) pass_turn_to((consumer + 1) % S::kConsumers);
      products_wait(d);
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        float sum[2][2] = {};
#pragma unroll
        for (int h = 0; h < 16; ++h) {
          sum[0][h % 2] = fmaf(weight[r][h], Operand::rectified(d[r][4 * (h / 2) + h % 2]), sum[0][h % 2]);
          sum[1][h % 2] = fmaf(weight[r][h], Operand::rectified(d[r][4 * (h / 2) + h % 2 + 2]), sum[1][h % 2]);
        }
        const float low = sum[0][0] + sum[0][1];
        const float high = sum[1][0] + sum[1][1];
        float score = (t % 2 ? high : low) + __shfl_xor_sync(full_warp, t % 2 ? low : high, 1);
        score = score + __shfl_xor_sync(full_warp, score, 2);
        if constexpr (Operand::kGrouped) {
          score = reference_scale(score, scale);
          narrow = narrow && (column >= end[r] || scales_fit(scale));
        } else if constexpr (Operand::kScaleBytes > 0) {
          score = score * __uint_as_float(scale);
        }
        if (column < end[r]) write_global(out + r * a.max_length, score);
      }
      out += S::kConsumers * kTileKeys;
      // The score needed everything that was read of the tile: all reads have ended. Reads that are only under
      // way do not keep the next copy from overtaking them, whatever barrier stands between.
      barrier_arrive(arrival + Ring<Operand, S::kStages>::kFullToEmpty);
      at.advance(S::kConsumers);
    }
    const bool all = Operand::kGrouped && !(staged.fit[0] && staged.fit[1]);
    barrier_arrive(shared_address(&shared.queries.empty[buffer]));
    if constexpr (Operand::kGrouped) {
      if (all || __any_sync(full_warp, !narrow)) {
        __syncwarp();  // other lanes have written the scores that this one replaces
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          constexpr int kStride = S::kConsumers * kTileKeys;
          const int64_t start = static_cast<int64_t>(segment.first + skip) * kTileKeys + first_of_warp;
          const int64_t stop = static_cast<int64_t>(segment.first + segment.count) * kTileKeys;
          const int64_t length = a.lengths[row + r];
          const int64_t column = start + lane % 16 + lane / 16 * kStride;
          rescore_wide(a, row + r, column, 2 * kStride, stop < length ? stop : length, all);
        }
      }
    }
    skip = i - segment.count;
  }
}

}  // namespace dsa::hopper

#endif
