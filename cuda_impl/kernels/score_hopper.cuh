// Paged scoring on Hopper's matrix unit: the same scores as score.cuh, in another order of additions.
//
// One warpgroup takes a run of keys of one row (or of the two rows of one request). Tiles of 64 keys are
// copied whole into a ring in shared memory; each warp turns its 16 keys into 16-bit operands in
// registers, multiplies them with all heads' queries (in shared memory, staged once) and adds the heads
// up. Products of fp8, fp4 and bf16 codes are exact and the unit accumulates in float32, so the result is
// within the ieee-fp32 model; fp8 instructions would keep about 14 bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "hopper_operands.cuh"
#include "score.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

constexpr int kThreads = 128;
constexpr int kTileKeys = 64;
constexpr int kHeads = 64;
constexpr int kQueryBytes = kHeads * kHeadDim * 2;
constexpr int kTableEntries = 64;
constexpr int kMaxRun = (kTableEntries - 1) * kTileKeys;  // keys of one warpgroup: its pages fit the table

template <class Operand>
struct Ring {
  uint4 values[Operand::kStages][kTileKeys * Operand::kValueBytes / 16];
  uint32_t scales[Operand::kStages][Operand::kScaleBytes > 0 ? kTileKeys : 4];
  uint64_t full[Operand::kStages];
};

template <class Operand, int Rows>
struct Shared {
  uint32_t query[Rows][kQueryBytes / 4];
  Ring<Operand> ring;
  int32_t table[kTableEntries];
};

// Copies tiles of a run into the ring, in order; only thread 0 does anything.
template <class Operand>
struct Feeder {
  Ring<Operand>& ring;
  const int32_t* table;
  const uint8_t* cache;
  int64_t page_bytes;
  int page_size;
  int tiles;  // left to copy
  int token;  // first token of the next tile in its page

  __device__ void next(int stage) {
    if (threadIdx.x != 0 || tiles == 0) return;
    const uint8_t* page = cache + *table * page_bytes;
    uint64_t* full = &ring.full[stage];
    barrier_expect(full, kTileKeys * (Operand::kValueBytes + Operand::kScaleBytes));
    copy_bulk(ring.values[stage], page + token * Operand::kValueBytes, kTileKeys * Operand::kValueBytes, full);
    if constexpr (Operand::kScaleBytes > 0) {
      const uint8_t* scales = page + static_cast<int64_t>(page_size) * Operand::kValueBytes;
      copy_bulk(ring.scales[stage], scales + token * Operand::kScaleBytes, kTileKeys * Operand::kScaleBytes, full);
    }
    --tiles;
    token += kTileKeys;
    if (token == page_size) {
      token = 0;
      ++table;
    }
  }
};

// Queries of one row as the second operand: cores of 8 heads x 8 elements. Returns whether every head's
// scales fit (always, for formats without grouped scales).
template <class Operand>
__device__ bool stage_query(const ScoreArguments& a, int64_t row, uint32_t* query) {
  constexpr int kChunks = 4 * Operand::kChunks;
  constexpr int kMine = kHeads * kChunks / kThreads;
  const uint8_t* records = reinterpret_cast<const uint8_t*>(a.codes) + row * a.heads * Operand::kQueryBytes;
  uint4 chunk[kMine];
  uint32_t scales[kMine];
  bool fit = true;
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int flat = threadIdx.x + i * kThreads;
    const int head = flat / kChunks;
    const auto* words = reinterpret_cast<const uint32_t*>(records + head * Operand::kQueryBytes + flat % kChunks * 16);
    const bool live = head < a.heads;
    chunk[i] = live ? make_uint4(words[0], words[1], words[2], words[3]) : make_uint4(0u, 0u, 0u, 0u);
    scales[i] = 0u;
    if constexpr (Operand::kGrouped) {
      if (live) scales[i] = *reinterpret_cast<const uint32_t*>(records + head * Operand::kQueryBytes + Operand::kValueBytes);
      fit = fit && scales_fit(scales[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int flat = threadIdx.x + i * kThreads;
    const int head = flat / kChunks;
    const int lane = flat % kChunks % 4;
    const uint32_t shift = Operand::kGrouped ? group_shift(scales[i], lane) : 0u;
#pragma unroll
    for (int s = 0; s < Operand::kSteps; ++s) {
      const int step = flat % kChunks / 4 * Operand::kSteps + s;
      uint32_t low, high;
      Operand::pairs(chunk[i], shift, s, low, high);
      uint32_t* core = query + (2 * step * (kHeads / 8) + head / 8) * 32 + head % 8 * 4 + lane;
      core[0] = low;
      core[kHeads / 8 * 32] = high;
    }
  }
  return fit;
}

// Rewrites the scores of a run whose scales 16-bit operands cannot hold, the plain way; `all`: every one.
__device__ __noinline__ void rescore_wide(ScoreArguments a, int64_t row, int64_t first, int64_t end, bool all) {
  for (int64_t column = first + threadIdx.x; column < end; column += kThreads) {
    float element[kHeadDim];
    const int64_t page = a.block_table[static_cast<int64_t>(a.request_of_row[row]) * a.max_pages + column / a.page_size];
    const int64_t scales = static_cast<int64_t>(a.page_size) * Fp4::kValueWords + column % a.page_size;
    if (!all && scales_fit(a.cache[page * a.page_words + scales])) continue;
    load_key<Fp4>(a, row, column, element);
    float total = 0.0f;
    for (int head = 0; head < a.heads; ++head) {
      const uint32_t* record = a.codes + (row * a.heads + head) * Fp4::kQueryWords;
      float query[kHeadDim];
      for (int word = 0; word < Fp4::kValueWords; ++word) {
        Fp4::decode_word(record[word], record + Fp4::kValueWords, word, query + word * Fp4::kPerWord);
      }
      const float product = dot(element, query);
      total = total + a.weights[row * a.heads + head] * (product < 0.0f ? 0.0f : product);
    }
    a.scores[row * a.max_length + column] = total;
  }
}

namespace {

// Block b covers rows Rows * (b % row_groups) onwards and keys run * (b / row_groups) onwards, so that
// blocks in flight read the same keys for neighbouring rows. Pages are whole tiles. Columns at or past
// a row's length get -inf.
template <class Operand, int Rows>
__global__ void __launch_bounds__(kThreads, 3) score_kernel(ScoreArguments a, int run) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  Shared<Operand, Rows>& shared = *dynamic_shared<Shared<Operand, Rows>>();
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int first_of_warp = threadIdx.x / 32 * 16;
  const int64_t row_groups = a.rows / Rows;
  const int64_t row = blockIdx.x % row_groups * Rows;
  const int64_t first = blockIdx.x / row_groups * run;
  const int64_t stop = first + run < a.max_length ? first + run : a.max_length;

  int64_t length[Rows];
  int64_t longest = 0;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    length[r] = a.lengths[row + r];
    longest = length[r] > longest ? length[r] : longest;
  }
  const int64_t end = stop < longest ? stop : longest;
  const int tiles = end > first ? static_cast<int>((end - first + kTileKeys - 1) / kTileKeys) : 0;

  const int64_t first_page = first / a.page_size;
  if (tiles > 0) {
    const int64_t pages = (end - 1) / a.page_size - first_page + 1;
    const int32_t* from = a.block_table + static_cast<int64_t>(a.request_of_row[row]) * a.max_pages + first_page;
    for (int64_t i = threadIdx.x; i < pages; i += kThreads) shared.table[i] = from[i];
  }
  if (threadIdx.x == 0) {
#pragma unroll
    for (int stage = 0; stage < Operand::kStages; ++stage) barrier_init(&shared.ring.full[stage]);
    barrier_publish();
  }
  __syncthreads();
  Feeder<Operand> feeder{shared.ring,  shared.table, reinterpret_cast<const uint8_t*>(a.cache),
                         a.page_words * 4, a.page_size,  tiles,
                         static_cast<int>(first - first_page * a.page_size)};
#pragma unroll
  for (int stage = 0; stage < Operand::kStages; ++stage) feeder.next(stage);

  // Lane t adds up heads 8j + 2t and 8j + 2t + 1.
  float weight[Rows][16];
  bool fit = true;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    fit = stage_query<Operand>(a, row + r, shared.query[r]) && fit;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int head = 8 * (i / 2) + 2 * t + i % 2;
      const int64_t at = (row + r) * a.heads + head;
      weight[r][i] = head < a.heads ? a.weights[at] : 0.0f;
      if constexpr (Operand::kGrouped) {
        if (head < a.heads) {
          weight[r][i] = reference_scale(weight[r][i], a.codes[at * Fp4::kQueryWords + Fp4::kValueWords]);
        }
      }
    }
  }
  publish_to_matrix_unit();
  __syncthreads();
  const uint64_t query = operand(shared_address(shared.query), kHeads * 16, 128);

  // Lane t = 0 writes the score of key g of the warp's 16, lane t = 1 that of key g + 8.
  const int mine = first_of_warp + 8 * (t % 2) + g;
  int stage = 0;
  uint32_t parity = 0;
  bool narrow = true;
  for (int tile = 0; tile < tiles; ++tile) {
    barrier_wait(&shared.ring.full[stage], parity);
    uint4 chunk[2][Operand::kChunks];
    uint32_t scales[2] = {0u, 0u};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first_of_warp + 8 * half + g;
#pragma unroll
      for (int i = 0; i < Operand::kChunks; ++i) {
        chunk[half][i] = shared.ring.values[stage][key * (Operand::kValueBytes / 16) + 4 * i + t];
      }
      if constexpr (Operand::kScaleBytes > 0) scales[half] = shared.ring.scales[stage][key];
    }
    __syncthreads();  // everyone has read the stage
    feeder.next(stage);
    if (++stage == Operand::kStages) {
      stage = 0;
      parity ^= 1u;
    }

    uint32_t key[8][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t shift = Operand::kGrouped ? group_shift(scales[half], t) : 0u;
#pragma unroll
      for (int s = 0; s < 8; ++s) {
        Operand::pairs(chunk[half][s / Operand::kSteps], shift, s % Operand::kSteps, key[s][half], key[s][half + 2]);
      }
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      float d[32] = {};
      products_begin();
#pragma unroll
      for (int s = 0; s < 8; ++s) {
        product<Operand::kBf16>(d, key[s], query + (r * kQueryBytes + s * 2 * kHeads * 16) / 16, s > 0);
      }
      products_commit();
      products_wait(d);
      float sum[2][2] = {};
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        sum[0][i % 2] = fmaf(weight[r][i], relu(d[4 * (i / 2) + i % 2]), sum[0][i % 2]);
        sum[1][i % 2] = fmaf(weight[r][i], relu(d[4 * (i / 2) + i % 2 + 2]), sum[1][i % 2]);
      }
      const float low = sum[0][0] + sum[0][1];
      const float high = sum[1][0] + sum[1][1];
      float score = (t % 2 ? high : low) + __shfl_xor_sync(full_warp, t % 2 ? low : high, 1);
      score = score + __shfl_xor_sync(full_warp, score, 2);
      const int64_t column = first + static_cast<int64_t>(tile) * kTileKeys + mine;
      if (t < 2 && column < end) {
        const uint32_t scale = t % 2 ? scales[1] : scales[0];
        if constexpr (Operand::kGrouped) {
          score = reference_scale(score, scale);
          narrow = narrow && scales_fit(scale);
        } else if constexpr (Operand::kScaleBytes > 0) {
          score = score * __uint_as_float(scale);
        }
        a.scores[(row + r) * a.max_length + column] = column < length[r] ? score : -INFINITY;
      }
    }
  }
  if constexpr (Operand::kGrouped) {
    const bool all = __syncthreads_or(!fit);
    if (__syncthreads_or(!narrow) || all) {
#pragma unroll
      for (int r = 0; r < Rows; ++r) rescore_wide(a, row + r, first, stop < length[r] ? stop : length[r], all);
    }
  }
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    for (int64_t column = (end > first ? end : first) + threadIdx.x; column < stop; column += kThreads) {
      a.scores[(row + r) * a.max_length + column] = -INFINITY;
    }
  }
#else
  __trap();  // launched only where the device is the one that this was compiled for
#endif
}

}  // namespace

// Keys a warpgroup should take so that about `slots` of them fill the device once, in whole tiles.
inline int keys_of_run(int64_t row_groups, int64_t max_length, int64_t slots) {
  constexpr int64_t kLeast = 256, kMost = 2048;
  const int64_t fair = row_groups * max_length / slots;
  const int64_t clamped = fair < kLeast ? kLeast : fair > kMost ? kMost : fair;
  return static_cast<int>((clamped + kTileKeys - 1) / kTileKeys * kTileKeys);
}
static_assert(kMaxRun >= 2048);

template <class Operand, int Rows>
void launch_rows(const ScoreArguments& a, int64_t slots, Stream stream) {
  const int64_t row_groups = a.rows / Rows;
  const int run = keys_of_run(row_groups, a.max_length, slots);
  const int64_t blocks = row_groups * ((a.max_length + run - 1) / run);
  launch("paged_scores (hopper)", score_kernel<Operand, Rows>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
         sizeof(Shared<Operand, Rows>), stream, a, run);
}

// Scores by this file's kernel if the device and the sizes allow; returns whether it did. `paired`: rows
// 2i and 2i + 1 belong to one request.
template <class Operand>
bool try_launch(const ScoreArguments& a, bool paired, Stream stream) {
  if (a.heads > kHeads || a.page_size % kTileKeys != 0 || reinterpret_cast<uintptr_t>(a.cache) % 16 != 0) return false;
  int device = 0, major = 0, minor = 0, processors = 0;
  check_cuda("device", cudaGetDevice(&device));
  check_cuda("compute capability", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check_cuda("compute capability", cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  check_cuda("processors", cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  if (major != 9 || minor != 0) return false;
  constexpr int64_t kPerProcessor = 4;
  if (paired && a.rows % 2 == 0) {
    launch_rows<Operand, 2>(a, processors * kPerProcessor, stream);
  } else {
    launch_rows<Operand, 1>(a, processors * kPerProcessor, stream);
  }
  return true;
}

}  // namespace dsa::hopper

#endif
