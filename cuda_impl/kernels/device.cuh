// The one header through which kernels reach the machine: a GPU under nvcc, fibers elsewhere.
//
//   launch("name", kernel<...>, grid, block, dynamic_shared_bytes, stream, arguments...)
//   launch("name", kernel<...>, {grid, blocks of a cluster}, ...)
//   dynamic_shared<T>()   start of the block's dynamic shared memory, 16-byte aligned
//   after_earlier_kernels()   in every kernel, before it reads or writes anything but its own memory
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

// Blocks to start, every `cluster` neighbours along x together: these meet and share memory (cluster.cuh).
struct Grid {
  dim3 blocks;
  unsigned cluster;
  Grid(dim3 all, unsigned together = 1) : blocks(all), cluster(together) {}
};

#if defined(__CUDACC__)

using Stream = cudaStream_t;

// Where the hardware can, a kernel starts while the one before it in the stream still runs: its blocks are set up
// when room is left, and wait here. All of them call it, so that a kernel ends only after all before it.
__device__ __forceinline__ void after_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

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

// Allows a kernel what it must ask for: much shared memory, clusters of more blocks than every GPU with
// clusters takes.
inline void opt_in(const char* name, const void* kernel, std::size_t shared_bytes, unsigned cluster) {
  constexpr std::size_t bytes_without = 48 * 1024;
  constexpr unsigned blocks_without = 8;
  if (shared_bytes > bytes_without) {
    const auto bytes = static_cast<int>(shared_bytes);
    check_cuda(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  }
  if (cluster > blocks_without) {
    check_cuda(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  }
}

// Starts a kernel on `stream`. An empty grid starts nothing. Throws when the launch is refused.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, dim3 block, std::size_t shared_bytes,
            Stream stream, Arguments&&... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  opt_in(name, reinterpret_cast<const void*>(kernel), shared_bytes, grid.cluster);
  constexpr int targets[] = {__CUDA_ARCH_LIST__};
  cudaLaunchAttribute attributes[2] = {};
  unsigned used = 0;
  if (targets[0] >= 900) {  // the lowest
    attributes[used].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[used++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    attributes[used].id = cudaLaunchAttributeClusterDimension;
    attributes[used++].val.clusterDim = {grid.cluster, 1, 1};
  }
  cudaLaunchConfig_t how{};
  how.gridDim = grid.blocks;
  how.blockDim = block;
  how.dynamicSmemBytes = shared_bytes;
  how.stream = stream;
  how.attrs = attributes;
  how.numAttrs = used;
  check_cuda(name, cudaLaunchKernelEx(&how, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

#else

using Stream = void*;  // host runs have one order only

inline void after_earlier_kernels() {}

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(simt::this_warp().block->shared);
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, dim3 block, std::size_t shared_bytes, Stream,
            Arguments&&... arguments) {
  simt::launch(name, kernel, grid.blocks, grid.cluster, block, shared_bytes,
               static_cast<Parameters>(std::forward<Arguments>(arguments))...);
}

#endif

}  // namespace dsa
