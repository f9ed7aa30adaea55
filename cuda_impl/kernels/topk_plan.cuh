// How rows are cut: into parts of several levels, of which the last may take a cluster a row.
#pragma once

#include <cstdint>

#include "device.cuh"
#include "topk.cuh"
#include "topk_cluster.cuh"

namespace dsa {

constexpr int64_t kFewBlocks = 128;  // about fill a device

// Levels of reduction for rows of `width` scores, where `most_blocks` (a power of two, 1 for no clusters)
// may share a row. Smaller parts than four times k reduce nothing.
struct TopkPlan {
  int levels = 0;
  int64_t size[kMostLevels];
  int64_t parts[kMostLevels];
  int64_t columns[kMostLevels];
  int64_t cluster = 1;  // blocks of a row on the last level
  int64_t words = 0;    // of the workspace: scores and indices of every level but the last

  TopkPlan(int64_t rows, int64_t width, int64_t k, int64_t most_blocks) {
    constexpr int64_t kFewParts = 96;
    while (width > kPartMax && width > most_blocks * kShareMax) {
      int64_t part = kPartMax;
      while (part / 2 >= 4 * k && part > kFilteredMin && rows * ceil_divide(width, part) < kFewParts) part /= 2;
      add(width, part);
      width = parts[levels - 1] * k;
      words += 2 * rows * width;
    }
    if (width > kPartMax) {
      while (cluster * kShareMax < width) cluster *= 2;
      while (2 * cluster <= most_blocks && 2 * cluster * rows <= kFewBlocks && 2 * cluster * kShareMin <= width) {
        cluster *= 2;
      }
    }
    add(width, width > 0 ? width : 1);
  }

 private:
  void add(int64_t width, int64_t part) {
    columns[levels] = width;
    size[levels] = part;
    parts[levels] = width > 0 ? ceil_divide(width, part) : 1;
    ++levels;
  }
};

}  // namespace dsa
