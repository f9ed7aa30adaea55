// The query path: RoPE at the raw position, Hadamard, encode, and the head weight.
//
// Eight lanes a (row, head). A query record is its values, then its scales when they are not folded.
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

__device__ __forceinline__ void round_all(IndexVector& v) {
#pragma unroll
  for (int j = 0; j < kVectorChunks; ++j) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v.chunk[j][i] = round_bf16(v.chunk[j][i]);
  }
}

template <class Encoder>
__global__ void __launch_bounds__(kBlockThreads) query_kernel(QueryInputs in, Encoder encode) {
  after_earlier_kernels();
  const unsigned lane = vector_lane();
  const int64_t vector = vector_index();
  const bool live = vector < in.rows * in.heads;

  // Lanes past the last vector stay for the warp's exchanges, with zeros.
  IndexVector v = {};
  Angles angles = {};
  if (live) {
    load_vector(v, in.query + vector * (kIndexDim / kChunk), lane);
    angles.load(in.rope_table, in.positions[vector / in.heads], lane);
  }
  rope(v, angles);
  if (in.round_roped) round_all(v);
  hadamard(v, lane);
  if (in.round_rotated) round_all(v);

  constexpr int64_t record_bytes = Encoder::kValueBytes + (Encoder::kFoldsScale ? 0 : Encoder::kScaleBytes);
  unsigned char* record = in.codes + vector * record_bytes;
  const float scale = encode(v, lane, live, record, Encoder::kFoldsScale ? nullptr : record + Encoder::kValueBytes);
  if (live && lane == 0) {
    const float weight = in.gate[vector] * in.factor;
    in.weights[vector] = Encoder::kFoldsScale ? weight * scale : weight;
  }
}

}  // namespace dsa
