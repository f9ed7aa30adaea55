// Who scores what: all tiles of all rows in one line, cut into equal pieces, one for each block.
//
// A tile is 64 keys of a row, or of the two rows of one request ("group"). Only tiles below a row's length
// count, so a long row among short ones is spread over as many blocks as its share of the work.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "hopper.cuh"
#include "score.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

constexpr int kTileKeys = 64;

// What starting on another group costs a block, in tiles: about the time until its queries and its first
// pages are there. A block whose piece crosses into a group gets that much less to do.
constexpr uint32_t kSwitchTiles = 8;

// Tiles [first, first + count) of a group.
struct Segment {
  int64_t group;
  int first;
  int count;
};

template <int Rows>
__device__ __forceinline__ uint32_t tiles_of(const int32_t* lengths, int64_t group) {
  int longest = lengths[group * Rows];
#pragma unroll
  for (int r = 1; r < Rows; ++r) longest = max(longest, lengths[group * Rows + r]);
  return static_cast<uint32_t>((longest + kTileKeys - 1) / kTileKeys);
}

// Work of a group: its tiles, and before them what it costs to start on it. A single group costs nobody.
__device__ __forceinline__ uint32_t work_of(uint32_t tiles, uint32_t groups) {
  return tiles == 0 || groups == 1 ? tiles : tiles + kSwitchTiles;
}

// A block's piece, walked group by group. Each role of the block has its own.
template <int Rows>
struct Schedule {
  const int32_t* lengths;
  uint32_t groups;
  uint32_t left;    // work
  int64_t group;    // of the next work
  uint32_t offset;  // of the next work in the group's
  int request;      // of that group

  __device__ bool next(Segment& segment) {
    while (left > 0) {
      const uint32_t tiles = tiles_of<Rows>(lengths, group);
      const uint32_t work = work_of(tiles, groups), start = work - tiles;
      const uint32_t stop = work - offset < left ? work : offset + left;
      const uint32_t first = offset > start ? offset : start;
      segment = {group, static_cast<int>(first - start), static_cast<int>(stop) - static_cast<int>(first)};
      left -= stop - offset;
      ++group;
      offset = 0;
      if (segment.count > 0) return true;
    }
    return false;
  }
};

// This block's share of all work; shares differ by one at most.
struct Piece {
  uint32_t start;
  uint32_t work;
};

__device__ __forceinline__ Piece piece_of_block(uint32_t total) {
  const uint32_t work = total / gridDim.x, more = total % gridDim.x;
  return {work * blockIdx.x + (blockIdx.x < more ? blockIdx.x : more), work + (blockIdx.x < more ? 1u : 0u)};
}

template <int Threads>
struct ScheduleShared {
  uint32_t warp_work[Threads / 32];
  int64_t group;
  uint32_t offset;
  int request;
};

// Every thread of the block calls it; all work is less than 2^32. `ragged`: some row is shorter than
// `max_length`.
template <int Rows, int Threads>
__device__ inline Schedule<Rows> schedule_of_block(const ScoreArguments& a, ScheduleShared<Threads>& shared, bool& ragged) {
  const auto groups = static_cast<uint32_t>(a.rows / Rows);
  const uint32_t share = (groups + Threads - 1) / Threads;
  const uint32_t from = threadIdx.x * share;
  const uint32_t to = from + share < groups ? from + share : groups;
  // Asked for before it is known to be needed: loads that wait for each other are what a short call costs.
  const int request = from < groups ? a.request_of_row[static_cast<int64_t>(from) * Rows] : 0;
  uint32_t own = 0;
  bool mine_ragged = false;
  for (uint32_t group = from; group < to; ++group) {
    own += work_of(tiles_of<Rows>(a.lengths, group), groups);
#pragma unroll
    for (int r = 0; r < Rows; ++r) mine_ragged = mine_ragged || a.lengths[static_cast<int64_t>(group) * Rows + r] < a.max_length;
  }
  const uint32_t inclusive = warp_inclusive_sum(own);
  if (threadIdx.x % 32 == 31) shared.warp_work[threadIdx.x / 32] = inclusive;
  ragged = __syncthreads_or(mine_ragged);
  uint32_t total = 0, before = inclusive - own;
#pragma unroll
  for (int warp = 0; warp < Threads / 32; ++warp) {
    if (warp < static_cast<int>(threadIdx.x / 32)) before += shared.warp_work[warp];
    total += shared.warp_work[warp];
  }
  const auto [start, mine] = piece_of_block(total);
  if (before <= start && start < before + own) {
    uint32_t group = from;
    for (uint32_t work = work_of(tiles_of<Rows>(a.lengths, group), groups); before + work <= start;) {
      before += work;
      work = work_of(tiles_of<Rows>(a.lengths, ++group), groups);
    }
    shared.group = group;
    shared.offset = start - before;
    shared.request = group == from ? request : a.request_of_row[static_cast<int64_t>(group) * Rows];
  }
  __syncthreads();
  return {a.lengths, groups, mine, shared.group, shared.offset, shared.request};
}

}  // namespace dsa::hopper

#endif
