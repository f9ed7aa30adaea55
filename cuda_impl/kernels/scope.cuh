// Who counts together: the threads of one block, or of all blocks of a cluster. Counting in bins
// (kth_largest.cuh) and numbering what is selected (selection.cuh) are written once for both.
//
//   clear()         zeroes the block's bins once, at first; a barrier of the block must follow
//   add(bin, n)     counts n keys of this block
//   collect(count)  meets, then gives thread t the scope's counts of kOwn neighbouring bins, t = 0 the best;
//                   bins are zero again after the block's next barrier
//   earlier(end)    what the blocks before this one counted; `end` is this thread's inclusive prefix sum
//
// clear, collect and earlier are called by every thread of the scope.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "cluster.cuh"
#include "device.cuh"

namespace dsa {

// Scores that are surely selected, and those that equal the last selected one. Of a block each fits 16 bits, so
// that one word holds both.
struct Counts {
  uint32_t above;
  uint32_t equal;
  __device__ static uint32_t packed(uint32_t above, uint32_t equal) { return above << 16 | equal; }
  __device__ static Counts of(uint32_t packed) { return {packed >> 16, packed & 0xFFFFu}; }
};

struct BlockScope {
  static constexpr int kBinBits = 11;
  static constexpr int kBins = 1 << kBinBits;
  static constexpr int kOwn = kBins / kScanThreads;
  static constexpr uint32_t kFew = 128;  // keys that are ranked by comparing each with each

  uint32_t* histogram;  // aligned to 16 bytes

  __device__ uint4& own() const {
    static_assert(kOwn == 4);
    return reinterpret_cast<uint4*>(histogram)[kScanThreads - 1 - threadIdx.x];
  }
  __device__ void clear() const { own() = make_uint4(0u, 0u, 0u, 0u); }
  __device__ void add(uint32_t bin, uint32_t n) const { atomicAdd(&histogram[bin], n); }
  __device__ void collect(uint32_t (&count)[kOwn]) const {
    __syncthreads();
    const uint4 four = own();
    clear();
    count[0] = four.w;
    count[1] = four.z;
    count[2] = four.y;
    count[3] = four.x;
  }
  __device__ Counts earlier(uint32_t) const { return {0u, 0u}; }
};

// Every block reads the bins of all others: few and half a word each, for what a block can read from its
// neighbours in a given time is what limits this.
struct ClusterShared {
  static constexpr int kBinBits = 8;
  uint32_t histogram[2][(1 << kBinBits) / 2];
  uint32_t totals[kClusterMost];
};

struct ClusterScope {
  static constexpr int kBinBits = ClusterShared::kBinBits;
  static constexpr int kBins = 1 << kBinBits;
  static constexpr int kOwn = 1;
  static constexpr uint32_t kFew = 0;

  ClusterShared& shared;
  int turn = 0;  // others may still read the bins of the turn before

  __device__ void clear() const {
    if (threadIdx.x < kBins) shared.histogram[threadIdx.x % 2][threadIdx.x / 2] = 0u;
  }
  __device__ void add(uint32_t bin, uint32_t n) const {
    atomicAdd(&shared.histogram[turn][bin / 2], n << 16 * (bin % 2));
  }
  __device__ void collect(uint32_t (&count)[kOwn]) {
    cluster_sync();
    count[0] = 0u;
    if (threadIdx.x < kBins / 2) shared.histogram[1 - turn][threadIdx.x] = 0u;  // everyone has read it
    if (threadIdx.x < kBins) {
      // Two threads add one word of every other block up, and each keeps one of its bins.
      const uint32_t* own = &shared.histogram[turn][kBins / 2 - 1 - threadIdx.x / 2];
      const uint32_t odd = threadIdx.x % 2;
      uint32_t upper = 0u, lower = 0u;
#pragma unroll
      for (uint32_t i = 0; i < kClusterMost / 2; ++i) {
        const uint32_t block = 2 * i + odd;
        const uint32_t two = block < cluster_blocks() ? *of_block(own, block) : 0u;
        upper += two >> 16;
        lower += two & 0xFFFFu;
      }
      count[0] = odd != 0u ? lower : upper;
      count[0] += __shfl_xor_sync(full_warp, odd != 0u ? upper : lower, 1);
    }
    turn ^= 1;
  }
  __device__ Counts earlier(uint32_t end) const {
    const uint32_t lane = threadIdx.x % 32, rank = cluster_rank();
    if (threadIdx.x / 32 == kScanWarps - 1) {
      const uint32_t total = __shfl_sync(full_warp, end, 31);
      if (lane < cluster_blocks()) *of_block(&shared.totals[rank], lane) = total;
    }
    cluster_sync();
    const Counts before = Counts::of(lane < rank ? shared.totals[lane] : 0u);
    return {__reduce_add_sync(full_warp, before.above), __reduce_add_sync(full_warp, before.equal)};
  }
};

}  // namespace dsa
