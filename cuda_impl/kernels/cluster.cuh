// Blocks that run at the same time, meet at barriers and reach each other's dynamic shared memory.
//
// Clusters take compute capability 9.0. Kernels that use them are compiled for older GPUs too, so that one
// source serves all, and never launched there.
//
// A block's shared memory may be reached from when all blocks have begun, which needs a barrier, until it ends:
// that takes another one, or mail that it has waited for (mail.cuh).
#pragma once

#include <cstdint>

#include "device.cuh"

namespace dsa {

constexpr int kClusterMost = 16;  // blocks

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// This block's place among the blocks of its cluster, and how many they are.
__device__ __forceinline__ uint32_t cluster_rank() { return __clusterRelativeBlockRank(); }
__device__ __forceinline__ uint32_t cluster_blocks() { return __clusterSizeInBlocks(); }

// The two halves of a barrier of all threads of the cluster. What a thread wrote before it arrived is seen
// by every thread that has waited.
__device__ __forceinline__ void cluster_arrive() { __cluster_barrier_arrive(); }
__device__ __forceinline__ void cluster_wait() { __cluster_barrier_wait(); }

// Arrives without publishing what this thread wrote, which saves waiting for it.
__device__ __forceinline__ void cluster_arrive_empty() { __cluster_barrier_arrive_relaxed(); }

// The same place in the dynamic shared memory of the block of that rank.
template <class T>
__device__ __forceinline__ T* of_block(T* place, uint32_t rank) {
  return static_cast<T*>(__cluster_map_shared_rank(place, rank));
}

#else

__device__ __forceinline__ uint32_t cluster_rank() { return 0u; }
__device__ __forceinline__ uint32_t cluster_blocks() { return 1u; }
__device__ __forceinline__ void cluster_arrive() { __trap(); }
__device__ __forceinline__ void cluster_wait() { __trap(); }
__device__ __forceinline__ void cluster_arrive_empty() { __trap(); }
template <class T>
__device__ __forceinline__ T* of_block(T* place, uint32_t) {
  return place;
}

#endif

__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// Blocks that a cluster of this kernel can have on the current device: a power of two; 1 without clusters, or where
// a block has less shared memory than the kernel takes (some GPUs that have clusters hold 99 KB, others 227).
#if defined(__CUDACC__)
inline int most_cluster_blocks(const char* name, const void* kernel, dim3 block, std::size_t shared_bytes) {
  int device = 0, major = 0, shared_most = 0, most = 0;
  check_cuda(name, cudaGetDevice(&device));
  check_cuda(name, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check_cuda(name, cudaDeviceGetAttribute(&shared_most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (major < 9 || shared_bytes > static_cast<std::size_t>(shared_most)) return 1;
  opt_in(name, kernel, shared_bytes, kClusterMost);
  cudaLaunchConfig_t how{};
  how.gridDim = dim3(kClusterMost);
  how.blockDim = block;
  how.dynamicSmemBytes = shared_bytes;
  check_cuda(name, cudaOccupancyMaxPotentialClusterSize(&most, kernel, &how));
  int blocks = 1;
  while (2 * blocks <= most && 2 * blocks <= kClusterMost) blocks *= 2;
  return blocks;
}
#else
// More fibers than these take many mappings of memory.
inline int most_cluster_blocks(const char*, const void*, dim3, std::size_t) { return 8; }
#endif

}  // namespace dsa
