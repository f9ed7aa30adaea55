// Which rows are stored, where, and at which RoPE position. A row with a negative slot is skipped.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "divisor.cuh"

namespace dsa {

struct Placement {
  int64_t slot;  // negative: write nothing
  int64_t position;
};

// A finished group of an extend batch: the number of raw tokens up to the group's end, and the
// query token that ended it, which is the index into out_loc.
struct ExtendRow {
  uint32_t seq_len;  // kInvalid: a padding row
  uint32_t ragged_id;
  static constexpr uint32_t kInvalid = 0xffffffffu;
};

// Row i of the input belongs to plan row i; out_loc has one slot a query token.
struct ExtendPlan {
  const ExtendRow* plan;
  const int64_t* out_loc;
  int64_t ratio;
  __device__ __forceinline__ Placement operator()(int64_t row) const {
    const ExtendRow entry = plan[row];
    if (entry.seq_len == ExtendRow::kInvalid) return {-1, 0};
    return {out_loc[entry.ragged_id], static_cast<int64_t>(entry.seq_len) - ratio};
  }
};

// One row a request; only a length that ends a group stores, and a padding row has length 0.
struct DecodePlan {
  const int32_t* seq_lens;
  const int64_t* out_loc;
  Divisor ratio;
  __device__ __forceinline__ Placement operator()(int64_t row) const {
    const int64_t seq_len = seq_lens[row];
    if (seq_len <= 0 || ratio.divide(seq_len).remainder != 0) return {-1, 0};
    return {out_loc[row], seq_len - ratio.value};
  }
};

}  // namespace dsa
