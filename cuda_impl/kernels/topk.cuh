// Exact top-k of float32 rows: deterministic, ties to the lowest index, output in index order.
//
// Radix select on an order-preserving integer key finds the k-th largest key and how many of its
// equals belong to the selection; a second sweep emits indices by prefix sums. Histograms are
// integer counts, so the order in which threads arrive cannot change the result, and no candidate
// is ever buffered, so no plateau or crowded bin can overflow anything.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "device.cuh"

namespace dsa {

constexpr int kTopkThreads = kScanThreads;
constexpr int kTopkMax = 2048;
constexpr int kRadixBits = 11;
constexpr int kRadixBins = 1 << kRadixBits;
constexpr int kVector = 4;  // consecutive scores a thread reads at once

// Larger key = better score. -0.0 equals +0.0; every NaN, of either sign, is 0, below -inf.
__device__ inline uint32_t order_key(float score) {
  const uint32_t bits = __float_as_uint(score);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0u;
  if (bits == 0x80000000u) return 0x80000000u;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Keys of scores [at, at + kVector) of a row; returns how many of them are below the length.
__device__ inline int load_keys(const float* row, int length, int at, bool aligned, uint32_t (&key)[kVector]) {
  const int left = length - at;
  if (left >= kVector && aligned) {
    const float4 four = *reinterpret_cast<const float4*>(row + at);
    key[0] = order_key(four.x);
    key[1] = order_key(four.y);
    key[2] = order_key(four.z);
    key[3] = order_key(four.w);
    return kVector;
  }
  const int count = left < kVector ? (left > 0 ? left : 0) : kVector;
#pragma unroll
  for (int i = 0; i < kVector; ++i) key[i] = i < count ? order_key(row[at + i]) : 0u;
  return count;
}

// What radix select knows: keys above `prefix` in the bits of `mask` are selected, `wanted` more
// have the prefix itself.
struct Threshold {
  uint32_t prefix;
  uint32_t mask;
  uint32_t wanted;
};

struct TopkShared {
  uint32_t histogram[kRadixBins];
  uint32_t warp_sums[kScanWarps];
  uint32_t bin;
  uint32_t wanted;
};

// Narrows the threshold by the bits [shift, shift + bits) of the key.
__device__ inline Threshold narrow(const float* row, int length, bool aligned, Threshold known, int shift, int bits,
                                   TopkShared& shared) {
  const uint32_t last_bin = (1u << bits) - 1u;
  for (int bin = threadIdx.x; bin < kRadixBins; bin += kTopkThreads) shared.histogram[bin] = 0u;
  __syncthreads();

  // A run of equal bins costs one atomic: plateaus of equal scores are normal after relu, and would
  // otherwise queue every thread at one address.
  uint32_t run_bin = 0u;
  uint32_t run = 0u;
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kVector; at < length; at += kTopkThreads * kVector) {
    uint32_t key[kVector];
    const int count = load_keys(row, length, static_cast<int>(at), aligned, key);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i >= count || (key[i] & known.mask) != known.prefix) continue;
      const uint32_t bin = (key[i] >> shift) & last_bin;
      if (bin != run_bin && run > 0u) {
        atomicAdd(&shared.histogram[run_bin], run);
        run = 0u;
      }
      run_bin = bin;
      ++run;
    }
  }
  if (run > 0u) atomicAdd(&shared.histogram[run_bin], run);
  __syncthreads();

  // Thread t owns the bins 2t and 2t + 1 counted from the best; exactly one thread finds the bin in
  // which the running count reaches what is wanted.
  constexpr int kBins = kRadixBins / kTopkThreads;
  uint32_t count[kBins];
  uint32_t own = 0u;
#pragma unroll
  for (int i = 0; i < kBins; ++i) {
    count[i] = shared.histogram[kRadixBins - 1 - (threadIdx.x * kBins + i)];
    own += count[i];
  }
  uint32_t before = block_prefix_sum(own, shared.warp_sums).before;
#pragma unroll
  for (int i = 0; i < kBins; ++i) {
    if (before < known.wanted && known.wanted <= before + count[i]) {
      shared.bin = kRadixBins - 1 - (threadIdx.x * kBins + i);
      shared.wanted = known.wanted - before;
    }
    before += count[i];
  }
  __syncthreads();
  return {known.prefix | shared.bin << shift, known.mask | last_bin << shift, shared.wanted};
}

// Writes the indices of the selected scores in ascending order.
__device__ inline void emit(const float* row, int length, bool aligned, Threshold found, int k, int32_t* out,
                            TopkShared& shared) {
  uint32_t above = 0u;  // selected by rank so far, and met equals of the k-th key so far
  uint32_t equal = 0u;
  constexpr int kTile = kTopkThreads * kVector;
  for (int64_t tile = 0; tile < length; tile += kTile) {
    const int64_t at = tile + threadIdx.x * kVector;
    uint32_t key[kVector];
    const int count = at < length ? load_keys(row, length, static_cast<int>(at), aligned, key) : 0;
    // Both counts of a tile fit 16 bits: one scan serves the two.
    static_assert(kTile < 1 << 16);
    uint32_t packed = 0u;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < count) packed += key[i] > found.prefix ? 1u << 16 : key[i] == found.prefix ? 1u : 0u;
    }
    const PrefixSum sum = block_prefix_sum(packed, shared.warp_sums);
    uint32_t my_above = above + (sum.before >> 16);
    uint32_t my_equal = equal + (sum.before & 0xFFFFu);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i >= count || key[i] < found.prefix) continue;
      const bool is_above = key[i] > found.prefix;
      if (is_above || my_equal < found.wanted) {
        const uint32_t taken = my_equal < found.wanted ? my_equal : found.wanted;
        out[my_above + taken] = static_cast<int32_t>(at + i);
      }
      my_above += is_above;
      my_equal += !is_above;
    }
    above += sum.total >> 16;
    equal += sum.total & 0xFFFFu;
    if (above + (equal < found.wanted ? equal : found.wanted) == static_cast<uint32_t>(k)) break;
  }
}

namespace {

// One block a row. scores [rows, columns], lengths [rows] in [0, columns], selected [rows, k] padded
// with -1, k in [1, kTopkMax]. A row of at most k scores selects them all without reading them.
__global__ void __launch_bounds__(kTopkThreads)
    topk_kernel(const float* scores, const int32_t* lengths, int32_t* selected, int64_t columns, int k) {
  __shared__ TopkShared shared;
  const int64_t index = blockIdx.x;
  const float* row = scores + index * columns;
  int32_t* out = selected + index * k;
  const int length = lengths[index];
  if (length <= k) {
    for (int i = threadIdx.x; i < k; i += kTopkThreads) out[i] = i < length ? i : -1;
    return;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(row) % sizeof(float4) == 0;
  Threshold threshold = {0u, 0u, static_cast<uint32_t>(k)};
  threshold = narrow(row, length, aligned, threshold, 21, 11, shared);
  threshold = narrow(row, length, aligned, threshold, 10, 11, shared);
  threshold = narrow(row, length, aligned, threshold, 0, 10, shared);
  emit(row, length, aligned, threshold, k, out, shared);
}

}  // namespace

}  // namespace dsa
