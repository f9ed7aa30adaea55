// Keys on their way from the cache into a warp's registers.
//
// A warp takes 32 keys at a time. Lane 4g + t reads the chunks 4c + t of keys 8i + g, so that four lanes read 64
// bytes in a row; and it owns one key, whose page it looks up, whose scale it reads and whose score it writes.
#pragma once

#include <cstdint>

#include "divisor.cuh"
#include "operands.cuh"
#include "score.cuh"

#if defined(__CUDACC__)

namespace dsa::mma {

constexpr int kWarpKeys = 32;

template <class Operand>
struct Keys {
  uint4 chunk[4][Operand::kChunks];
  uint32_t scale;  // of the own key
};

struct Place {
  int page;
  int token;
};

// The lane's own key, which is the one that the sum over heads leaves with it, and the owner of key 8i + g.
__device__ __forceinline__ uint32_t own_key(int lane) { return lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2; }
__device__ __forceinline__ int owner(int i, int g) { return 8 * i + g % 2 * 4 + g / 2; }

// Where a request's key lies; `table` is the request's line of the block table.
__device__ __forceinline__ Place place_of(const int32_t* table, const Divisor& page_size, uint32_t key) {
  const Divided at = page_size.divide(key);
  return {table[at.quotient], static_cast<int>(at.remainder)};
}

// Asks for the keys that lie at the lanes' places.
template <class Operand>
__device__ __forceinline__ void fetch(const ScoreArguments& a, Place own, Keys<Operand>& keys) {
  constexpr int kWords = Operand::kValueBytes / 4;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t page = __shfl_sync(full_warp, own.page, owner(i, g));
    const int64_t token = __shfl_sync(full_warp, own.token, owner(i, g));
    const uint32_t* words = a.cache + page * a.page_words + token * kWords;
    const auto* values = reinterpret_cast<const uint4*>(words);
#pragma unroll
    for (int c = 0; c < Operand::kChunks; ++c) keys.chunk[i][c] = __ldg(values + 4 * c + t);
  }
  if constexpr (Operand::kScaleBytes > 0) {
    keys.scale = a.cache[own.page * a.page_words + static_cast<int64_t>(a.page_size) * kWords + own.token];
  }
}

}  // namespace dsa::mma

#endif
