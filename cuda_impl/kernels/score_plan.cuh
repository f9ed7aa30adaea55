// Who scores what: all tiles of all rows in one line, cut into equal pieces, one for each block of a call.
//
// A tile is 64 keys of a row, or of the two rows of one request ("group"). Only tiles below a row's length
// count, so a long row among short ones is spread over as many blocks as its share of the work.
//
// A plan depends on lengths and pages alone: one is made for all layers of a decode step. It holds what a block
// would wait for before it could ask for its first key.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "device.cuh"

namespace dsa {

constexpr int kTileKeys = 64;
constexpr int kPlannedPages = 32;  // one a lane

// A block's piece.
struct alignas(16) Share {
  int32_t group;       // of the first tile
  int32_t first;       // that tile's number in the group
  int32_t count;       // the block's tiles of that group
  int32_t request;     // of the group
  int32_t lengths[2];  // of its rows; of one row the second is 0
  uint32_t tiles;      // the block's, of all groups; without any, nothing else counts but `ragged`
  int32_t ragged;      // whether some row is shorter than the scores are wide, which a block may have to fill
};

struct alignas(16) PlannedShare {
  Share share;
  int32_t pages[kPlannedPages];  // physical, of the first group from its first tile on; 0 past the last
};
constexpr int kShareWords = sizeof(PlannedShare) / sizeof(int32_t);

struct PlanArguments {
  const int32_t* block_table;     // [requests, max_pages]
  const int32_t* request_of_row;  // [rows]
  const int32_t* lengths;         // [rows]
  PlannedShare* shares;           // one a block
  int64_t groups;
  int64_t max_length;
  int max_pages;
  int page_size;
};

// What decides how a call is cut.
struct ScoreSizes {
  int64_t rows;
  int64_t heads;
  int64_t page_size;
  int64_t page_bytes;
  int64_t max_length;
  int64_t codes_at;  // addresses, or what they leave over 16
  int64_t cache_at;
};

// How a matrix unit's kernel would do a call: in so many blocks, of groups of so many rows. No blocks: not at all.
struct ScoreLayout {
  int64_t blocks;
  int rows;
};

// A layout of at most `most` blocks; of none where there are too many tiles to be counted.
inline ScoreLayout layout_of(const ScoreSizes& s, int rows, int64_t most) {
  const int64_t tiles = s.rows / rows * ceil_divide(s.max_length, int64_t{kTileKeys});
  if (tiles > 0x7FFFFFFF) return {};
  return {tiles < most ? tiles : most, rows};
}

// Tiles of so many keys; unsigned, since rounding the longest row up leaves an int's range.
__device__ constexpr int tiles_over(int keys) {
  return static_cast<int>(ceil_divide<uint32_t>(static_cast<uint32_t>(keys), kTileKeys));
}
static_assert(tiles_over(0) == 0 && tiles_over(65) == 2 && tiles_over(0x7FFFFFFF) == 1 << 25);

template <int Rows>
__device__ __forceinline__ int tiles_of(const int32_t* lengths, int64_t group) {
  int longest = lengths[group * Rows];
#pragma unroll
  for (int r = 1; r < Rows; ++r) {
    const int other = lengths[group * Rows + r];
    longest = other > longest ? other : longest;
  }
  return tiles_over(longest);
}

namespace {

// One block a share; there are less than 2^31 tiles.
template <int Rows>
__global__ void __launch_bounds__(kScanThreads) score_plan_kernel(PlanArguments a) {
  __shared__ uint32_t warp_sums[kScanWarps];
  __shared__ uint32_t total;
  __shared__ int ragged;
  __shared__ Share share;
  after_earlier_kernels();
  if (threadIdx.x == 0) {
    ragged = 0;
    share = {};
  }
  const int64_t each = ceil_divide<int64_t>(a.groups, kScanThreads);
  const int64_t from = threadIdx.x * each, to = from + each < a.groups ? from + each : a.groups;
  uint32_t own = 0;
  bool mine_ragged = false;
  for (int64_t group = from; group < to; ++group) {
    own += static_cast<uint32_t>(tiles_of<Rows>(a.lengths, group));
#pragma unroll
    for (int r = 0; r < Rows; ++r) mine_ragged = mine_ragged || a.lengths[group * Rows + r] < a.max_length;
  }
  uint32_t before = block_prefix_sum(own, warp_sums);
  if (threadIdx.x == kScanThreads - 1) total = before + own;
  if (mine_ragged) ragged = 1;
  __syncthreads();

  const uint32_t least = total / gridDim.x, more = total % gridDim.x;  // `more` blocks have one tile more
  const uint32_t start = least * blockIdx.x + (blockIdx.x < more ? blockIdx.x : more);
  const uint32_t tiles = least + (blockIdx.x < more ? 1u : 0u);
  if (before <= start && start < before + own) {
    int64_t group = from;
    uint32_t of_group = static_cast<uint32_t>(tiles_of<Rows>(a.lengths, group));
    for (; before + of_group <= start; of_group = static_cast<uint32_t>(tiles_of<Rows>(a.lengths, ++group))) {
      before += of_group;
    }
    const uint32_t rest = before + of_group - start;
    share.group = static_cast<int32_t>(group);
    share.first = static_cast<int32_t>(start - before);
    share.count = static_cast<int32_t>(rest < tiles ? rest : tiles);
    share.request = a.request_of_row[group * Rows];
    for (int r = 0; r < Rows; ++r) share.lengths[r] = a.lengths[group * Rows + r];
    share.tiles = tiles;
  }
  __syncthreads();
  PlannedShare& out = a.shares[blockIdx.x];
  if (threadIdx.x == 0) {
    share.ragged = ragged;
    out.share = share;
  }
  if (threadIdx.x < kPlannedPages) {
    const int64_t longest = share.lengths[0] > share.lengths[1] ? share.lengths[0] : share.lengths[1];
    const int64_t reached = int64_t{share.first + share.count} * kTileKeys;
    const int64_t stop = reached < longest ? reached : longest;
    const int64_t page = int64_t{share.first} * kTileKeys / a.page_size + threadIdx.x;
    const int64_t line = int64_t{share.request} * a.max_pages;
    out.pages[threadIdx.x] = page * a.page_size < stop ? a.block_table[line + page] : 0;
  }
}

}  // namespace

}  // namespace dsa
