// Words that blocks of a cluster send into each other's shared memory. Each block waits for what is sent to
// it and for nothing else: a barrier of the cluster that publishes writes takes several times as long.
//
// A mail is received once in a kernel. Between opening mails and the first send lies a barrier of the cluster,
// which need not publish anything; a block may end when it has received everything that it is sent.
#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "device.cuh"

namespace dsa {

struct Mail {
  uint64_t barrier;  // that counts the bytes

  __device__ void open();
  __device__ void expect(uint32_t bytes);  // one thread says once how many will come
  __device__ void wait(bool receiving);    // every thread of the cluster calls it; those receiving see the words
};

#if defined(__CUDACC__)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t address_of_mail(const void* place) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

__device__ __forceinline__ void Mail::open() {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of_mail(&barrier)));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void Mail::expect(uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of_mail(&barrier)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void Mail::wait(bool receiving) {
  if (!receiving) return;
  asm volatile(
      "{\n.reg .pred done;\n"
      "AGAIN%=:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@done bra READY%=;\nbra AGAIN%=;\nREADY%=:\n}" ::"r"(address_of_mail(&barrier))
      : "memory");
}

// Sends 8 bytes to the same place in the dynamic shared memory of the block of that rank.
__device__ __forceinline__ void send(uint2* place, uint2 words, Mail& mail, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 to, counted;\n.reg .b64 both;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\nmapa.shared::cluster.u32 counted, %1, %2;\n"
      "mov.b64 both, {%3, %4};\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [to], both, [counted];\n}" ::"r"(
          address_of_mail(place)),
      "r"(address_of_mail(&mail)), "r"(rank), "r"(words.x), "r"(words.y)
      : "memory");
}

#else

__device__ __forceinline__ void Mail::open() { __trap(); }
__device__ __forceinline__ void Mail::expect(uint32_t) { __trap(); }
__device__ __forceinline__ void Mail::wait(bool) { __trap(); }
__device__ __forceinline__ void send(uint2*, uint2, Mail&, uint32_t) { __trap(); }

#endif

#else

// Threads run in turns: what is sent is there when all have been to the place where some wait.
inline void Mail::open() {}
inline void Mail::expect(uint32_t) {}
inline void Mail::wait(bool) { cluster_wait(); }
inline void send(uint2* place, uint2 words, Mail&, uint32_t rank) { *of_block(place, rank) = words; }

#endif

}  // namespace dsa
