// The fused index-key store: RMSNorm, RoPE, Hadamard, encode, write into a paged cache.
//
// One warp a key. A page holds the values of its tokens, then the scales of its tokens.
// All byte addresses are 64-bit: a cache of 132-byte records passes 2^31 bytes at 16 million slots.
#pragma once

#include <cstdint>

#include "device.cuh"
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
  int64_t page_size;
  float norm_eps;
};

template <class Encoder, class Plan>
__global__ void __launch_bounds__(kBlockThreads) store_kernel(StoreInputs in, Plan plan, Encoder encode) {
  const unsigned lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / 32;
  if (row >= in.count) return;
  const Placement place = plan(row);
  if (place.slot < 0) return;

  const float4 loaded = in.rows[row * 32 + lane];
  float x[kPerLane] = {loaded.x, loaded.y, loaded.z, loaded.w};
  rms_norm_warp(x, in.norm_eps, in.weight[lane]);
  rope(x, static_cast<int>(lane) * kPerLane, kIndexDim, in.rope_table, place.position);
  hadamard(x, lane);
  const auto encoded = encode(x);

  using Packed = typename Encoder::Packed;
  constexpr int64_t value_bytes = 32 * sizeof(Packed);
  const int64_t page = place.slot / in.page_size, token = place.slot % in.page_size;
  unsigned char* start = in.cache + page * in.page_size * (value_bytes + Encoder::kScaleBytes);
  reinterpret_cast<Packed*>(start + token * value_bytes)[lane] = encoded.packed;
  Encoder::put_scale(start + in.page_size * value_bytes + token * Encoder::kScaleBytes, lane, encoded.scale);
}

}  // namespace dsa
