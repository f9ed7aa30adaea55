// Overlapping softmax pooling of raw tokens into index keys (C4: ratio 4, window 8).
#pragma once

#include <cstdint>

#include "device.cuh"
#include "exp.cuh"

namespace dsa {

constexpr int kPoolThreads = 128;

namespace {

// One thread an output channel; consecutive threads read consecutive channels.
//
// kv_score [groups * Ratio, 4 * head_dim]: columns (overlap kv, own kv, overlap score, own score).
// position_bias [Ratio, 2 * head_dim]: overlap half, own half. pooled [groups, head_dim].
//
// Window slots in order: the previous group's tokens through the overlap columns, then the group's
// own tokens through the own columns. The first group has no overlap slots. Sums run in slot order.
// A NaN score, or a window whose scores are all -inf, gives NaN, as a softmax does.
template <int Ratio>
__global__ void __launch_bounds__(kPoolThreads)
    pool_kernel(const float* kv_score, const float* position_bias, float* pooled, int64_t groups, int head_dim) {
  after_earlier_kernels();
  const int64_t flat = static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x;
  if (flat >= groups * head_dim) return;
  const int64_t group = flat / head_dim;
  const int channel = static_cast<int>(flat % head_dim);

  constexpr int kSlots = 2 * Ratio;
  float logit[kSlots];
  float value[kSlots];
  const int first = group == 0 ? Ratio : 0;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot < first) continue;
    const int own = slot >= Ratio ? head_dim : 0;
    const float* row = kv_score + ((group - 1) * Ratio + slot) * (4 * static_cast<int64_t>(head_dim)) + own + channel;
    value[slot] = row[0];
    logit[slot] = row[2 * head_dim] + position_bias[(slot % Ratio) * (2 * head_dim) + own + channel];
  }

  float largest = logit[kSlots - 1];
#pragma unroll
  for (int slot = 0; slot < kSlots - 1; ++slot) {
    if (slot >= first && logit[slot] > largest) largest = logit[slot];
  }

  float weighted = 0.0f;
  float total = 0.0f;
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slot < first) continue;
    const float weight = exp_nonpositive(logit[slot] - largest);
    weighted = weighted + weight * value[slot];
    total = total + weight;
  }
  pooled[flat] = weighted / total;
}

}  // namespace

}  // namespace dsa
