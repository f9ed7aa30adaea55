// The conversions of kernels/rounding.cuh, one element a thread.
#include "binding.cuh"
#include "rounding.cuh"

namespace dsa {
namespace {

__global__ void convert_kernel(const float* x, uint32_t* out, int64_t n, int which) {
  after_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  switch (which) {
    case 0: out[i] = to_bf16(x[i]); break;
    case 1: out[i] = to_e4m3fn(x[i]); break;
    case 2: out[i] = to_e2m1<Ties::even>(x[i]); break;
    case 3: out[i] = to_e2m1<Ties::toward_zero>(x[i]); break;
    case 4: out[i] = ceil_ue8m0(x[i]); break;
    default: out[i] = pair_to_e4m3fn(x[i], -x[i]);
  }
}

void convert(TensorView x, TensorView out, int64_t which) {
  const OnDevice on(x);
  const int64_t n = x.size(0);
  launch("convert", convert_kernel, dim3(static_cast<unsigned>((n + 255) / 256)), dim3(256), 0, on.stream,
         data<const float>("x", x, f32, {n}), data<uint32_t>("out", out, u32, {n}), n, static_cast<int>(which));
}

}  // namespace
}  // namespace dsa

TVM_FFI_DLL_EXPORT_TYPED_FUNC(convert, dsa::convert);
