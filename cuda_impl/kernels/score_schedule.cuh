// Who scores what: all tiles of all rows in one line, cut into equal pieces, one for each block.
//
// A tile is 64 keys of a row, or of the two rows of one request ("group"). Only tiles below a row's length
// count, so a long row among short ones is spread over as many blocks as its share of the work.
#pragma once

#include <cmath>
#include <cstdint>

#include "block_scan.cuh"
#include "score.cuh"

#if defined(__CUDACC__)

namespace dsa {

constexpr int kTileKeys = 64;

// Tiles [first, first + count) of a group.
struct Segment {
  int group;
  int first;
  int count;
};

// Tiles of so many keys; unsigned, since rounding the longest row up leaves an int's range.
__device__ constexpr int tiles_over(int keys) {
  return static_cast<int>(ceil_divide<uint32_t>(keys, kTileKeys));
}
static_assert(tiles_over(0) == 0 && tiles_over(65) == 2 && tiles_over(0x7FFFFFFF) == 1 << 25);

template <int Rows>
__device__ __forceinline__ int tiles_of(const int32_t* lengths, int64_t group) {
  int longest = lengths[group * Rows];
#pragma unroll
  for (int r = 1; r < Rows; ++r) longest = max(longest, lengths[group * Rows + r]);
  return tiles_over(longest);
}

// A block's piece, walked group by group. Those who feed and those who stage each have their own.
template <int Rows>
struct Schedule {
  const int32_t* lengths;
  uint32_t left;  // tiles
  int group;  // of the next tile
  int first;
  int request;  // of that group

  __device__ bool next(Segment& segment) {
    while (left > 0) {
      const auto rest = static_cast<uint32_t>(tiles_of<Rows>(lengths, group) - first);
      segment = {group, first, static_cast<int>(rest < left ? rest : left)};
      ++group;
      first = 0;
      if (segment.count == 0) continue;
      left -= segment.count;
      return true;
    }
    return false;
  }
};

// This block's share of `total` tiles; shares differ by one tile at most.
struct Piece {
  uint32_t start;
  uint32_t tiles;
};

__device__ __forceinline__ Piece piece_of_block(uint32_t total) {
  const uint32_t tiles = total / gridDim.x, more = total % gridDim.x;
  return {tiles * blockIdx.x + (blockIdx.x < more ? blockIdx.x : more), tiles + (blockIdx.x < more ? 1u : 0u)};
}

template <int Threads>
struct ScheduleShared {
  uint32_t warp_tiles[Threads / 32];
  int group;
  int first;
  int request;
};

// Every thread of the block calls it, and all meet in it; there are less than 2^31 tiles. `ragged`: some row
// is shorter than `max_length`.
template <int Rows, int Threads>
__device__ inline Schedule<Rows> schedule_of_block(const ScoreArguments& a, ScheduleShared<Threads>& shared,
                                                   bool& ragged) {
  const auto groups = static_cast<uint32_t>(a.rows / Rows);
  if (groups == 1) {  // nothing to search for: a short call should not wait for it
    ragged = false;
#pragma unroll
    for (int r = 0; r < Rows; ++r) ragged = ragged || a.lengths[r] < a.max_length;
    const int request = a.request_of_row[0];
    const auto [start, tiles_here] = piece_of_block(tiles_of<Rows>(a.lengths, 0));
    __syncthreads();
    return {a.lengths, tiles_here, 0, static_cast<int>(start), request};
  }
  const uint32_t share = ceil_divide<uint32_t>(groups, Threads);
  const uint32_t from = threadIdx.x * share;
  const uint32_t to = from + share < groups ? from + share : groups;
  // Asked for before it is known to be needed: loads that wait for each other are what a short call costs.
  const int request = from < groups ? a.request_of_row[static_cast<int64_t>(from) * Rows] : 0;
  uint32_t own = 0;
  bool mine_ragged = false;
  for (uint32_t group = from; group < to; ++group) {
    own += tiles_of<Rows>(a.lengths, group);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      mine_ragged = mine_ragged || a.lengths[static_cast<int64_t>(group) * Rows + r] < a.max_length;
    }
  }
  const uint32_t inclusive = warp_inclusive_sum(own);
  if (threadIdx.x % 32 == 31) shared.warp_tiles[threadIdx.x / 32] = inclusive;
  ragged = __syncthreads_or(mine_ragged);
  uint32_t total = 0, before = inclusive - own;
#pragma unroll
  for (int warp = 0; warp < Threads / 32; ++warp) {
    if (warp < static_cast<int>(threadIdx.x / 32)) before += shared.warp_tiles[warp];
    total += shared.warp_tiles[warp];
  }
  const auto [start, tiles_here] = piece_of_block(total);
  if (before <= start && start < before + own) {
    uint32_t group = from;
    for (uint32_t tiles = tiles_of<Rows>(a.lengths, group); before + tiles <= start;) {
      before += tiles;
      tiles = tiles_of<Rows>(a.lengths, ++group);
    }
    shared.group = static_cast<int>(group);
    shared.first = static_cast<int>(start - before);
    shared.request = group == from ? request : a.request_of_row[static_cast<int64_t>(group) * Rows];
  }
  __syncthreads();
  return {a.lengths, tiles_here, shared.group, shared.first, shared.request};
}

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
