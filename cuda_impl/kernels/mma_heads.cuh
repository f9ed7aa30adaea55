// A warp's 32 keys against all heads of a row: products on the matrix unit, and their weighted sum.
#pragma once

#include <cmath>
#include <cstdint>

#include "mma_query.cuh"
#include "operands.cuh"

#if defined(__CUDACC__)

namespace dsa::mma {

// d += a * b for a tile of 16 heads and 8 keys over 16 elements. Lane 4g + t holds of a the pairs (g, 2t),
// (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), of b the pairs (2t, g), (2t + 8, g), and of d heads g and g + 8 at
// keys 2t and 2t + 1.
template <bool Bf16>
__device__ __forceinline__ void multiply(float (&d)[4], const uint4& a, const uint32_t (&b)[2]) {
  if constexpr (Bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b[0]), "r"(b[1]));
  }
}

// Sum over a row's heads of weight * relu(query . key) for the lane's own key. `key`: operands of keys 8i to
// 8i + 7, step by step; `operand` and `weights`: the row's, from the lane's own on.
template <class Operand>
__device__ __forceinline__ float sum_over_heads(const uint32_t (&key)[4][8][2], const uint4* operand,
                                                const float2* weights, int heads) {
  const int lane = threadIdx.x % 32;
  float sum[8] = {};  // of keys 8i + 2t and 8i + 2t + 1, over the heads that lane 4g + t has
#pragma unroll 1
  for (int first = 0; first < heads; first += kHeadStep, operand += kStepVectors, weights += kHeadStep / 2) {
    float d[4][4] = {};
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      const uint4 query = operand[s * 32];
#pragma unroll
      for (int i = 0; i < 4; ++i) multiply<Operand::kBf16>(d[i], query, key[i][s]);
    }
    const float2 two = *weights;
    const float weight[2] = {two.x, two.y};
    // A head that is not there would add NaN where zero meets an infinite key.
    const int present = heads - first;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (present >= kHeadStep || lane / 4 + 8 * h < present) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[i] = fmaf(weight[h], Operand::rectified(d[i / 2][2 * h + i % 2]), sum[i]);
      }
    }
  }
  // Lanes that have the same keys exchange halves of them, until each has one.
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & 4 * half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = __shfl_xor_sync(full_warp, upper ? sum[i] : sum[i + half], 4 * half);
      sum[i] = (upper ? sum[i + half] : sum[i]) + given;
    }
  }
  return sum[0];
}

}  // namespace dsa::mma

#endif
