// CUDA C++ for an ordinary C++20 compiler: include this where nvcc would include cuda_runtime.h.
//
// Not supported, and refused where it can be: partial warp masks, a block that is not whole warps,
// collectives that some threads skip. Shared memory in `static` form starts as the previous block
// left it, as on the device; blocks of a cluster would share it, so their kernels keep to the dynamic form.
#pragma once

#include "atomics.h"
#include "collectives.h"
#include "intrinsics.h"
#include "launch.h"
#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local
#define __constant__ static

#define threadIdx (::dsa::simt::this_warp().thread[::dsa::simt::this_lane()])
#define blockIdx (::dsa::simt::this_warp().block->index)
#define blockDim (::dsa::simt::this_warp().block->launch->shape)
#define gridDim (::dsa::simt::this_warp().block->launch->grid)
