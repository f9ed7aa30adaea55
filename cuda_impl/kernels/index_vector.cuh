// A 128-element index vector in the registers of 8 neighbouring lanes.
//
// Lane l of them holds the chunks of 4 elements l, l + 8, l + 16 and l + 24: a warp's load reads 128
// consecutive bytes of each of four vectors, and sums over a vector need three exchanges.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "sizes.cuh"

namespace dsa {

struct IndexVector {
  float chunk[kVectorChunks][kChunk];
};

__device__ __forceinline__ unsigned vector_lane() { return threadIdx.x % kVectorLanes; }

// Which vector of the grid this thread works on.
__device__ __forceinline__ int64_t vector_index() {
  return static_cast<int64_t>(blockIdx.x) * kVectorsPerBlock + threadIdx.x / kVectorLanes;
}

__device__ __forceinline__ void load_chunk(float (&x)[kChunk], const float4* from) {
  const float4 loaded = *from;
  x[0] = loaded.x;
  x[1] = loaded.y;
  x[2] = loaded.z;
  x[3] = loaded.w;
}

__device__ __forceinline__ void load_vector(IndexVector& v, const float4* from, unsigned lane) {
#pragma unroll
  for (int j = 0; j < kVectorChunks; ++j) load_chunk(v.chunk[j], from + j * kVectorLanes + lane);
}

}  // namespace dsa
