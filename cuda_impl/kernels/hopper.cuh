// Hopper's own instructions, one function each: bulk copies that signal a barrier in shared memory,
// and matrix products of a warpgroup (4 warps) whose second operand lies in shared memory.
//
// Only the sm_90a target has them; device code that uses them is compiled for it alone.
#pragma once

#include <cstdint>

#include "device.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A barrier that one thread arrives at, and that also waits for the bytes of bulk copies.
__device__ __forceinline__ void barrier_init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "AGAIN%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra READY%=;\nbra AGAIN%=;\nREADY%=:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Copies `bytes` (a multiple of 16, both ends aligned to 16) from global to shared memory.
__device__ __forceinline__ void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// Orders this thread's ordinary stores to shared memory before the matrix unit's reads of it.
__device__ __forceinline__ void publish_to_matrix_unit() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_wait(float (&d)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");  // d is read only from here on
}

// Shared-memory operand without swizzle: cores of 8 rows x 16 bytes, `along_k` bytes from one core to
// the next along K, `along_n` bytes from one to the next along N.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t along_k, uint32_t along_n) {
  return static_cast<uint64_t>((address & 0x3FFFFu) >> 4) | static_cast<uint64_t>(along_k >> 4) << 16 |
         static_cast<uint64_t>(along_n >> 4) << 32;
}

// d (+)= a * b for a 64 x 64 tile over 16 elements. Warp w holds rows 16w..16w+15 of a and d: lane
// 4g + t of a the pairs (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8); of d rows g and g + 8 at
// columns 8j + 2t and 8j + 2t + 1, as d[4j], d[4j + 1] and d[4j + 2], d[4j + 3].
#define DSA_PRODUCT(type)                                                                                             \
  asm volatile(                                                                                                       \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %37, 0;\n"                                                              \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                                     \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"   \
      "%29,%30,%31}, {%32,%33,%34,%35}, %36, keep, 1, 1, 0;\n}\n"                                                     \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),   \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),        \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),       \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                     \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

template <bool Bf16>
__device__ __forceinline__ void product(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  if constexpr (Bf16) {
    DSA_PRODUCT("bf16");
  } else {
    DSA_PRODUCT("f16");
  }
}
#undef DSA_PRODUCT

// Two e4m3 codes to two fp16 values: exact, NaN stays NaN.
__device__ __forceinline__ uint32_t half2_of_e4m3(uint32_t two) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(two)));
  return halves;
}

// max(x, 0), NaN for NaN.
__device__ __forceinline__ float relu(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// Byte permute whose selectors may replicate a sign: with bit 3 of a selector set, its byte is 0x00 or
// 0xFF by the sign of the selected byte.
__device__ __forceinline__ uint32_t permute_signed(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selector));
  return bytes;
}

}  // namespace dsa::hopper

#endif
