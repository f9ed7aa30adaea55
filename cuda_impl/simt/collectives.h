// Warp, block and cluster collectives. Every lane of the warp must take part: the mask is 0xffffffff.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "meeting.h"

namespace dsa::simt {

inline void require_full_mask(Warp& warp, unsigned lane, unsigned mask, const Site& site) {
  if (mask != 0xffffffffu) [[unlikely]] {
    fail(warp, lane, describe(site) + " needs the mask 0xffffffff, got " + std::to_string(mask));
  }
}

// Deposits a value and returns the values of all lanes.
template <class T>
const std::uint64_t* exchange(Warp& warp, unsigned lane, unsigned mask, T value, const Site& site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  require_full_mask(warp, lane, mask, site);
  std::uint64_t* slots = warp.deposit[arrive(warp, lane, site)];
  std::memcpy(&slots[lane], &value, sizeof(T));
  next_lane(warp, lane);
  return slots;
}

template <class T>
T slot_value(const std::uint64_t* slots, unsigned lane) {
  T value;
  std::memcpy(&value, &slots[lane], sizeof(T));
  return value;
}

// Folds every lane's value with `combine`, lane 0 first, and returns the result to all.
template <class Combine>
std::uint64_t fold(unsigned mask, std::uint64_t value, const Site& site, Combine combine) {
  const auto frame = frame_address();
  Warp& warp = warp_at(frame);
  const unsigned lane = lane_at(frame);
  require_full_mask(warp, lane, mask, site);
  std::uint64_t& result = warp.combined[arrive(warp, lane, site)];
  result = lane == 0 ? value : combine(result, value);
  next_lane(warp, lane);
  return result;
}

}  // namespace dsa::simt

#define DSA_SIMT_SITE(kind) \
  ::dsa::simt::Site { file, static_cast<std::uint32_t>(line), ::dsa::simt::Meeting::kind }
#define DSA_SIMT_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(DSA_SIMT_CALLER) {
  const auto frame = dsa::simt::frame_address();
  dsa::simt::Warp& warp = dsa::simt::warp_at(frame);
  const unsigned lane = dsa::simt::lane_at(frame);
  dsa::simt::arrive_block(warp, lane, DSA_SIMT_SITE(syncthreads));
  dsa::simt::next_thread(warp, lane);
}

// Nobody is held up where a thread arrives; all blocks of the cluster meet where it waits.
inline void __cluster_barrier_arrive() {}
inline void __cluster_barrier_arrive_relaxed() {}

inline void __cluster_barrier_wait(DSA_SIMT_CALLER) {
  const auto frame = dsa::simt::frame_address();
  dsa::simt::Warp& warp = dsa::simt::warp_at(frame);
  const unsigned lane = dsa::simt::lane_at(frame);
  dsa::simt::arrive_cluster(warp, lane, DSA_SIMT_SITE(cluster));
  dsa::simt::next_of_cluster(warp, lane);
}

inline unsigned __clusterRelativeBlockRank() { return dsa::simt::this_warp().block->rank; }

inline unsigned __clusterSizeInBlocks() {
  return static_cast<unsigned>(dsa::simt::this_warp().block->launch->cluster.size());
}

// The same place in the dynamic shared memory of another block of the cluster.
inline void* __cluster_map_shared_rank(const void* place, unsigned rank) {
  const dsa::simt::Block& block = *dsa::simt::this_warp().block;
  const std::size_t at = reinterpret_cast<std::uintptr_t>(place) - reinterpret_cast<std::uintptr_t>(block.shared);
  const auto& cluster = block.launch->cluster;
  if (at >= block.shared_bytes || rank >= cluster.size()) [[unlikely]] {
    dsa::simt::fail(dsa::simt::this_warp(), dsa::simt::this_lane(),
                    "__cluster_map_shared_rank needs a place in dynamic shared memory and the rank of a block");
  }
  return cluster[rank].shared + at;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, DSA_SIMT_CALLER) {
  const auto frame = dsa::simt::frame_address();
  dsa::simt::exchange(dsa::simt::warp_at(frame), dsa::simt::lane_at(frame), mask, 0, DSA_SIMT_SITE(syncwarp));
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, DSA_SIMT_CALLER) {
  const auto frame = dsa::simt::frame_address();
  const auto* slots =
      dsa::simt::exchange(dsa::simt::warp_at(frame), dsa::simt::lane_at(frame), mask, value, DSA_SIMT_SITE(shuffle));
  return dsa::simt::slot_value<T>(slots, static_cast<unsigned>(source) % dsa::simt::warp_size);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, DSA_SIMT_CALLER) {
  const auto frame = dsa::simt::frame_address();
  const unsigned lane = dsa::simt::lane_at(frame);
  const auto* slots = dsa::simt::exchange(dsa::simt::warp_at(frame), lane, mask, value, DSA_SIMT_SITE(shuffle));
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  return source < dsa::simt::warp_size ? dsa::simt::slot_value<T>(slots, source) : value;
}

// A lane whose source lies outside the warp keeps its own value.
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, DSA_SIMT_CALLER) {
  const auto frame = dsa::simt::frame_address();
  const unsigned lane = dsa::simt::lane_at(frame);
  const auto* slots = dsa::simt::exchange(dsa::simt::warp_at(frame), lane, mask, value, DSA_SIMT_SITE(shuffle));
  return lane >= delta ? dsa::simt::slot_value<T>(slots, lane - delta) : value;
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, DSA_SIMT_CALLER) {
  const auto frame = dsa::simt::frame_address();
  const unsigned lane = dsa::simt::lane_at(frame);
  const auto* slots = dsa::simt::exchange(dsa::simt::warp_at(frame), lane, mask, value, DSA_SIMT_SITE(shuffle));
  return delta < dsa::simt::warp_size - lane ? dsa::simt::slot_value<T>(slots, lane + delta) : value;
}

inline unsigned __ballot_sync(unsigned mask, int predicate, DSA_SIMT_CALLER) {
  const std::uint64_t bit = predicate ? std::uint64_t{1} << dsa::simt::this_lane() : 0;
  const auto either = [](std::uint64_t a, std::uint64_t b) { return a | b; };
  return static_cast<unsigned>(dsa::simt::fold(mask, bit, DSA_SIMT_SITE(vote), either));
}

inline int __any_sync(unsigned mask, int predicate, DSA_SIMT_CALLER) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, DSA_SIMT_CALLER) {
  return __ballot_sync(mask, predicate, file, line) == 0xffffffffu;
}

// Integer reductions; as on the device, 32-bit types only and sums wrap.
#define DSA_SIMT_REDUCE(name, type, expression)                                                   \
  inline type name(unsigned mask, type value, DSA_SIMT_CALLER) {                                  \
    const auto combine = [](std::uint64_t left, std::uint64_t right) -> std::uint64_t {           \
      const type a = static_cast<type>(left), b = static_cast<type>(right);                       \
      return static_cast<std::uint64_t>(expression);                                              \
    };                                                                                            \
    return static_cast<type>(                                                                     \
        dsa::simt::fold(mask, static_cast<std::uint64_t>(value), DSA_SIMT_SITE(reduce), combine)); \
  }
DSA_SIMT_REDUCE(__reduce_add_sync, unsigned, a + b)
DSA_SIMT_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
DSA_SIMT_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
DSA_SIMT_REDUCE(__reduce_min_sync, int, a < b ? a : b)
DSA_SIMT_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
DSA_SIMT_REDUCE(__reduce_max_sync, int, a > b ? a : b)
DSA_SIMT_REDUCE(__reduce_or_sync, unsigned, a | b)
DSA_SIMT_REDUCE(__reduce_and_sync, unsigned, a & b)
#undef DSA_SIMT_REDUCE
#undef DSA_SIMT_SITE
#undef DSA_SIMT_CALLER
