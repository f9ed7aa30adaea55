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

// What the first block selects from: key and position in the row.
struct Gathered {
  static constexpr bool kRuns = true;

  Mail mail;
  uint2 entries[kGathered];
  uint32_t count;

  template <class Visit>
  __device__ void visit(Visit&& f) const {
    for (uint32_t i = threadIdx.x; i < count; i += kScanThreads) f(entries[i].x, static_cast<int>(entries[i].y));
  }
};

// How many scores each block has to send.
struct Announced {
  Mail mail;
  uint2 of[kClusterMost];  // that number, and the block's highest key
  uint32_t warp_sums[kScanWarps];

  // Before the cluster's first barrier; of thread 0.
  __device__ void open(Gathered& gathered) {
    mail.open();
    mail.expect(cluster_blocks() * sizeof(uint2));
    gathered.mail.open();
  }
};

// Sends this block's scores that reach the bound to the first block, in order of the blocks, unless they are
// more than that takes: returns whether they were sent. `highest` is this block's highest key, and then the
// row's. Every thread of the cluster calls it.
__device__ inline bool gather(const Held& held, uint32_t bound, int first, uint32_t& highest, Announced& announced,
                              Gathered& gathered) {
  const uint32_t hits = held.reaching(bound);
  const auto own = static_cast<uint32_t>(__popc(hits));
  const uint32_t before = block_prefix_sum(own, announced.warp_sums);
  const uint32_t lane = threadIdx.x % 32, rank = cluster_rank();
  if (threadIdx.x / 32 == kScanWarps - 1) {
    const uint32_t all = __shfl_sync(full_warp, before + own, 31);
    if (lane < cluster_blocks()) send(&announced.of[rank], make_uint2(all, highest), announced.mail, lane);
  }
  announced.mail.wait(true);
  const uint2 of_block = lane < cluster_blocks() ? announced.of[lane] : make_uint2(0u, 0u);
  const uint32_t count = __reduce_add_sync(full_warp, of_block.x);
  highest = __reduce_max_sync(full_warp, of_block.y);
  uint32_t place = before + __reduce_add_sync(full_warp, lane < rank ? of_block.x : 0u);
  if (count > kGathered) return false;

  if (rank == 0 && threadIdx.x == 0) {
    gathered.count = count;
    gathered.mail.expect(count * sizeof(uint2));
  }
  const auto add = [&](int bit, float score) {
    if ((hits >> bit & 1u) == 0u) return;
    const int at = first + Held::start(bit / kVector) + bit % kVector;
    send(&gathered.entries[place++], make_uint2(order_key(score), static_cast<uint32_t>(at)), gathered.mail, 0u);
  };
#pragma unroll
  for (int i = 0; i < kHeldVectors; ++i) {
    if ((hits >> (i * kVector) & 15u) == 0u) continue;
    add(i * kVector, held.v[i].x);
    add(i * kVector + 1, held.v[i].y);
    add(i * kVector + 2, held.v[i].z);
    add(i * kVector + 3, held.v[i].w);
  }
  gathered.mail.wait(rank == 0);
  return true;
}

}  // namespace dsa
