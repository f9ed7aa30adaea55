// Paged scoring: one float32 score for each (query row, visible key), no head axis in memory.
//
//   score = factor(key) * sum over heads of weight * relu(query . key)
//
// Portable version: one thread a key, plain float32. Every sum has one fixed order, so the result
// depends on neither the launch shape nor the machine.
#pragma once

#include <cmath>
#include <cstdint>

#include "decode.cuh"
#include "device.cuh"
#include "score_plan.cuh"

namespace dsa {

constexpr int kScoreThreads = 128;
// Heads staged at once: 64 x (128 + 1) floats are 33 KB of the 48 KB that every launch may use.
constexpr int kHeadChunk = 64;
constexpr int kPartialSums = 16;

inline int score_shared_bytes(int heads) {
  return (heads < kHeadChunk ? heads : kHeadChunk) * (kHeadDim + 1) * static_cast<int>(sizeof(float));
}

struct ScoreArguments {
  const uint32_t* codes;          // [rows, heads, kQueryWords]
  const float* weights;           // [rows, heads]
  const uint32_t* cache;          // [pages, page_words]
  const int32_t* block_table;     // [requests, max_pages]
  const int32_t* request_of_row;  // [rows]
  const int32_t* lengths;         // [rows]
  const PlannedShare* shares;     // one a block of a matrix unit's kernel
  float* scores;                  // [rows, max_length]
  int64_t page_words;
  int64_t max_length;
  int64_t rows;
  int64_t key_blocks;  // blocks of kScoreThreads keys that cover max_length
  int max_pages;
  int page_size;
  int heads;
};

// Sum of elementwise products: kPartialSums interleaved sums, then a halving tree.
__device__ inline float dot(const float* a, const float* b) {
  float partial[kPartialSums];
#pragma unroll
  for (int i = 0; i < kPartialSums; ++i) partial[i] = a[i] * b[i];
#pragma unroll
  for (int start = kPartialSums; start < kHeadDim; start += kPartialSums) {
#pragma unroll
    for (int i = 0; i < kPartialSums; ++i) partial[i] = partial[i] + a[start + i] * b[start + i];
  }
#pragma unroll
  for (int width = kPartialSums / 2; width > 0; width /= 2) {
#pragma unroll
    for (int i = 0; i < kPartialSums / 2; ++i) {
      if (i < width) partial[i] = partial[i] + partial[i + width];
    }
  }
  return partial[0];
}

// Decodes heads [first, first + count) of one row into shared memory, consecutive threads on
// consecutive words.
template <class Codec>
__device__ inline void stage_query(const ScoreArguments& a, int64_t row, int first, int count, float* query,
                                   float* weight) {
  const int64_t base = row * a.heads + first;
  for (int flat = threadIdx.x; flat < count * Codec::kValueWords; flat += kScoreThreads) {
    const int head = flat / Codec::kValueWords;
    const int word = flat % Codec::kValueWords;
    const uint32_t* record = a.codes + (base + head) * Codec::kQueryWords;
    Codec::decode_word(record[word], record + Codec::kValueWords, word,
                       query + head * kHeadDim + word * Codec::kPerWord);
  }
  for (int head = threadIdx.x; head < count; head += kScoreThreads) weight[head] = a.weights[base + head];
}

// Decodes one key into registers and returns the factor of its score.
template <class Codec>
__device__ inline float load_key(const ScoreArguments& a, int64_t row, int64_t key, float* element) {
  const int64_t logical = key / a.page_size;
  const int offset = static_cast<int>(key % a.page_size);
  const int64_t request = a.request_of_row[row];
  const int64_t page = a.block_table[request * a.max_pages + logical];
  const uint32_t* base = a.cache + page * a.page_words;
  const uint32_t* values = base + static_cast<int64_t>(offset) * Codec::kValueWords;
  const uint32_t* scales = base + static_cast<int64_t>(a.page_size) * Codec::kValueWords +
                           static_cast<int64_t>(offset) * Codec::kScaleWords;
#pragma unroll
  for (int word = 0; word < Codec::kValueWords; ++word) {
    Codec::decode_word(values[word], scales, word, element + word * Codec::kPerWord);
  }
  return Codec::score_factor(scales);
}

namespace {

// Block b covers row b / key_blocks and keys kScoreThreads * (b % key_blocks) onwards. Columns at or
// past the row's length get -inf, and their bytes are never read. A NaN dot stays NaN through relu.
template <class Codec>
__global__ void __launch_bounds__(kScoreThreads) score_kernel(ScoreArguments a) {
  after_earlier_kernels();
  float* query = dynamic_shared<float>();
  const int chunk = a.heads < kHeadChunk ? a.heads : kHeadChunk;
  float* weight = query + chunk * kHeadDim;

  const int64_t row = blockIdx.x / a.key_blocks;
  const int64_t key = blockIdx.x % a.key_blocks * kScoreThreads + threadIdx.x;
  const int64_t length = a.lengths[row];
  const bool in_row = key < a.max_length;
  const bool visible = key < length;
  float* out = a.scores + row * a.max_length + key;
  if (key - threadIdx.x >= length) {  // no thread of the block has a key
    if (in_row) *out = -INFINITY;
    return;
  }

  float element[kHeadDim];
  const float factor = visible ? load_key<Codec>(a, row, key, element) : 0.0f;
  float total = 0.0f;
  for (int first = 0; first < a.heads; first += chunk) {
    const int count = a.heads - first < chunk ? a.heads - first : chunk;
    stage_query<Codec>(a, row, first, count, query, weight);
    __syncthreads();
    if (visible) {
      for (int head = 0; head < count; ++head) {
        const float product = dot(element, query + head * kHeadDim);
        total = total + weight[head] * (product < 0.0f ? 0.0f : product);
      }
    }
    __syncthreads();
  }
  if (in_row) *out = visible ? total * factor : -INFINITY;
}

}  // namespace

}  // namespace dsa
