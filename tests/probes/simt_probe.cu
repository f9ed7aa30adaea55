// Kernels that exercise the emulator itself: each collective, barriers, indices, clusters, and misuse.
#include "binding.cuh"
#include "cluster.cuh"

namespace dsa {
namespace {

// Row r of `out` [18, 32] is one collective's result on x [32].
__global__ void collectives_kernel(const int* x, int* out) {
  const int lane = threadIdx.x;
  const int v = x[lane];
  int* at = out + lane;
  const auto put = [&at](int value) {
    *at = value;
    at += 32;
  };
  put(__shfl_sync(full_warp, v, 7));
  put(__shfl_sync(full_warp, v, (lane + 3) % 32));
  for (int stride = 1; stride < 32; stride *= 2) put(__shfl_xor_sync(full_warp, v, stride));
  put(__shfl_up_sync(full_warp, v, 3));
  put(__shfl_down_sync(full_warp, v, 5));
  put(static_cast<int>(__ballot_sync(full_warp, v > 0)));
  put(__any_sync(full_warp, v == 12345678));
  put(__any_sync(full_warp, lane == 31));
  put(__all_sync(full_warp, lane < 31));
  put(__all_sync(full_warp, lane < 32));
  put(__reduce_add_sync(full_warp, v));
  put(__reduce_min_sync(full_warp, v));
  put(__reduce_max_sync(full_warp, v));
  put(static_cast<int>(__shfl_xor_sync(full_warp, static_cast<long long>(v) << 20, 1) >> 20));
}

// Sum of a row by a whole block: strided reads, warp sums, static and dynamic shared memory.
__global__ void row_sums_kernel(const float* x, float* out, int n) {
  __shared__ float partial[32];
  float* spread = dynamic_shared<float>();
  const int t = threadIdx.x, threads = blockDim.x;
  float sum = 0.0f;
  for (int i = t; i < n; i += threads) sum += x[static_cast<int64_t>(blockIdx.x) * n + i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(full_warp, sum, offset);
  if (t % 32 == 0) partial[t / 32] = sum;
  __syncthreads();
  spread[t] = partial[t / 32];
  __syncthreads();
  if (t == 0) {
    float total = 0.0f;
    for (int w = 0; w < threads / 32; ++w) total += spread[w * 32 + (w + 5) % 32];
    out[blockIdx.x] = total;
  }
}

// out[linear block][linear thread] = the eight numbers a thread knows about its place.
__global__ void places_kernel(int* out) {
  const dim3 b = blockDim, g = gridDim;
  const int thread = threadIdx.x + b.x * (threadIdx.y + b.y * threadIdx.z);
  const int block = blockIdx.x + g.x * (blockIdx.y + g.y * blockIdx.z);
  int* at = out + (static_cast<int64_t>(block) * (b.x * b.y * b.z) + thread) * 6;
  const unsigned place[6] = {threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z};
  for (int i = 0; i < 6; ++i) at[i] = static_cast<int>(place[i]);
}

__global__ void counters_kernel(int* counters, float* sum) {
  __shared__ int local;
  if (threadIdx.x == 0) local = 0;
  __syncthreads();
  const int before = atomicAdd(&local, 1);
  __syncthreads();
  atomicMax(&counters[0], local);
  atomicMin(&counters[1], static_cast<int>(threadIdx.x) - 5);
  atomicAdd(&counters[2], before);
  atomicCAS(&counters[3], 0, static_cast<int>(threadIdx.x) + 1);
  atomicAdd(sum, 0.5f);
}

// A warp that has nothing to do may leave as long as nobody waits for it.
__global__ void early_warp_kernel(int* out) {
  if (threadIdx.x / 32 == blockIdx.x) return;
  out[blockIdx.x * 64 + threadIdx.x] = static_cast<int>(__ballot_sync(full_warp, threadIdx.x % 2));
}

__global__ void misuse_kernel(int mode) {
  const unsigned t = threadIdx.x;
  switch (mode) {
    case 0:  // a lane leaves before its warp meets
      if (t == 5) return;
      __syncwarp();
      break;
    case 1:  // a warp skips a barrier
      if (t >= 32) __syncthreads();
      break;
    case 2:  // two kinds of collective
      if (t == 35) {
        __syncwarp();
      } else {
        __shfl_sync(full_warp, 1, 0);
      }
      break;
    case 3:  // two barriers
      if (t < 32) {
        __syncthreads();
      } else {
        __syncthreads();
      }
      break;
    case 4:  // one lane goes round a loop once more
      for (unsigned i = 0; i <= (t == 31 ? 1u : 0u); ++i) __shfl_xor_sync(full_warp, t, 1);
      break;
    case 5:
      __ballot_sync(0xffffu, 1);
      break;
    default:
      __syncthreads();
  }
}

// Stacks far deeper than a page keep their threads apart.
__device__ int deep_sum(int depth, int lane) {
  volatile int frame[256];
  for (int i = 0; i < 256; ++i) frame[i] = lane;
  const int below = depth == 0 ? 0 : deep_sum(depth - 1, lane);
  __syncwarp();
  return below + frame[depth];
}
__global__ void deep_kernel(int* out, int depth) { out[threadIdx.x] = deep_sum(depth, threadIdx.x); }

__global__ void poison_kernel(int* out) {
  const int* shared = dynamic_shared<int>();
  out[threadIdx.x] = shared[threadIdx.x];
  __syncthreads();
  dynamic_shared<int>()[threadIdx.x] = 0;
}

// Blocks pass numbers round their cluster: out[block] = what came from `steps` blocks before it.
__global__ void round_kernel(int* out, int steps) {
  struct Shared {
    int value[2];
  };
  Shared* shared = dynamic_shared<Shared>();
  const unsigned rank = cluster_rank(), blocks = cluster_blocks();
  if (threadIdx.x == 0) shared->value[0] = static_cast<int>(blockIdx.x);
  cluster_sync();
  for (int step = 0; step < steps; ++step) {
    const int now = step % 2;
    if (threadIdx.x == 37) of_block(shared, (rank + 1) % blocks)->value[1 - now] = shared->value[now];
    __syncthreads();
    cluster_sync();
  }
  if (threadIdx.x == 63) out[blockIdx.x] = shared->value[steps % 2];
}

__global__ void cluster_misuse_kernel(int mode) {
  int* shared = dynamic_shared<int>();
  if (mode == 0 && cluster_rank() == 1) return;  // a block leaves before its cluster meets
  if (mode == 1 && threadIdx.x / 32 == 1) return;  // a warp does
  if (mode == 2) of_block(&mode, 0);  // no shared memory
  if (mode == 3) of_block(shared, 2);  // no such block
  cluster_sync();
}

__global__ void rsqrt_kernel(const float* x, float* out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __frsqrt_rn(x[i]);
}

__global__ void bits_kernel(const int* x, int* out) {
  const int v = x[threadIdx.x];
  int* at = out + threadIdx.x * 4;
  at[0] = __popc(v);
  at[1] = __clz(v);
  at[2] = __ffs(v);
  at[3] = static_cast<int>(__brev(v));
}

void collectives(TensorView x, TensorView out) {
  const OnDevice on(x);
  launch("collectives", collectives_kernel, dim3(1), dim3(32), 0, on.stream, data<const int>("x", x, i32, {32}),
         data<int>("out", out, i32, {18, 32}));
}

void row_sums(TensorView x, TensorView out, int64_t threads) {
  const OnDevice on(x);
  const auto* rows = data<const float>("x", x, f32, {any_size, any_size});
  launch("row_sums", row_sums_kernel, dim3(static_cast<unsigned>(x.size(0))), dim3(static_cast<unsigned>(threads)),
         threads * sizeof(float), on.stream, rows, data<float>("out", out, f32, {x.size(0)}),
         static_cast<int>(x.size(1)));
}

void places(TensorView out) {
  const OnDevice on(out);
  launch("places", places_kernel, dim3(3, 2, 2), dim3(8, 4, 2), 0, on.stream,
         data<int>("out", out, i32, {12, 64, 6}));
}

void counters(TensorView out, TensorView sum) {
  const OnDevice on(out);
  launch("counters", counters_kernel, dim3(3), dim3(96), 0, on.stream, data<int>("out", out, i32, {4}),
         data<float>("sum", sum, f32, {1}));
}

void early_warp(TensorView out) {
  const OnDevice on(out);
  launch("early_warp", early_warp_kernel, dim3(2), dim3(64), 0, on.stream, data<int>("out", out, i32, {2, 64}));
}

void misuse(TensorView any, int64_t mode, int64_t threads, int64_t shared_bytes) {
  const OnDevice on(any);
  launch("misuse", misuse_kernel, dim3(2, 2), dim3(static_cast<unsigned>(threads)),
         static_cast<std::size_t>(shared_bytes), on.stream, static_cast<int>(mode));
}

void deep(TensorView out, int64_t depth) {
  const OnDevice on(out);
  launch("deep", deep_kernel, dim3(1), dim3(64), 0, on.stream, data<int>("out", out, i32, {64}),
         static_cast<int>(depth));
}

void poison(TensorView out) {
  const OnDevice on(out);
  launch("poison", poison_kernel, dim3(2), dim3(32), 128, on.stream, data<int>("out", out, i32, {32}));
}

void pass_round(TensorView out, int64_t cluster, int64_t steps) {
  const OnDevice on(out);
  const Grid grid(dim3(static_cast<unsigned>(out.size(0))), static_cast<unsigned>(cluster));
  launch("round", round_kernel, grid, dim3(64), 8, on.stream, data<int>("out", out, i32, {any_size}),
         static_cast<int>(steps));
}

void cluster_misuse(TensorView any, int64_t mode) {
  const OnDevice on(any);
  launch("cluster_misuse", cluster_misuse_kernel, Grid(dim3(4), 2), dim3(64), 4, on.stream, static_cast<int>(mode));
}

void rsqrt(TensorView x, TensorView out) {
  const OnDevice on(x);
  const int64_t n = x.size(0);
  launch("rsqrt", rsqrt_kernel, dim3(static_cast<unsigned>((n + 1023) / 1024)), dim3(1024), 0, on.stream,
         data<const float>("x", x, f32, {n}), data<float>("out", out, f32, {n}), n);
}

void bits(TensorView x, TensorView out) {
  const OnDevice on(x);
  launch("bits", bits_kernel, dim3(1), dim3(32), 0, on.stream, data<const int>("x", x, i32, {32}),
         data<int>("out", out, i32, {32, 4}));
}

}  // namespace
}  // namespace dsa

TVM_FFI_DLL_EXPORT_TYPED_FUNC(collectives, dsa::collectives);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(row_sums, dsa::row_sums);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(places, dsa::places);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(counters, dsa::counters);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(early_warp, dsa::early_warp);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(misuse, dsa::misuse);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(deep, dsa::deep);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(poison, dsa::poison);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pass_round, dsa::pass_round);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cluster_misuse, dsa::cluster_misuse);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rsqrt, dsa::rsqrt);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(bits, dsa::bits);
