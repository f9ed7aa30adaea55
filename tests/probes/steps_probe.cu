// The bound of steps.cuh alone: what each block of a cluster takes for the least of a row's k best; NaN for no bound.
#include <cmath>

#include "binding.cuh"
#include "held_share.cuh"
#include "steps.cuh"

namespace dsa {
namespace {

struct BoundShared {
  Steps steps;
  RangeShared range;
};

__global__ void bound_kernel(const float* x, float* bounds, int share, int length, int k) {
  after_earlier_kernels();
  BoundShared& shared = *dynamic_shared<BoundShared>();
  const int blocks = static_cast<int>(cluster_blocks()), rank = static_cast<int>(cluster_rank());
  if (threadIdx.x == 0) shared.steps.open();
  cluster_arrive_empty();
  const int64_t row = blockIdx.x / blocks;
  const int first = rank * share, left = length - first;
  const Held held(ScoreRow{x + row * length + first, left < share ? left : share});
  BlockScope scope{shared.range.histogram};
  scope.clear();
  shared.steps.clear();
  const Maxima<kHeldGroups> maxima = held.maxima();
  const Range range = held.range(maxima, static_cast<uint32_t>(ceil_divide(k, blocks)), shared.range);
  find_steps(maxima, range, shared.steps, shared.range, scope);
  cluster_wait();
  send_steps(shared.steps);
  shared.steps.mail.wait(true);
  const uint32_t bound = bound_of_steps(shared.steps, static_cast<uint32_t>(k), shared.range, scope);
  if (threadIdx.x == 0) bounds[blockIdx.x] = bound > 0u ? least_of_key(bound) : NAN;
}

// x [rows, length], bounds [rows, blocks of a cluster].
void bound(TensorView x, TensorView bounds, int64_t k) {
  const OnDevice on(x);
  const int64_t rows = x.size(0), length = x.size(1), blocks = bounds.size(1);
  const int64_t share = ceil_divide<int64_t>(ceil_divide(length, blocks), kVector) * kVector;
  launch("bound", bound_kernel, {dim3(static_cast<unsigned>(rows * blocks)), static_cast<unsigned>(blocks)},
         dim3(kScanThreads), sizeof(BoundShared), on.stream, data<const float>("x", x, f32, {rows, length}),
         data<float>("bounds", bounds, f32, {rows, blocks}), static_cast<int>(share), static_cast<int>(length),
         static_cast<int>(k));
}

}  // namespace
}  // namespace dsa

TVM_FFI_DLL_EXPORT_TYPED_FUNC(bound, dsa::bound);
