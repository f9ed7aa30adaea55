// Queries in shared memory as the first operand of mma.sync, in the order in which its lanes take them.
#pragma once

#include <cstdint>

#include "operands.cuh"
#include "score.cuh"

#if defined(__CUDACC__)

namespace dsa::mma {

constexpr int kThreads = 128;
constexpr int kHeadStep = 16;  // heads that are multiplied together
constexpr int kStepVectors = 8 * 32;
// Heads of all rows of a group: with their weights they fit the 48 KB that every launch may use.
constexpr int kMostHeads = 160;

__host__ __device__ __forceinline__ int padded_heads(int heads) { return ceil_divide(heads, kHeadStep) * kHeadStep; }

// The rows of one group, row after row. Heads past a row's are zero, with weight zero.
struct Queries {
  uint4* operand;  // [rows][padded heads / 16][8 steps][32 lanes]: heads g and g + 8 of sixteen for lane 4g + t
  float* weights;  // [rows][padded heads]: of heads g and g + 8 of sixteen, one after the other

  __device__ __forceinline__ Queries(int rows, int heads)
      : operand(dynamic_shared<uint4>()),
        weights(reinterpret_cast<float*>(operand + rows * padded_heads(heads) / kHeadStep * kStepVectors)) {}
};

inline int query_bytes(int rows, int heads) {
  return rows * padded_heads(heads) * (kHeadDim * 2 + static_cast<int>(sizeof(float)));
}

// Converts the queries of a group. Every thread of the block calls it, after the last use of those before;
// true where 16-bit operands cannot hold the scales of some head.
template <class Operand, int Rows>
__device__ inline bool stage_queries(const ScoreArguments& a, int64_t group, const Queries& staged) {
  constexpr int kWords = Operand::kQueryBytes / 4, kScales = Operand::kValueBytes / 4;
  const int padded = padded_heads(a.heads);
  bool wide = false;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const int64_t first = (group * Rows + r) * a.heads;
    const uint32_t* records = a.codes + first * kWords;
    uint4* operand = staged.operand + r * padded / kHeadStep * kStepVectors;
    for (int flat = threadIdx.x; flat < padded / kHeadStep * Operand::kChunks * 32; flat += kThreads) {
      const int lane = flat % 32;
      const int c = flat / 32 % Operand::kChunks;
      const int sixteen = flat / 32 / Operand::kChunks;
      uint4 chunk[2];
      uint32_t shift[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int head = sixteen * kHeadStep + 8 * h + lane / 4;
        chunk[h] = make_uint4(0u, 0u, 0u, 0u);
        shift[h] = 0u;
        if (head < a.heads) {
          const uint32_t* record = records + head * kWords;
          const uint32_t* words = record + 4 * (4 * c + lane % 4);
          chunk[h] = make_uint4(words[0], words[1], words[2], words[3]);
          if constexpr (Operand::kGrouped) shift[h] = group_shift(record[kScales], lane % 4);
        }
      }
#pragma unroll
      for (int s = 0; s < Operand::kSteps; ++s) {
        uint4 vector;
        Operand::pairs(chunk[0], shift[0], s, vector.x, vector.z);
        Operand::pairs(chunk[1], shift[1], s, vector.y, vector.w);
        operand[(8 * sixteen + c * Operand::kSteps + s) * 32 + lane] = vector;
      }
    }
    for (int head = threadIdx.x; head < padded; head += kThreads) {
      float weight = 0.0f;
      if (head < a.heads) {
        weight = a.weights[first + head] * (1.0f / Operand::kRectified);
        if constexpr (Operand::kGrouped) {
          const uint32_t scales = records[head * kWords + kScales];
          weight = reference_scale(weight, scales);
          wide = wide || !scales_fit(scales);
        }
      }
      staged.weights[r * padded + head / kHeadStep * kHeadStep + head % 8 * 2 + head % kHeadStep / 8] = weight;
    }
  }
  return __syncthreads_or(wide);
}

}  // namespace dsa::mma

#endif
