// Sizes that are fixed when the store and query kernels are compiled.
#pragma once

#include <cstdint>

namespace dsa {

constexpr int kIndexDim = 128;   // an index key or query: one warp, 4 consecutive elements a lane
constexpr int kLatentDim = 512;  // a latent row: one block of 4 warps, 4 consecutive elements a thread
constexpr int kRopeDim = 64;     // the last elements of either are rotated
constexpr int kPerLane = 4;
constexpr int kBlockThreads = 128;
constexpr int kWarpsPerBlock = kBlockThreads / 32;

}  // namespace dsa
