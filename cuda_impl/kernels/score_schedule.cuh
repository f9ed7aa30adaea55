// A block's piece of the plan, walked group by group.
#pragma once

#include <cmath>
#include <cstdint>

#include "score.cuh"
#include "score_plan.cuh"

#if defined(__CUDACC__)

namespace dsa {

// Tiles [first, first + count) of a group.
struct Segment {
  int group;
  int first;
  int count;
};

// Those who feed and those who stage each have their own.
template <int Rows>
struct Schedule {
  const int32_t* lengths;
  uint32_t left;  // tiles
  int group;      // of the next tile
  int first;

  __device__ Schedule(const ScoreArguments& a, const Share& share)
      : lengths(a.lengths), left(share.tiles), group(share.group), first(share.first) {}

  // The next segment; false after the last. `rest`: tiles of the group from `first` on, which the caller knows.
  __device__ bool next(Segment& segment, int rest) {
    while (left > 0) {
      segment = {group, first, static_cast<int>(min(static_cast<uint32_t>(rest), left))};
      ++group;
      first = 0;
      left -= segment.count;
      if (segment.count > 0) return true;
      rest = tiles_of<Rows>(lengths, group);
    }
    return false;
  }
  __device__ bool next(Segment& segment) { return left > 0 && next(segment, tiles_of<Rows>(lengths, group) - first); }
};

// Threads of a block write -inf at and past the rows' lengths, a share of all cells each block.
__device__ inline void fill_past_lengths(const ScoreArguments& a, int thread, int threads) {
  constexpr int64_t kCells = 4096;
  const int64_t chunks = ceil_divide(a.max_length, kCells);
  for (int64_t unit = blockIdx.x; unit < a.rows * chunks; unit += gridDim.x) {
    const int64_t row = unit / chunks, start = unit % chunks * kCells, length = a.lengths[row];
    const int64_t stop = start + kCells < a.max_length ? start + kCells : a.max_length;
    for (int64_t column = (start > length ? start : length) + thread; column < stop; column += threads) {
      a.scores[row * a.max_length + column] = -INFINITY;
    }
  }
}

}  // namespace dsa

#endif
