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

// To places like these in the dynamic shared memory of the block of that rank, counted by its mail.
class Line {
 public:
  __device__ __forceinline__ Line(uint2* places, Mail& mail, uint32_t rank) {
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to_) : "r"(address_of_mail(places)), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted_) : "r"(address_of_mail(&mail)), "r"(rank));
  }
  __device__ __forceinline__ void send(uint32_t place, uint2 words) const {
    asm volatile(
        "{\n.reg .b64 both;\nmov.b64 both, {%2, %3};\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], both, [%1];\n}" ::"r"(
            to_ + place * static_cast<uint32_t>(sizeof(uint2))),
        "r"(counted_), "r"(words.x), "r"(words.y)
        : "memory");
  }

 private:
  uint32_t to_;
  uint32_t counted_;
};

#else

__device__ __forceinline__ void Mail::open() { __trap(); }
__device__ __forceinline__ void Mail::expect(uint32_t) { __trap(); }
__device__ __forceinline__ void Mail::wait(bool) { __trap(); }
struct Line {
  __device__ __forceinline__ Line(uint2*, Mail&, uint32_t) {}
  __device__ __forceinline__ void send(uint32_t, uint2) const { __trap(); }
};

#endif

#else

// Threads run in turns: what is sent is there when all have been to the place where some wait.
inline void Mail::open() {}
inline void Mail::expect(uint32_t) {}
inline void Mail::wait(bool) { cluster_wait(); }
class Line {
 public:
  Line(uint2* places, Mail&, uint32_t rank) : to_(of_block(places, rank)) {}
  void send(uint32_t place, uint2 words) const { to_[place] = words; }

 private:
  uint2* to_;
};

#endif

}  // namespace dsa
