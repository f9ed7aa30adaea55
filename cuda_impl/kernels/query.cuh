// The query path: RoPE at the raw position, Hadamard, encode, and the head weight.
//
// One warp a (row, head). A query record is its values, then its scales when they are not folded.
// weight = gate * factor, times the query's scale when it is folded: two float32 roundings in that
// order, with factor = fl32(128^-1/2 * heads^-1/2).
#pragma once

#include <cstdint>

#include "device.cuh"
#include "encoders.cuh"
#include "hadamard.cuh"
#include "rope.cuh"
#include "sizes.cuh"

namespace dsa {

struct QueryInputs {
  const float4* query;  // [rows, heads, 128]
  const float* gate;    // [rows, heads]
  const float* rope_table;
  const int64_t* positions;  // [rows]
  unsigned char* codes;      // [rows, heads, record]
  float* weights;            // [rows, heads]
  int64_t rows;
  int64_t heads;
  float factor;
  bool round_roped;  // to bfloat16 after RoPE
  bool round_rotated;  // to bfloat16 after Hadamard
};

__device__ __forceinline__ void round_all(float (&x)[kPerLane]) {
  for (int i = 0; i < kPerLane; ++i) x[i] = round_bf16(x[i]);
}

template <class Encoder>
__global__ void __launch_bounds__(kBlockThreads) query_kernel(QueryInputs in, Encoder encode) {
  const unsigned lane = threadIdx.x % 32;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / 32;
  if (vector >= in.rows * in.heads) return;

  const float4 loaded = in.query[vector * 32 + lane];
  float x[kPerLane] = {loaded.x, loaded.y, loaded.z, loaded.w};
  rope(x, static_cast<int>(lane) * kPerLane, kIndexDim, in.rope_table, in.positions[vector / in.heads]);
  if (in.round_roped) round_all(x);
  hadamard(x, lane);
  if (in.round_rotated) round_all(x);
  const auto encoded = encode(x);

  using Packed = typename Encoder::Packed;
  constexpr int64_t value_bytes = 32 * sizeof(Packed);
  constexpr int64_t record_bytes = value_bytes + (Encoder::kFoldsScale ? 0 : Encoder::kScaleBytes);
  unsigned char* record = in.codes + vector * record_bytes;
  reinterpret_cast<Packed*>(record)[lane] = encoded.packed;
  if constexpr (!Encoder::kFoldsScale) Encoder::put_scale(record + value_bytes, lane, encoded.scale);
  if (lane == 0) {
    const float weight = in.gate[vector] * in.factor;
    in.weights[vector] = Encoder::kFoldsScale ? weight * encoded.scale : weight;
  }
}

}  // namespace dsa
