// Scores of fp4 vectors whose groups lie further apart than 16-bit operands reach.
#pragma once

#include <cstdint>

#include "operands.cuh"
#include "score.cuh"

#if defined(__CUDACC__)

namespace dsa {

// Scores in float32, as score.cuh does, those of a thread's keys whose scales 16-bit operands cannot hold;
// `all`: every one. The keys are `column` and each `stride` further, below `end`.
__device__ __noinline__ void rescore_wide(ScoreArguments a, int64_t row, int64_t column, int64_t stride, int64_t end,
                                          bool all) {
  for (; column < end; column += stride) {
    float element[kHeadDim];
    const int64_t line = static_cast<int64_t>(a.request_of_row[row]) * a.max_pages;
    const int64_t page = a.block_table[line + column / a.page_size];
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

}  // namespace dsa

#endif
