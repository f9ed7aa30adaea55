// The fused index-key store: RMSNorm, RoPE, Hadamard, encode, write into a paged cache.
//
// Eight lanes a key. A page holds the values of its tokens, then the scales of its tokens.
// All byte addresses are 64-bit: a cache of 132-byte records passes 2^31 bytes at 16 million slots.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "divisor.cuh"
#include "encoders.cuh"
#include "hadamard.cuh"
#include "norm.cuh"
#include "plan.cuh"
#include "rope.cuh"
#include "sizes.cuh"

namespace dsa {

struct StoreInputs {
  const float4* rows;    // [count, 128]
  const float4* weight;  // [128]
  const float* rope_table;
  unsigned char* cache;
  int64_t count;
  Divisor page_size;
  float norm_eps;
};

template <class Encoder, class Plan>
__global__ void __launch_bounds__(kBlockThreads) store_kernel(StoreInputs in, Plan plan, Encoder encode) {
  after_earlier_kernels();
  const unsigned lane = vector_lane();
  const int64_t row = vector_index();
  const Placement place = row < in.count ? plan(row) : Placement{-1, 0};
  const bool live = place.slot >= 0;

  // Lanes of a row that is not stored stay for the warp's exchanges, with zeros.
  IndexVector v = {};
  Angles angles = {};
  if (live) {
    load_vector(v, in.rows + row * (kIndexDim / kChunk), lane);
    angles.load(in.rope_table, place.position, lane);
  }
  rms_norm(v, in.norm_eps, in.weight, lane);
  rope(v, angles);
  hadamard(v, lane);

  const Divided at = in.page_size.divide(live ? place.slot : 0);
  unsigned char* page = in.cache + at.quotient * in.page_size.value * (Encoder::kValueBytes + Encoder::kScaleBytes);
  unsigned char* scales = page + in.page_size.value * Encoder::kValueBytes;
  encode(v, lane, live, page + at.remainder * Encoder::kValueBytes, scales + at.remainder * Encoder::kScaleBytes);
}

}  // namespace dsa
