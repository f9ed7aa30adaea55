// Entry points of the read path: pooling, scoring, top-k. Sizes and types are checked here; page
// ids and lengths are checked by the callers, who know their names and may read them on the host.
#include <cstdint>

#include "binding.cuh"
#include "pool.cuh"
#include "score.cuh"
#include "score_hopper.cuh"
#include "score_mma.cuh"
#include "topk.cuh"
#include "topk_cluster.cuh"
#include "topk_plan.cuh"

namespace dsa {

// Words of a tensor of bytes.
inline const uint32_t* words(const char* name, const TensorView& tensor, std::initializer_list<int64_t> shape) {
  const auto* start = data<const uint8_t>(name, tensor, u8, shape);
  TVM_FFI_CHECK(reinterpret_cast<uintptr_t>(start) % sizeof(uint32_t) == 0, ValueError)
      << "`" << name << "` should start at an address that 4 divides";
  return reinterpret_cast<const uint32_t*>(start);
}

// pooled [groups, head_dim] of kv_score [>= 4 * groups, 4 * head_dim].
void pool(TensorView kv_score, TensorView position_bias, TensorView pooled) {
  constexpr int kRatio = 4;
  const auto* bias = data<const float>("position_bias", position_bias, f32, {kRatio, any_size});
  const int64_t head_dim = position_bias.size(1) / 2;
  const auto* raw = data<const float>("kv_score", kv_score, f32, {any_size, 4 * head_dim});
  auto* out = data<float>("pooled", pooled, f32, {kv_score.size(0) / kRatio, head_dim});
  const int64_t groups = pooled.size(0);
  OnDevice on(kv_score);
  const dim3 grid = grid_of("kv_score", ceil_divide<int64_t>(groups * head_dim, kPoolThreads));
  launch("pool", pool_kernel<kRatio>, grid, dim3(kPoolThreads), 0, on.stream, raw, bias, out, groups, head_dim);
}

// What computes products and sums; the best is the first that the device and the sizes allow.
enum class Unit : int64_t { best, wgmma, mma, fma };

// What a matrix unit takes for a codec.
#if defined(__CUDACC__)
template <class Codec>
struct MatrixOperand;
template <>
struct MatrixOperand<Fp8> { using type = Fp8Operand; };
template <>
struct MatrixOperand<Bf16> { using type = Bf16Operand; };
template <>
struct MatrixOperand<Fp4> { using type = Fp4Operand; };

// Scores by the matrix unit that is asked for, or the best; returns whether one could.
template <class Codec>
bool score_by_matrix_unit(const ScoreArguments& a, bool paired, Unit unit, Stream stream) {
  using Operand = typename MatrixOperand<Codec>::type;
  if ((unit == Unit::best || unit == Unit::wgmma) && hopper::try_launch<Operand>(a, paired, stream)) return true;
  return (unit == Unit::best || unit == Unit::mma) && mma::try_launch<Operand>(a, paired, stream);
}
#else
template <class Codec>
bool score_by_matrix_unit(const ScoreArguments&, bool, Unit, Stream) { return false; }
#endif

// `paired`: rows 2i and 2i + 1 belong to one request, so that its keys need to be read once for both.
template <class Codec>
void paged_scores(TensorView codes, TensorView weights, TensorView cache, TensorView block_table,
                  TensorView request_of_row, TensorView lengths, TensorView scores, int64_t page_size,
                  bool paired, int64_t unit) {
  constexpr int64_t kTokenWords = Codec::kValueWords + Codec::kScaleWords;
  ScoreArguments a;
  a.codes = words("codes", codes, {any_size, any_size, 4 * Codec::kQueryWords});
  const int64_t rows = codes.size(0);
  const int64_t heads = codes.size(1);
  a.weights = data<const float>("weights", weights, f32, {rows, heads});
  a.cache = words("cache", cache, {any_size, 4 * kTokenWords * page_size});
  a.block_table = data<const int32_t>("block_table", block_table, i32, {any_size, any_size});
  a.request_of_row = data<const int32_t>("request_of_row", request_of_row, i32, {rows});
  a.lengths = data<const int32_t>("lengths", lengths, i32, {rows});
  a.scores = data<float>("scores", scores, f32, {rows, any_size});
  a.page_words = kTokenWords * page_size;
  a.max_length = scores.size(1);
  a.rows = rows;
  a.key_blocks = ceil_divide<int64_t>(a.max_length, kScoreThreads);
  a.requests = block_table.size(0);
  a.max_pages = block_table.size(1);
  a.page_size = page_size;
  a.heads = heads;
  OnDevice on(scores);
  const auto wanted = static_cast<Unit>(unit);
  if (score_by_matrix_unit<Codec>(a, paired, wanted, on.stream)) return;
  TVM_FFI_CHECK(wanted == Unit::best || wanted == Unit::fma, ValueError)
      << "`paged_scores(unit=...)` should be one that the device and the sizes allow, got "
      << (wanted == Unit::wgmma ? "'wgmma'" : "'mma'");
  launch("paged_scores", score_kernel<Codec>, grid_of("scores", rows * a.key_blocks), dim3(kScoreThreads),
         score_shared_bytes(heads), on.stream, a);
}

void check_k(int64_t k) {
  TVM_FFI_CHECK(k >= 1 && k <= kTopkMax, ValueError) << "`k` should be in [1, " << kTopkMax << "], got " << k;
}

void check_blocks(int64_t blocks) {
  TVM_FFI_CHECK(blocks >= 1 && blocks <= kClusterMost && (blocks & (blocks - 1)) == 0, ValueError)
      << "`blocks` should be a power of two in [1, " << kClusterMost << "], got " << blocks;
}

// The most blocks that may share a row on the device of `scores`: 1 if it has no clusters that are large enough.
int64_t topk_blocks(TensorView scores) {
  const OnDevice on(scores);
  return topk_cluster_blocks();
}

// Words that `topk` needs beside its output.
int64_t topk_workspace(int64_t rows, int64_t columns, int64_t k, int64_t blocks) {
  check_k(k);
  check_blocks(blocks);
  return TopkPlan(rows, columns, k, blocks).words;
}

// At most `blocks` blocks share a row; no more than `topk_blocks` can.
void topk(TensorView scores, TensorView lengths, TensorView workspace, TensorView selected, int64_t blocks) {
  const auto* values = data<const float>("scores", scores, f32, {any_size, any_size});
  const int64_t rows = scores.size(0);
  const auto* visible = data<const int32_t>("lengths", lengths, i32, {rows});
  auto* out = data<int32_t>("selected", selected, i32, {rows, any_size});
  const int64_t k = selected.size(1);
  check_k(k);
  check_blocks(blocks);
  const TopkPlan plan(rows, scores.size(1), k, blocks);
  auto* free = data<int32_t>("workspace", workspace, i32, {plan.words});
  OnDevice on(scores);
  TopkArguments a{visible, {}, 0, static_cast<int>(k)};
  TopkLevel level{values, nullptr, nullptr, out, 0, 0, 0};
  for (; a.levels < plan.levels; ++a.levels) {
    level.columns = plan.columns[a.levels];
    level.size = plan.size[a.levels];
    level.parts = plan.parts[a.levels];
    const int64_t kept = rows * level.parts * k;
    const bool last = a.levels + 1 == plan.levels;
    level.best_scores = last ? nullptr : reinterpret_cast<float*>(free);
    level.best_indices = last ? out : free + kept;
    if (last && plan.cluster > 1) {
      const Grid grid(grid_of("scores", rows * plan.cluster), static_cast<unsigned>(plan.cluster));
      launch("topk (cluster)", topk_cluster_kernel, grid, dim3(kTopkThreads), sizeof(TopkClusterShared), on.stream,
             level, a);
      return;
    }
    launch("topk", topk_kernel, grid_of("scores", rows * level.parts), dim3(kTopkThreads), sizeof(TopkShared),
           on.stream, level, a);
    level.scores = level.best_scores;
    level.indices = level.best_indices;
    a.earlier[a.levels] = level.size;
    free += 2 * kept;
  }
}

}  // namespace dsa

TVM_FFI_DLL_EXPORT_TYPED_FUNC(pool, dsa::pool);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_scores_fp8, dsa::paged_scores<dsa::Fp8>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_scores_bf16, dsa::paged_scores<dsa::Bf16>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_scores_fp4, dsa::paged_scores<dsa::Fp4>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk, dsa::topk);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk_blocks, dsa::topk_blocks);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk_workspace, dsa::topk_workspace);
