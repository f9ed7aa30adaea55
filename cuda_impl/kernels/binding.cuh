// What every exported entry point does before it starts a kernel: check its tensors, enter their
// device and take the caller's stream there.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <initializer_list>

#include "device.cuh"

#if defined(__CUDACC__)
#include <tvm/ffi/extra/cuda/device_guard.h>
#endif

namespace dsa {

using tvm::ffi::TensorView;

inline constexpr DLDataType f32{kDLFloat, 32, 1};
inline constexpr DLDataType u8{kDLUInt, 8, 1};
inline constexpr DLDataType u32{kDLUInt, 32, 1};
inline constexpr DLDataType i32{kDLInt, 32, 1};
inline constexpr DLDataType i64{kDLInt, 64, 1};

inline constexpr int64_t any_size = -1;

// Start of a contiguous tensor of the given type and shape (any_size matches every length).
// ValueError names the argument, what was expected and what came; it must also be aligned for T.
// An empty tensor may be null.
template <class T>
T* data(const char* name, const TensorView& tensor, DLDataType dtype, std::initializer_list<int64_t> shape) {
  bool same = tensor.ndim() == static_cast<int32_t>(shape.size());
  if (same) {
    int axis = 0;
    for (int64_t length : shape) {
      same = same && (length == any_size || tensor.size(axis) == length);
      ++axis;
    }
  }
  TVM_FFI_CHECK(same, ValueError) << "`" << name << "` should have shape " << tvm::ffi::Shape(shape)
                                  << " (-1 = any length), got " << tensor.shape();
  TVM_FFI_CHECK(tensor.dtype() == dtype, ValueError)
      << "`" << name << "` should hold " << tvm::ffi::DLDataTypeToString(dtype) << ", got "
      << tvm::ffi::DLDataTypeToString(tensor.dtype());
  TVM_FFI_CHECK(tensor.IsContiguous(), ValueError) << "`" << name << "` should be contiguous";
  TVM_FFI_CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % alignof(T) == 0, ValueError)
      << "`" << name << "` should start at a multiple of " << alignof(T) << " bytes";
  return static_cast<T*>(tensor.data_ptr());
}

// A grid of that many blocks in a line; ValueError names the argument that asks for more than a launch takes.
inline dim3 grid_of(const char* name, int64_t blocks) {
  constexpr int64_t most = 0x7FFFFFFF;
  TVM_FFI_CHECK(blocks <= most, ValueError)
      << "`" << name << "` should need at most " << most << " blocks, needs " << blocks;
  return dim3(static_cast<unsigned>(blocks));
}

#if defined(__CUDACC__)

// Makes the tensor's GPU current for its lifetime; `stream` is the one the caller uses there.
class OnDevice {
 public:
  explicit OnDevice(const TensorView& tensor) : guard_(checked(tensor.device())) {
    const DLDevice device = tensor.device();
    stream = static_cast<Stream>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  }
  Stream stream;

 private:
  static int checked(DLDevice device) {
    TVM_FFI_CHECK(device.device_type == kDLCUDA, ValueError) << "tensors should be on a CUDA device";
    return device.device_id;
  }
  tvm::ffi::CUDADeviceGuard guard_;
};

#else

// Emulated kernels read host memory, on the calling thread.
class OnDevice {
 public:
  explicit OnDevice(const TensorView& tensor) {
    TVM_FFI_CHECK(tensor.device().device_type == kDLCPU, ValueError) << "tensors should be on the CPU";
  }
  Stream stream = nullptr;
};

#endif

}  // namespace dsa
