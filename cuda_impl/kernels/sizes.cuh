// Sizes that are fixed when the store and query kernels are compiled.
#pragma once

#include <cstdint>

namespace dsa {

constexpr int kIndexDim = 128;   // an index key or query
constexpr int kLatentDim = 512;  // a latent row: one block of 4 warps, a chunk a thread
constexpr int kRopeDim = 64;     // the last elements of either are rotated
constexpr int kChunk = 4;        // consecutive elements that a thread loads at once
constexpr int kBlockThreads = 128;
constexpr int kWarpsPerBlock = kBlockThreads / 32;

constexpr int kVectorLanes = 8;  // neighbouring lanes that share an index vector
constexpr int kVectorChunks = kIndexDim / (kChunk * kVectorLanes);
constexpr int kVectorsPerBlock = kBlockThreads / kVectorLanes;

}  // namespace dsa
