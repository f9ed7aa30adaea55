// Exported functions of the store and query kernels.
//
// `variant` names an encoder of encoders.cuh (or of latent.cuh); `amax_floor` and `by_reciprocal`
// are its scale rule and ignored by encoders without a scale. Values (positions, slots, indices
// into out_loc) are the caller's to check: a kernel can't report them.
#include "binding.cuh"
#include "latent.cuh"
#include "query.cuh"
#include "store.cuh"

namespace dsa {
namespace {

using tvm::ffi::String;

template <class Action>
void with_encoder(const String& variant, ScaleRule rule, Action&& action) {
  if (variant == "fp8-fp32") return action(Fp8Encoder<ScaleKind::fp32>{rule});
  if (variant == "fp8-power-of-two") return action(Fp8Encoder<ScaleKind::power_of_two>{rule});
  if (variant == "fp8-unit") return action(Fp8Encoder<ScaleKind::unit>{rule});
  if (variant == "bf16") return action(Bf16Encoder{});
  if (variant == "fp4-even") return action(Fp4Encoder<Ties::even>{rule});
  if (variant == "fp4-toward-zero") return action(Fp4Encoder<Ties::toward_zero>{rule});
  TVM_FFI_THROW(ValueError) << "`variant` names no encoder, got " << variant;
}

template <class Action>
void with_latent(const String& variant, ScaleRule rule, Action&& action) {
  if (variant == "fp8-power-of-two") return action(LatentFp8{rule});
  if (variant == "bf16") return action(LatentBf16{});
  TVM_FFI_THROW(ValueError) << "`variant` names no latent record, got " << variant;
}

dim3 blocks_for(const char* name, int64_t vectors) {
  return grid_of(name, ceil_divide<int64_t>(vectors, kVectorsPerBlock));
}

ExtendPlan extend_plan(TensorView plan, TensorView out_loc, int64_t count, int64_t ratio) {
  const auto* rows = data<const int32_t>("plan", plan, i32, {count, 2});
  return {reinterpret_cast<const ExtendRow*>(rows), data<const int64_t>("out_loc", out_loc, i64, {any_size}), ratio};
}

DecodePlan decode_plan(TensorView seq_lens, TensorView out_loc, int64_t count, int64_t ratio) {
  return {data<const int32_t>("seq_lens", seq_lens, i32, {count}), data<const int64_t>("out_loc", out_loc, i64, {count}),
          Divisor(ratio)};
}

StoreInputs store_inputs(TensorView rows, TensorView weight, TensorView rope_table, TensorView cache, int64_t dim,
                         int64_t page_size, int64_t page_bytes, double norm_eps) {
  return {data<const float4>("rows", rows, f32, {any_size, dim}),
          data<const float4>("norm_weight", weight, f32, {dim}),
          reinterpret_cast<const float*>(data<const float4>("rope_table", rope_table, f32, {any_size, kRopeDim})),
          reinterpret_cast<unsigned char*>(data<uint2>("cache", cache, u8, {any_size, page_bytes})),
          rows.size(0),
          Divisor(page_size),
          static_cast<float>(norm_eps)};
}

template <class Plan>
void store_with(Plan plan, TensorView rows, TensorView weight, TensorView rope_table, TensorView cache, String variant,
                double amax_floor, bool by_reciprocal, int64_t page_size, double norm_eps) {
  with_encoder(variant, {static_cast<float>(amax_floor), by_reciprocal}, [&](auto encoder) {
    using Encoder = decltype(encoder);
    const int64_t record = Encoder::kValueBytes + Encoder::kScaleBytes;
    const StoreInputs in =
        store_inputs(rows, weight, rope_table, cache, kIndexDim, page_size, page_size * record, norm_eps);
    const OnDevice on(cache);
    launch("store", store_kernel<Encoder, Plan>, blocks_for("rows", in.count), dim3(kBlockThreads), 0, on.stream, in, plan,
           encoder);
  });
}

template <class Plan>
void store_latent_with(Plan plan, TensorView rows, TensorView weight, TensorView rope_table, TensorView cache,
                       String variant, double amax_floor, bool by_reciprocal, int64_t page_size, double norm_eps) {
  with_latent(variant, {static_cast<float>(amax_floor), by_reciprocal}, [&](auto record) {
    using Record = decltype(record);
    const StoreInputs in = store_inputs(rows, weight, rope_table, cache, kLatentDim, page_size,
                                        Record::page_bytes(page_size), norm_eps);
    const OnDevice on(cache);
    launch("store_latent", store_latent_kernel<Record, Plan>, grid_of("rows", in.count), dim3(kBlockThreads), 0,
           on.stream, in, plan, record);
  });
}

void store_extend(TensorView rows, TensorView weight, TensorView rope_table, TensorView plan, TensorView out_loc,
                  TensorView cache, String variant, double amax_floor, bool by_reciprocal, int64_t ratio,
                  int64_t page_size, double norm_eps) {
  store_with(extend_plan(plan, out_loc, rows.size(0), ratio), rows, weight, rope_table, cache, variant, amax_floor,
             by_reciprocal, page_size, norm_eps);
}

void store_decode(TensorView rows, TensorView weight, TensorView rope_table, TensorView seq_lens, TensorView out_loc,
                  TensorView cache, String variant, double amax_floor, bool by_reciprocal, int64_t ratio,
                  int64_t page_size, double norm_eps) {
  store_with(decode_plan(seq_lens, out_loc, rows.size(0), ratio), rows, weight, rope_table, cache, variant, amax_floor,
             by_reciprocal, page_size, norm_eps);
}

void store_latent_extend(TensorView rows, TensorView weight, TensorView rope_table, TensorView plan, TensorView out_loc,
                         TensorView cache, String variant, double amax_floor, bool by_reciprocal, int64_t ratio,
                         int64_t page_size, double norm_eps) {
  store_latent_with(extend_plan(plan, out_loc, rows.size(0), ratio), rows, weight, rope_table, cache, variant,
                    amax_floor, by_reciprocal, page_size, norm_eps);
}

void store_latent_decode(TensorView rows, TensorView weight, TensorView rope_table, TensorView seq_lens,
                         TensorView out_loc, TensorView cache, String variant, double amax_floor, bool by_reciprocal,
                         int64_t ratio, int64_t page_size, double norm_eps) {
  store_latent_with(decode_plan(seq_lens, out_loc, rows.size(0), ratio), rows, weight, rope_table, cache, variant,
                    amax_floor, by_reciprocal, page_size, norm_eps);
}

void encode_query(TensorView query, TensorView gate, TensorView rope_table, TensorView positions, TensorView codes,
                  TensorView weights, String variant, double amax_floor, bool by_reciprocal, double factor,
                  bool round_roped, bool round_rotated) {
  with_encoder(variant, {static_cast<float>(amax_floor), by_reciprocal}, [&](auto encoder) {
    using Encoder = decltype(encoder);
    const int64_t record = Encoder::kValueBytes + (Encoder::kFoldsScale ? 0 : Encoder::kScaleBytes);
    const auto* vectors = data<const float4>("query", query, f32, {any_size, any_size, kIndexDim});
    const int64_t rows = query.size(0), heads = query.size(1);
    const QueryInputs in{
        vectors,
        data<const float>("gate", gate, f32, {rows, heads}),
        reinterpret_cast<const float*>(data<const float4>("rope_table", rope_table, f32, {any_size, kRopeDim})),
        data<const int64_t>("positions", positions, i64, {rows}),
        reinterpret_cast<unsigned char*>(data<uint2>("codes", codes, u8, {rows, heads, record})),
        data<float>("weights", weights, f32, {rows, heads}),
        rows,
        heads,
        static_cast<float>(factor),
        round_roped,
        round_rotated};
    const OnDevice on(query);
    launch("encode_query", query_kernel<Encoder>, blocks_for("query", rows * heads), dim3(kBlockThreads), 0, on.stream, in,
           encoder);
  });
}

}  // namespace
}  // namespace dsa

TVM_FFI_DLL_EXPORT_TYPED_FUNC(store_extend, dsa::store_extend);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(store_decode, dsa::store_decode);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(store_latent_extend, dsa::store_latent_extend);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(store_latent_decode, dsa::store_latent_decode);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(encode_query, dsa::encode_query);
