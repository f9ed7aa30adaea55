// Entry points of the read path: pooling, scoring, top-k. Sizes and types are checked here; page
// ids and lengths are checked by the callers, who know their names and may read them on the host.
#include <cstdint>

#include <tvm/ffi/container/tuple.h>

#include "binding.cuh"
#include "pool.cuh"
#include "score.cuh"
#include "score_hopper.cuh"
#include "score_mma.cuh"
#include "score_plan.cuh"
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

template <class Codec>
ScoreLayout layout_by(Unit unit, const ScoreSizes& sizes, bool paired) {
  using Operand = typename MatrixOperand<Codec>::type;
  if (unit == Unit::wgmma) return hopper::layout<Operand>(sizes, paired);
  return unit == Unit::mma ? mma::layout<Operand>(sizes, paired) : ScoreLayout{};
}

template <class Codec>
void launch_by(Unit unit, int rows, const ScoreArguments& a, dim3 blocks, Stream stream) {
  using Operand = typename MatrixOperand<Codec>::type;
  if (unit == Unit::wgmma) {
    (rows == 2 ? hopper::launch_rows<Operand, 2> : hopper::launch_rows<Operand, 1>)(a, blocks, stream);
  } else {
    (rows == 2 ? mma::launch_rows<Operand, 2> : mma::launch_rows<Operand, 1>)(a, blocks, stream);
  }
}
#else
template <class Codec>
ScoreLayout layout_by(Unit, const ScoreSizes&, bool) { return {}; }
template <class Codec>
void launch_by(Unit, int, const ScoreArguments&, dim3, Stream) {}
#endif

template <class Codec>
constexpr int64_t kTokenWords = Codec::kValueWords + Codec::kScaleWords;

// How a call on the device of `lengths` is done by `wanted`, or the best: unit, shares of its plan, rows of a group.
// Unit 0: not by that one. `paired`: rows 2i and 2i + 1 belong to one request, so that its keys need to be read once
// for both.
template <class Codec>
tvm::ffi::Tuple<int64_t, int64_t, int64_t> score_layout(TensorView lengths, int64_t heads, int64_t page_size,
                                                        int64_t max_length, int64_t codes_at, int64_t cache_at,
                                                        bool paired, int64_t wanted) {
  using Answer = tvm::ffi::Tuple<int64_t, int64_t, int64_t>;
  const OnDevice on(lengths);
  const ScoreSizes sizes = {lengths.size(0), heads,    page_size, 4 * kTokenWords<Codec> * page_size,
                            max_length,      codes_at, cache_at};
  for (const Unit unit : {Unit::wgmma, Unit::mma}) {
    if (wanted != static_cast<int64_t>(Unit::best) && wanted != static_cast<int64_t>(unit)) continue;
    const ScoreLayout layout = layout_by<Codec>(unit, sizes, paired);
    if (layout.blocks > 0) return Answer(static_cast<int64_t>(unit), layout.blocks, int64_t{layout.rows});
  }
  const bool plain = wanted == static_cast<int64_t>(Unit::best) || wanted == static_cast<int64_t>(Unit::fma);
  return Answer(static_cast<int64_t>(plain ? Unit::fma : Unit::best), int64_t{0}, int64_t{1});
}

// Writes the plan of a call, of which `rows` neighbouring rows are a group, into `shares`: one a block.
void plan_scores(TensorView block_table, TensorView request_of_row, TensorView lengths, TensorView shares,
                 int64_t page_size, int64_t max_length, int64_t rows) {
  PlanArguments a;
  a.block_table = data<const int32_t>("block_table", block_table, i32, {any_size, any_size});
  a.request_of_row = data<const int32_t>("request_of_row", request_of_row, i32, {any_size});
  a.lengths = data<const int32_t>("lengths", lengths, i32, {request_of_row.size(0)});
  a.shares = reinterpret_cast<PlannedShare*>(data<int4>("shares", shares, i32, {any_size, kShareWords}));
  TVM_FFI_CHECK((rows == 1 || rows == 2) && lengths.size(0) % rows == 0, ValueError)
      << "`rows` should be 1 or 2 and divide " << lengths.size(0) << ", got " << rows;
  TVM_FFI_CHECK(page_size > 0 && page_size <= 0x7FFFFFFF, ValueError)
      << "`page_size` should be in [1, 2147483647], got " << page_size;
  a.groups = lengths.size(0) / rows;
  a.max_length = max_length;
  a.max_pages = block_table.size(1);
  a.page_size = page_size;
  OnDevice on(lengths);
  launch("plan_scores", rows == 2 ? score_plan_kernel<2> : score_plan_kernel<1>, grid_of("shares", shares.size(0)),
         dim3(kScanThreads), 0, on.stream, a);
}

// Scores by `unit` as `score_layout` says, by the plan that it asks for.
template <class Codec>
void paged_scores(TensorView codes, TensorView weights, TensorView cache, TensorView block_table,
                  TensorView request_of_row, TensorView lengths, TensorView shares, TensorView scores,
                  int64_t page_size, int64_t rows_of_group, int64_t unit) {
  ScoreArguments a;
  a.codes = words("codes", codes, {any_size, any_size, 4 * Codec::kQueryWords});
  const int64_t rows = codes.size(0);
  const int64_t heads = codes.size(1);
  a.weights = data<const float>("weights", weights, f32, {rows, heads});
  a.cache = words("cache", cache, {any_size, 4 * kTokenWords<Codec> * page_size});
  a.block_table = data<const int32_t>("block_table", block_table, i32, {any_size, any_size});
  a.request_of_row = data<const int32_t>("request_of_row", request_of_row, i32, {rows});
  a.lengths = data<const int32_t>("lengths", lengths, i32, {rows});
  a.shares = reinterpret_cast<const PlannedShare*>(data<const int4>("shares", shares, i32, {any_size, kShareWords}));
  a.scores = data<float>("scores", scores, f32, {rows, any_size});
  a.page_words = kTokenWords<Codec> * page_size;
  a.max_length = scores.size(1);
  a.rows = rows;
  a.key_blocks = ceil_divide<int64_t>(a.max_length, kScoreThreads);
  a.max_pages = block_table.size(1);
  a.page_size = page_size;
  a.heads = heads;
  OnDevice on(scores);
  const auto by = static_cast<Unit>(unit);
  if (by == Unit::fma) {
    launch("paged_scores", score_kernel<Codec>, grid_of("scores", rows * a.key_blocks), dim3(kScoreThreads),
           score_shared_bytes(heads), on.stream, a);
    return;
  }
  const auto at = [](const void* start) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % 16); };
  const ScoreSizes sizes = {rows, heads, page_size, 4 * a.page_words, a.max_length, at(a.codes), at(a.cache)};
  const ScoreLayout layout = layout_by<Codec>(by, sizes, rows_of_group == 2);
  TVM_FFI_CHECK(layout.blocks > 0, ValueError)
      << "`unit` should be one that the device and the sizes allow, got " << unit;
  TVM_FFI_CHECK(layout.blocks == shares.size(0) && layout.rows == rows_of_group, ValueError)
      << "`shares` should be " << layout.blocks << " of groups of " << layout.rows << " rows, got " << shares.size(0)
      << " of " << rows_of_group;
  launch_by<Codec>(by, layout.rows, a, grid_of("shares", layout.blocks), on.stream);
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
TVM_FFI_DLL_EXPORT_TYPED_FUNC(plan_scores, dsa::plan_scores);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(score_layout_fp8, dsa::score_layout<dsa::Fp8>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(score_layout_bf16, dsa::score_layout<dsa::Bf16>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(score_layout_fp4, dsa::score_layout<dsa::Fp4>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_scores_fp8, dsa::paged_scores<dsa::Fp8>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_scores_bf16, dsa::paged_scores<dsa::Bf16>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(paged_scores_fp4, dsa::paged_scores<dsa::Fp4>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk, dsa::topk);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk_blocks, dsa::topk_blocks);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(topk_workspace, dsa::topk_workspace);
