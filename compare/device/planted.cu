// One fault for each tool of compute-sanitizer, named on the command line: what the tools must find through the
// filter that limits them to our kernels. Nothing else is built from this file.
#include <cstdio>
#include <cstring>

namespace dsa::planted {

constexpr int kThreads = 64;

__global__ void writes_past_the_end(int* out) { out[kThreads + threadIdx.x] = 1; }

__global__ void reads_what_nobody_wrote(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }

__global__ void races_in_shared_memory(int* out) {
  __shared__ int cell[kThreads];
  cell[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = cell[kThreads - 1 - threadIdx.x];
}

// Lanes meet at a barrier of a warp that was told not to expect them.
__global__ void meets_a_barrier_uninvited(int* out) {
  __syncwarp(0x0000ffffu);
  out[threadIdx.x] = 1;
}

}  // namespace dsa::planted

int main(int count, char** arguments) {
  using namespace dsa::planted;
  const char* tool = count == 2 ? arguments[1] : "";
  int *in = nullptr, *out = nullptr;
  if (cudaMalloc(&in, kThreads * sizeof(int)) != cudaSuccess || cudaMalloc(&out, kThreads * sizeof(int)) != cudaSuccess) {
    return 3;
  }
  if (!std::strcmp(tool, "memcheck")) {
    writes_past_the_end<<<1, kThreads>>>(out);
  } else if (!std::strcmp(tool, "initcheck")) {
    reads_what_nobody_wrote<<<1, kThreads>>>(in, out);
  } else if (!std::strcmp(tool, "racecheck")) {
    races_in_shared_memory<<<1, kThreads>>>(out);
  } else if (!std::strcmp(tool, "synccheck")) {
    meets_a_barrier_uninvited<<<1, kThreads>>>(out);
  } else {
    std::fprintf(stderr, "usage: planted memcheck|initcheck|racecheck|synccheck\n");
    return 2;
  }
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 4;
}
