// The k-th largest of a source of 32-bit keys, by counting in bins of a range that narrows.
//
// Counts are integers, so the order in which threads arrive cannot change the result, and no plateau or
// crowded bin can overflow anything.
#pragma once

#include <cstdint>

#include "block_scan.cuh"
#include "device.cuh"
#include "scope.cuh"

namespace dsa {

// Keys [low, high], of which the `wanted` largest are sought.
struct Range {
  uint32_t low;
  uint32_t high;
  uint32_t wanted;
};

struct RangeShared {
  alignas(16) uint32_t histogram[BlockScope::kBins];
  uint32_t few[BlockScope::kFew];
  uint32_t few_positions[BlockScope::kFew];
  uint32_t few_count;
  uint32_t warp_sums[kScanWarps];
  struct alignas(16) {  // read as one
    uint32_t bin;
    uint32_t inside;  // keys in the bin
    uint32_t wanted;
  } found;
  uint32_t lows[kScanWarps];
  uint32_t highs[kScanWarps];
};

// From the smallest to the largest of what the block's threads found. The block must meet once more before
// the next call.
__device__ inline Range range_of_block(uint32_t low, uint32_t high, uint32_t wanted, RangeShared& shared) {
  low = __reduce_min_sync(full_warp, low);
  high = __reduce_max_sync(full_warp, high);
  if (threadIdx.x % 32 == 0) {
    shared.lows[threadIdx.x / 32] = low;
    shared.highs[threadIdx.x / 32] = high;
  }
  __syncthreads();
  const int warp = threadIdx.x % kScanWarps;
  return {__reduce_min_sync(full_warp, shared.lows[warp]), __reduce_max_sync(full_warp, shared.highs[warp]), wanted};
}

struct Unseen {
  template <class Each, class Lowest>
  __device__ void operator()(uint32_t, const Each&, const Lowest&) const {}
};

// Narrows to the bin that holds the last wanted key; returns how many keys it holds. The sources of all
// blocks of the scope have at least `range.wanted` keys in the range, which is the same for all. The scope's
// bins are zero, and again after. Each thread is shown its bins, from the best on: how many keys of the range
// lie above them, how many in each, and a function that gives the lowest key of each.
template <class Source, class Scope, class See = Unseen>
__device__ inline uint32_t narrow(const Source& source, Range& range, RangeShared& shared, Scope& scope,
                                  const See& see = {}) {
  const int used = 32 - __clz(static_cast<int>(range.high - range.low));
  const int shift = used > Scope::kBinBits ? used - Scope::kBinBits : 0;

  if constexpr (Source::kRuns) {
    // A run of equal bins costs one atomic: plateaus of equal scores are normal after relu, and would
    // otherwise queue every thread at one address.
    uint32_t run_bin = 0u;
    uint32_t run = 0u;
    source.visit([&](uint32_t key, int) {
      if (key < range.low || key > range.high) return;
      const uint32_t bin = (key - range.low) >> shift;
      if (bin != run_bin && run > 0u) {
        scope.add(run_bin, run);
        run = 0u;
      }
      run_bin = bin;
      ++run;
    });
    if (run > 0u) scope.add(run_bin, run);
  } else {
    source.visit([&](uint32_t key, int i) {
      if (key >= range.low && key <= range.high) scope.add((key - range.low) >> shift, source.times(i));
    });
  }

  // Thread t owns kOwn neighbouring bins, t = 0 the best; exactly one thread finds the bin in which
  // the running count reaches what is wanted.
  constexpr int kOwn = Scope::kOwn;
  uint32_t count[kOwn];
  scope.collect(count);
  uint32_t own = 0u;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own += count[i];
  uint32_t before = block_prefix_sum(own, shared.warp_sums);
  if (threadIdx.x == 0) shared.few_count = 0u;
  const auto bin_of = [](int i) { return Scope::kBins - 1 - (threadIdx.x * kOwn + i); };
  see(before, count, [&](int i) { return range.low + (bin_of(i) << shift); });
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (before < range.wanted && range.wanted <= before + count[i]) {
      shared.found.bin = bin_of(i);
      shared.found.inside = count[i];
      shared.found.wanted = range.wanted - before;
    }
    before += count[i];
  }
  __syncthreads();
  const uint32_t low = range.low + (shared.found.bin << shift), last = low + ((1u << shift) - 1u);
  range = {low, last < range.high ? last : range.high, shared.found.wanted};
  return shared.found.inside;
}

// Narrows to one key, or to so few scores that they can be compared each with each, and returns how many those are;
// of one key the number means nothing. Of few, `few_count` is 0, for those who gather them.
template <class Source, class Scope>
__device__ inline uint32_t narrow_to_few(const Source& source, Range& range, RangeShared& shared, Scope& scope) {
  uint32_t inside = ~0u;
  while (range.low < range.high && inside > Scope::kFew) inside = narrow(source, range, shared, scope);
  return inside;
}

// The key itself, and how many of its equals belong to the wanted: a range of one key. Called by every
// thread of the scope; all of the sources' keys in the range count.
template <class Source, class Scope>
__device__ inline Range kth_largest(const Source& source, Range range, RangeShared& shared, Scope& scope) {
  const uint32_t inside = narrow_to_few(source, range, shared, scope);
  if (Scope::kFew == 0u || range.low == range.high) return range;

  source.visit([&](uint32_t key, int) {
    if (key >= range.low && key <= range.high) shared.few[atomicAdd(&shared.few_count, 1u)] = key;
  });
  __syncthreads();
  if (threadIdx.x < inside) {
    const uint32_t key = shared.few[threadIdx.x];
    uint32_t above = 0u, equal = 0u;
    for (uint32_t i = 0; i < inside; ++i) {
      above += shared.few[i] > key;
      equal += shared.few[i] == key;
    }
    // Equal keys all write the same.
    if (above < range.wanted && range.wanted <= above + equal) {
      shared.found.bin = key;
      shared.found.wanted = range.wanted - above;
    }
  }
  __syncthreads();
  return {shared.found.bin, shared.found.bin, shared.found.wanted};
}

}  // namespace dsa
