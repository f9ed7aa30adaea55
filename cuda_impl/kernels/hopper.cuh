// Hopper's own instructions, one function each: bulk copies that signal a barrier in shared memory,
// and matrix products of a warpgroup (4 warps) whose second operand lies in shared memory.
//
// Only the sm_90a target has them; device code that uses them is compiled for it alone.
#pragma once

#include <cstdint>

#include "device.cuh"

#if defined(__CUDACC__)

namespace dsa::hopper {

constexpr int kWarpgroup = 128;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Keeps a value in its register: the compiler would rather compute it again each time.
__device__ __forceinline__ uint32_t held(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}
template <class T>
__device__ __forceinline__ T* held(T* value) {
  asm volatile("" : "+l"(value));
  return value;
}

// The same value in every lane of a warp, and the compiler knows.
__device__ __forceinline__ uint64_t uniform(uint64_t value) { return __shfl_sync(full_warp, value, 0); }

// Barriers and copies are named by their address in shared memory.
//
// A barrier of `arrivals` a phase, which may also wait for the bytes of bulk copies.
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits for the end of the phase of this parity; the phase before a barrier's first counts as ended.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "AGAIN%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra READY%=;\nbra AGAIN%=;\nREADY%=:\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// Reads of shared memory by address.
__device__ __forceinline__ uint32_t read_word(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}
__device__ __forceinline__ uint4 read_four(uint32_t address) {
  uint4 four;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(address)
               : "memory");
  return four;
}

// A write to global memory, of whose kind the compiler has lost sight.
__device__ __forceinline__ void write_global(float* to, float value) {
  asm volatile("st.global.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "f"(value) : "memory");
}

// Copies `bytes` (a multiple of 16, both ends aligned to 16) from global to shared memory.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Some warps of the block meet: those that need not wait only arrive. `threads` counts both; `Meeting`
// is 1 or 2.
template <int Meeting>
__device__ __forceinline__ void meet(int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(Meeting), "r"(threads) : "memory");
}
template <int Meeting>
__device__ __forceinline__ void announce(int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"n"(Meeting), "r"(threads) : "memory");
}

// Warpgroup `group`, counted from 0, waits until another passes the turn to it.
constexpr int kFirstTurn = 4;
__device__ __forceinline__ void take_turn(int group) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(kFirstTurn + group), "n"(2 * kWarpgroup) : "memory");
}
__device__ __forceinline__ void pass_turn_to(int group) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(kFirstTurn + group), "n"(2 * kWarpgroup) : "memory");
}

// Moves registers between the warpgroups of a block.
template <int Registers>
__device__ __forceinline__ void shrink_to() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void grow_to() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Orders this thread's ordinary stores to shared memory before the matrix unit's reads of it.
__device__ __forceinline__ void publish_to_matrix_unit() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all committed products; they are in d.
template <int Rows>
__device__ __forceinline__ void products_wait(float (&d)[Rows][32]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[r][i])::"memory");  // read only from here on
  }
}

// Shared-memory operand without swizzle: cores of 8 rows x 16 bytes, `along_k` bytes from one core to
// the next along K, `along_n` bytes from one to the next along N.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t along_k, uint32_t along_n) {
  return static_cast<uint64_t>((address & 0x3FFFFu) >> 4) | static_cast<uint64_t>(along_k >> 4) << 16 |
         static_cast<uint64_t>(along_n >> 4) << 32;
}

// d (+)= a * b for a tile of 64 rows and 64 or 128 columns over 16 elements. Warp w holds rows
// 16w..16w+15 of a and d: lane 4g + t of a the pairs (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8); of
// d rows g and g + 8 at columns 8j + 2t and 8j + 2t + 1, as d[4j], d[4j + 1] and d[4j + 2], d[4j + 3].
// 64 columns fill one d.
#define DSA_FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DSA_EIGHT(d, i) DSA_FOUR(d, i), DSA_FOUR(d, i + 4)
#define DSA_SUMS(d) DSA_EIGHT(d, 0), DSA_EIGHT(d, 8), DSA_EIGHT(d, 16), DSA_EIGHT(d, 24)
#define DSA_PRODUCT_64(type)                                                                \
  asm volatile(                                                                             \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %37, 0;\n"                                    \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                           \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                            \
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "                  \
      "{%32,%33,%34,%35}, %36, keep, 1, 1, 0;\n}\n"                                         \
      : DSA_SUMS(d[0])                                                                      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define DSA_PRODUCT_128(type)                                                               \
  asm volatile(                                                                             \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %69, 0;\n"                                    \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                          \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                            \
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                    \
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                    \
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "                  \
      "{%64,%65,%66,%67}, %68, keep, 1, 1, 0;\n}\n"                                         \
      : DSA_SUMS(d[0]), DSA_SUMS(d[1])                                                      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

template <bool Bf16>
__device__ __forceinline__ void product(float (&d)[1][32], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  if constexpr (Bf16) {
    DSA_PRODUCT_64("bf16");
  } else {
    DSA_PRODUCT_64("f16");
  }
}

template <bool Bf16>
__device__ __forceinline__ void product(float (&d)[2][32], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  if constexpr (Bf16) {
    DSA_PRODUCT_128("bf16");
  } else {
    DSA_PRODUCT_128("f16");
  }
}
#undef DSA_PRODUCT_64
#undef DSA_PRODUCT_128
#undef DSA_SUMS
#undef DSA_EIGHT
#undef DSA_FOUR

}  // namespace dsa::hopper

#endif
