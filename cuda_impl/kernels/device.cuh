// The one header through which kernels reach the machine: a GPU under nvcc, fibers elsewhere.
//
//   launch("name", kernel<...>, grid, block, dynamic_shared_bytes, stream, arguments...)
//   dynamic_shared<T>()   start of the block's dynamic shared memory, 16-byte aligned
//
// Both builds keep IEEE float32: nvcc -fmad=false, g++ -ffp-contract=off, no fast-math, no libm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include "../simt/cuda_on_host.h"
#endif

namespace dsa {

inline constexpr unsigned full_warp = 0xffffffffu;

// a / b rounded up, of a >= 0 and b > 0 whose sum T holds.
template <class T>
__host__ __device__ constexpr T ceil_divide(T a, T b) {
  return (a + b - 1) / b;
}

#if defined(__CUDACC__)

using Stream = cudaStream_t;

template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char dsa_dynamic_shared[];
  return reinterpret_cast<T*>(dsa_dynamic_shared);
}

inline void check_cuda(const char* what, cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// The current GPU: ten times its compute capability, and its processors.
struct Gpu {
  int capability;
  int processors;
};

inline Gpu current_gpu() {
  int device = 0, major = 0, minor = 0, processors = 0;
  check_cuda("device", cudaGetDevice(&device));
  check_cuda("compute capability", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check_cuda("compute capability", cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  check_cuda("processors", cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  return {10 * major + minor, processors};
}

// Starts a kernel on `stream`. An empty grid starts nothing. Throws when the launch is refused.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Stream stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr std::size_t without_opt_in = 48 * 1024;
  if (shared_bytes > without_opt_in) {
    check_cuda(name, cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared_bytes)));
  }
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  check_cuda(name, cudaGetLastError());
}

#else

using Stream = void*;  // host runs have one order only

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(simt::this_warp().block->shared);
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, Stream,
            Arguments&&... arguments) {
  simt::launch(name, kernel, grid, block, shared_bytes, static_cast<Parameters>(std::forward<Arguments>(arguments))...);
}

#endif

}  // namespace dsa
