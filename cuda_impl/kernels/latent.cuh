// The 512-element latent store: RMSNorm, RoPE on the last 64, no Hadamard. One block a token.
//
// fp8 record, 584 bytes: 448 e4m3fn and 64 bfloat16 rope elements, then (after all tokens of the
// page) 7 UE8M0 scales of 64 elements and a zero byte. A page is padded to a multiple of 576 bytes.
// bf16 record: 1024 bytes, no scale.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "encoders.cuh"
#include "norm.cuh"
#include "plan.cuh"
#include "rope.cuh"
#include "sizes.cuh"
#include "store.cuh"

namespace dsa {

// Writes one thread's 4 elements. `thread` 0-111 hold the elements without rope, 112-127 the rest.
struct LatentFp8 {
  static constexpr int64_t kValueBytes = 448 + 2 * kRopeDim;
  static constexpr int64_t kScaleBytes = 8;
  static constexpr int kGroupLanes = 16;
  ScaleRule rule;

  __host__ __device__ static constexpr int64_t page_bytes(int64_t page_size) {
    return ceil_divide(page_size * (kValueBytes + kScaleBytes), kValueBytes) * kValueBytes;
  }
  __device__ __forceinline__ void write(const float (&x)[kChunk], unsigned thread, unsigned char* page,
                                        int64_t page_size, int64_t token) const {
    // Values are rounded to bfloat16 before they are scaled, as the bf16 cache would hold them.
    float rounded[kChunk];
    for (int i = 0; i < kChunk; ++i) rounded[i] = round_bf16(x[i]);
    const uint32_t exponent = ceil_ue8m0(rule(amax_over_lanes(chunk_amax(rounded), kGroupLanes), kMaxE4m3));
    unsigned char* values = page + token * kValueBytes;
    unsigned char* scale = page + page_size * kValueBytes + token * kScaleBytes + thread / kGroupLanes;
    const bool is_rope = thread >= 448 / kChunk;
    if (is_rope) {
      reinterpret_cast<uint2*>(values + 448)[thread - 448 / kChunk] = pack_bf16(x);
    } else {
      reinterpret_cast<uint32_t*>(values)[thread] = pack_e4m3fn(rounded, reciprocal_power(exponent));
    }
    if (thread % kGroupLanes == 0) *scale = is_rope ? 0 : static_cast<unsigned char>(exponent);
  }
};

struct LatentBf16 {
  static constexpr int64_t kValueBytes = 2 * kLatentDim;

  __host__ __device__ static constexpr int64_t page_bytes(int64_t page_size) { return page_size * kValueBytes; }
  __device__ __forceinline__ void write(const float (&x)[kChunk], unsigned thread, unsigned char* page, int64_t,
                                        int64_t token) const {
    reinterpret_cast<uint2*>(page + token * kValueBytes)[thread] = pack_bf16(x);
  }
};

template <class Record, class Plan>
__global__ void __launch_bounds__(kBlockThreads) store_latent_kernel(StoreInputs in, Plan plan, Record record) {
  after_earlier_kernels();
  const unsigned thread = threadIdx.x;
  const int64_t row = blockIdx.x;
  const Placement place = plan(row);
  if (place.slot < 0) return;

  float x[kChunk];
  load_chunk(x, in.rows + row * kBlockThreads + thread);
  rms_norm_block(x, in.norm_eps, in.weight + thread);
  constexpr unsigned first = (kLatentDim - kRopeDim) / kChunk;
  if (thread >= first) rotate(x, angles_of(in.rope_table, place.position)[thread - first]);

  const Divided at = in.page_size.divide(place.slot);
  const int64_t page_size = in.page_size.value;
  record.write(x, thread, in.cache + at.quotient * Record::page_bytes(page_size), page_size, at.remainder);
}

}  // namespace dsa
