// Tiles of keys on their way through shared memory: two warps copy them in, warpgroups read them.
#pragma once

#include <cstdint>

#include "hopper.cuh"
#include "score_schedule.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

constexpr int kFeeders = 2;

// A tile as a page of 64 tokens holds it: all values, then all scales.
template <class Operand>
struct Tile {
  uint4 values[kTileKeys * Operand::kValueBytes / 16];
  uint32_t scales[Operand::kScaleBytes > 0 ? kTileKeys : 0];
};

template <class Operand, int Stages>
struct Ring {
  Tile<Operand> tile[Stages];  // values at the start of each, scales after them: no padding
  uint64_t full[Stages];
  uint64_t empty[Stages];
  static constexpr uint32_t kFullToEmpty = sizeof(uint64_t) * Stages;  // from a stage's one barrier to its other

  __device__ void init() {
    for (int stage = 0; stage < Stages; ++stage) {
      barrier_init(shared_address(&full[stage]), 1);
      barrier_init(shared_address(&empty[stage]), kWarpgroup);  // each thread of the one that reads it
    }
  }
};

// Place in a ring and parity of its present use.
template <int Stages>
struct Cursor {
  int stage;
  uint32_t parity;

  __device__ __forceinline__ void advance(int by) {
    stage += by;
    if (stage >= Stages) {
      stage -= Stages;
      parity ^= 1u;
    }
  }
};

// A lane's entry of the block table, read before the schedule is known.
struct EarlyEntry {
  uint32_t page;  // where in the table, for lane 0
  int entry;
};

// One request has one line in the table, and its length is the width of the scores unless the caller has
// made them wider: the block's first page is known at once, which saves a short call one wait for memory.
template <int Rows>
__device__ __forceinline__ EarlyEntry early_entry(const ScoreArguments& a) {
  if (a.requests != 1 || a.rows != Rows) return {~0u, 0};
  const uint32_t tile = piece_of_block(static_cast<uint32_t>(ceil_divide<int64_t>(a.max_length, kTileKeys))).start;
  const uint32_t page = tile / static_cast<uint32_t>(a.page_size / kTileKeys);
  const uint32_t mine = page + threadIdx.x % 32;
  return {page, mine < a.max_pages ? a.block_table[mine] : 0};
}

// One of kFeeders warps that copy the tiles of a block's piece into the ring, taking turns; a whole warp
// calls it. Pages are whole tiles. Each lane knows one of 32 pages and copies that page's tiles itself: the
// length of this loop is what limits how fast tiles can come.
template <class Operand, int Rows, int Stages>
__device__ inline void feed(const ScoreArguments& a, Schedule<Rows> schedule, Ring<Operand, Stages>& ring, int feeder,
                            EarlyEntry early) {
  static_assert(Stages % kFeeders == 0, "a stage is always filled by the same warp, which so sees every phase");
  constexpr int kValues = kTileKeys * Operand::kValueBytes, kScales = kTileKeys * Operand::kScaleBytes;
  const int lane = threadIdx.x % 32;
  const int page_size = static_cast<int>(a.page_size);
  const auto page_tiles = static_cast<uint32_t>(page_size / kTileKeys);
  const int64_t page_bytes = a.page_words * 4;
  const auto* cache = reinterpret_cast<const uint8_t*>(a.cache);
  const uint32_t tiles = held(shared_address(ring.tile));
  const uint32_t full = held(shared_address(ring.full)), empty = held(shared_address(ring.empty));
  Cursor<Stages> at{feeder, 0};
  int skip = feeder;  // tiles until this warp's next
  int request = schedule.request;
  Segment segment;
  for (bool later = false; schedule.next(segment); later = true) {
    if (later) request = a.request_of_row[segment.group * Rows];
    const int32_t* table = a.block_table + static_cast<int64_t>(request) * a.max_pages;
    const auto last = static_cast<uint32_t>(segment.first + segment.count - 1) / page_tiles;
    uint32_t base = static_cast<uint32_t>(segment.first) / page_tiles;  // lane 0's page
    int entry = early.entry;
    if (later || base != early.page) entry = base + lane <= last ? table[base + lane] : 0;
    const uint8_t* page = cache + entry * page_bytes;
    int upcoming = base + 32 + lane <= last ? table[base + 32 + lane] : 0;
    int i = skip;
    for (; i < segment.count; i += kFeeders) {
      const auto tile = static_cast<uint32_t>(segment.first + i);
      const uint32_t index = page_tiles == 1 ? tile : tile / page_tiles;
      if (index - base >= 32) {
        base += 32;
        page = cache + upcoming * page_bytes;
        upcoming = base + 32 + lane <= last ? table[base + 32 + lane] : 0;
      }
      if (static_cast<uint32_t>(lane) == index - base) {
        const uint32_t to = tiles + at.stage * static_cast<uint32_t>(sizeof(Tile<Operand>));
        const uint32_t arrival = full + 8 * at.stage;
        barrier_wait(empty + 8 * at.stage, at.parity ^ 1u);
        barrier_expect(arrival, kValues + kScales);
        if (page_tiles == 1) {
          copy_bulk(to, page, kValues + kScales, arrival);
        } else {
          const uint32_t token = (tile - index * page_tiles) * kTileKeys;
          copy_bulk(to, page + token * Operand::kValueBytes, kValues, arrival);
          if constexpr (kScales > 0) {
            const uint8_t* scales = page + static_cast<int64_t>(page_size) * Operand::kValueBytes;
            copy_bulk(to + kValues, scales + token * Operand::kScaleBytes, kScales, arrival);
          }
        }
      }
      __syncwarp();  // in order: a lane ahead of the others would take an earlier phase for its own
      at.advance(kFeeders);
    }
    skip = i - segment.count;
  }
}

}  // namespace dsa::hopper

#endif
