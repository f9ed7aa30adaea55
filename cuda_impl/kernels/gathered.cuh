// The scores of a row that reach a bound, sent by all blocks of a cluster to its first.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "cluster.cuh"
#include "device.cuh"
#include "held_share.cuh"
#include "mail.cuh"
#include "order_key.cuh"

namespace dsa {

constexpr int kGathered = 4096;  // scores that the first block takes
static_assert(kGathered < 1 << 16);

// What the first block selects from: key and position in the row, in order of position.
struct Gathered {
  Mail mail;
  uint2 entries[kGathered];
  uint32_t count;
};

// A thread's part of that list: neighbours, in registers. The threads' parts are in order.
struct Listed {
  static constexpr bool kRuns = true;
  static constexpr int kMost = kGathered / kScanThreads;

  uint2 entry[kMost];
  int count;

  __device__ explicit Listed(const Gathered& list) {
    const uint32_t each = ceil_divide<uint32_t>(list.count, kScanThreads), from = threadIdx.x * each;
    const uint32_t left = from < list.count ? list.count - from : 0u;
    count = static_cast<int>(left < each ? left : each);
#pragma unroll
    for (int i = 0; i < kMost; ++i) entry[i] = list.entries[i < count ? from + i : 0u];
  }

  template <class Visit>
  __device__ void visit(Visit&& f) const {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (i < count) f(entry[i].x, static_cast<int>(entry[i].y));
    }
  }
};

// How many scores each block has to send.
struct Announced {
  Mail mail;
  uint2 of[kClusterMost];  // that number, and the block's highest key
  uint32_t warps[kScanWarps];

  // Before the cluster's first barrier; of thread 0.
  __device__ void open(Gathered& gathered) {
    mail.open();
    mail.expect(cluster_blocks() * sizeof(uint2));
    gathered.mail.open();
  }
};

// How many bits are set of each four: of the even fours in one word, of the odd ones in another, a byte each.
struct Fours {
  uint32_t even;
  uint32_t odd;

  __device__ explicit Fours(uint32_t bits) {
    const uint32_t twos = bits - (bits >> 1 & 0x55555555u);
    const uint32_t fours = (twos & 0x33333333u) + (twos >> 2 & 0x33333333u);
    even = fours & 0x0F0F0F0Fu;
    odd = fours >> 4 & 0x0F0F0F0Fu;
  }
  __device__ Fours(uint32_t of_even, uint32_t of_odd) : even(of_even), odd(of_odd) {}

  __device__ uint32_t operator[](int i) const { return (i % 2 != 0 ? odd : even) >> i / 2 * 8 & 0xFFu; }
};

// Sends this block's scores that reach the bound to the first block, in order of the blocks, unless they are
// more than that takes: returns whether they were sent. `highest` is this block's highest key, and then the
// row's. Every thread of the cluster calls it.
__device__ inline bool gather(const Held& held, uint32_t bound, int first, uint32_t& highest, Announced& announced,
                              Gathered& gathered) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = cluster_rank();
  const uint32_t hits = held.reaching(bound);
  // Of each vector, over the lanes; a warp has 128 of a vector at most.
  const Fours own(hits), until(warp_inclusive_sum(own.even), warp_inclusive_sum(own.odd));
  const Fours of_warp(__shfl_sync(full_warp, until.even, 31), __shfl_sync(full_warp, until.odd, 31));
  uint32_t count = 0u;
#pragma unroll
  for (int i = 0; i < kHeldVectors; ++i) count += of_warp[i];
  if (lane == 0u) announced.warps[warp] = count;
  __syncthreads();
  const uint32_t of_lane = lane < kScanWarps ? announced.warps[lane] : 0u;
  if (warp == 0u) {
    const uint32_t all = __reduce_add_sync(full_warp, of_lane);
    if (lane < cluster_blocks()) Line(announced.of, announced.mail, lane).send(rank, make_uint2(all, highest));
  }
  uint32_t place = __reduce_add_sync(full_warp, lane < warp ? of_lane : 0u);
  announced.mail.wait(true);
  const uint2 theirs = lane < cluster_blocks() ? announced.of[lane] : make_uint2(0u, 0u);
  const uint32_t all = __reduce_add_sync(full_warp, theirs.x);
  highest = __reduce_max_sync(full_warp, theirs.y);
  place += __reduce_add_sync(full_warp, lane < rank ? theirs.x : 0u);
  if (all > kGathered) return false;

  if (rank == 0 && threadIdx.x == 0) {
    gathered.count = all;
    gathered.mail.expect(all * sizeof(uint2));
  }
  const Line line(gathered.entries, gathered.mail, 0u);
#pragma unroll
  for (int i = 0; i < kHeldVectors; ++i) {
    const uint32_t four = hits >> i * kVector & 15u;
    uint32_t at = place + until[i] - own[i];
    place += of_warp[i];
    if (four == 0u) continue;
    const auto add = [&](int j, float score) {
      if ((four >> j & 1u) == 0u) return;
      line.send(at++, make_uint2(order_key(score), static_cast<uint32_t>(first + Held::start(i) + j)));
    };
    add(0, held.v[i].x);
    add(1, held.v[i].y);
    add(2, held.v[i].z);
    add(3, held.v[i].w);
  }
  gathered.mail.wait(rank == 0);
  return true;
}

}  // namespace dsa
