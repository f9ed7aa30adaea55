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

  // Of one thread.
  __device__ void init() {
    for (int stage = 0; stage < Stages; ++stage) {
      barrier_init(shared_address(&full[stage]), 1);
      barrier_init(shared_address(&empty[stage]), kWarpgroup);  // each thread of the one that reads it
    }
    barrier_publish();
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

// A lane's entry of the block table: of the lane-th page from `page` on, 0 past the segment's last.
__device__ __forceinline__ int pages_from(uint32_t page, const ScoreArguments& a, const Segment& segment, int request,
                                          uint32_t page_tiles) {
  const uint32_t mine = page + threadIdx.x % 32;
  const uint32_t last = static_cast<uint32_t>(segment.first + segment.count - 1) / page_tiles;
  return mine <= last ? a.block_table[static_cast<int64_t>(request) * a.max_pages + mine] : 0;
}

// What a feeding warp knows of a group of the block before it comes to it: its length, its request and its pages
// lie in memory, and to wait for them would leave a gap in the stream of tiles.
template <int Rows>
struct Upcoming {
  bool any;
  Segment segment;
  int request;
  int entry;  // of the block table, one a lane, from the segment's first page on

  // Asks for what is known of the schedule's next group without its length; nothing waits for the answers yet.
  __device__ __forceinline__ void ask(const ScoreArguments& a, const Schedule<Rows>& schedule) {
    any = schedule.left > 0;
    if (!any) return;
    const int64_t row = int64_t{schedule.group} * Rows;
    request = a.request_of_row[row];
#pragma unroll
    for (int r = 0; r < Rows; ++r) length[r] = a.lengths[row + r];
  }
  __device__ __forceinline__ void ask_pages(const ScoreArguments& a, Schedule<Rows>& schedule, uint32_t page_tiles) {
    if (!any) return;
    const int asked = schedule.group;
    int longest = length[0];
#pragma unroll
    for (int r = 1; r < Rows; ++r) longest = max(longest, length[r]);
    schedule.next(segment, tiles_over(longest));
    if (segment.group != asked) request = a.request_of_row[int64_t{segment.group} * Rows];  // some are empty
    entry = pages_from(static_cast<uint32_t>(segment.first) / page_tiles, a, segment, request, page_tiles);
  }

 private:
  int length[Rows];
};

// One of kFeeders warps that copy the tiles of a block's piece into the ring, taking turns; a whole warp
// calls it. Pages are whole tiles. Each lane knows one of 32 pages and copies that page's tiles itself: the
// length of this loop is what limits how fast tiles can come.
template <class Operand, int Rows, int Stages>
__device__ inline void feed(const ScoreArguments& a, const PlannedShare& planned, Ring<Operand, Stages>& ring,
                            int feeder) {
  static_assert(Stages % kFeeders == 0, "a stage is always filled by the same warp, which so sees every phase");
  constexpr int kValues = kTileKeys * Operand::kValueBytes, kScales = kTileKeys * Operand::kScaleBytes;
  constexpr int kAskAfter = 1, kPagesAfter = 4;  // tiles of this warp: the answers take less time than those
  const int lane = threadIdx.x % 32;
  const Share share = planned.share;
  const int entry = planned.pages[lane];
  const int page_size = static_cast<int>(a.page_size);
  const auto page_tiles = static_cast<uint32_t>(page_size / kTileKeys);
  const int64_t page_bytes = a.page_words * 4;
  const auto* cache = reinterpret_cast<const uint8_t*>(a.cache);
  const uint32_t tiles = held(shared_address(ring.tile));
  const uint32_t full = held(shared_address(ring.full)), empty = held(shared_address(ring.empty));
  Cursor<Stages> at{feeder, 0};
  int skip = feeder;  // tiles until this warp's next
  Schedule<Rows> schedule(a, share);
  Upcoming<Rows> upcoming;
  upcoming.request = share.request;
  upcoming.entry = entry;
  upcoming.any = schedule.next(upcoming.segment, share.count);
  while (upcoming.any) {
    const Segment segment = upcoming.segment;
    const int request = upcoming.request;
    uint32_t base = static_cast<uint32_t>(segment.first) / page_tiles;  // lane 0's page
    const uint8_t* page = cache + upcoming.entry * page_bytes;
    int later = pages_from(base + 32, a, segment, request, page_tiles);
    int i = skip, copied = 0;
    for (; i < segment.count; i += kFeeders) {
      const auto tile = static_cast<uint32_t>(segment.first + i);
      const uint32_t index = page_tiles == 1 ? tile : tile / page_tiles;
      if (index - base >= 32) {
        base += 32;
        page = cache + later * page_bytes;
        later = pages_from(base + 32, a, segment, request, page_tiles);
      }
      if (static_cast<uint32_t>(lane) == index - base) {
        const uint32_t to = tiles + at.stage * static_cast<uint32_t>(sizeof(Tile<Operand>));
        const uint32_t arrival = full + 8 * at.stage;
        barrier_wait(empty + 8 * at.stage, at.parity ^ 1u);
        barrier_expect(arrival, kValues + kScales);
        if (page_tiles == 1) {
          copy_bulk(to, page, kValues + kScales, arrival);
        } else {
          const int64_t token = static_cast<int64_t>(tile - index * page_tiles) * kTileKeys;
          copy_bulk(to, page + token * Operand::kValueBytes, kValues, arrival);
          if constexpr (kScales > 0) {
            const uint8_t* scales = page + static_cast<int64_t>(page_size) * Operand::kValueBytes;
            copy_bulk(to + kValues, scales + token * Operand::kScaleBytes, kScales, arrival);
          }
        }
      }
      __syncwarp();  // in order: a lane ahead of the others would take an earlier phase for its own
      at.advance(kFeeders);
      ++copied;
      if (copied == kAskAfter) upcoming.ask(a, schedule);
      if (copied == kPagesAfter) upcoming.ask_pages(a, schedule, page_tiles);
    }
    if (copied < kAskAfter) upcoming.ask(a, schedule);
    if (copied < kPagesAfter) upcoming.ask_pages(a, schedule, page_tiles);
    skip = i - segment.count;
  }
}

}  // namespace dsa::hopper

#endif
