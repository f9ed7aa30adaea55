// Switching between two stacks of one OS thread.
//
// A Context is the saved state of a suspended fiber. switch_context saves the caller and resumes
// another fiber; it returns when something switches back. Only callee-saved registers are kept,
// which is all that the calling convention lets the compiler rely on across a call. The floating
// point control word is not switched: no kernel changes it.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(DSA_SIMT_UCONTEXT)

// The symbol is local to each translation unit, so that several may include this header.
#if defined(__x86_64__)
asm(R"(
    .pushsection .text
    .p2align 4
dsa_simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .popsection
)");
#else
asm(R"(
    .pushsection .text
    .p2align 4
dsa_simt_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    ldr x9, [x1]
    mov sp, x9
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .popsection
)");
#endif

namespace dsa::simt {

struct Context {
  void* stack_pointer;
};

extern "C" __attribute__((visibility("hidden"))) void dsa_simt_switch(Context* save, const Context* resume);

inline void switch_context(Context& save, const Context& resume) { dsa_simt_switch(&save, &resume); }

// Makes a context that runs entry() on the stack that ends at `top` (16-byte aligned).
inline void init_context(Context& context, unsigned char* top, std::size_t, void (*entry)()) {
  auto* words = reinterpret_cast<std::uintptr_t*>(top);
#if defined(__x86_64__)
  // From the top: a null return address for entry, entry itself, six zeroed registers.
  constexpr int saved = 8;
  words -= saved;
  for (int i = 0; i < saved; ++i) words[i] = 0;
  words[6] = reinterpret_cast<std::uintptr_t>(entry);
#else
  constexpr int saved = 20;
  words -= saved;
  for (int i = 0; i < saved; ++i) words[i] = 0;
  words[11] = reinterpret_cast<std::uintptr_t>(entry);
#endif
  context.stack_pointer = words;
}

}  // namespace dsa::simt

#else  // Other processors and object formats: the portable, slower library calls.

#include <ucontext.h>

namespace dsa::simt {

struct Context {
  ucontext_t state;
};

inline void switch_context(Context& save, const Context& resume) { swapcontext(&save.state, &resume.state); }

inline void init_context(Context& context, unsigned char* top, std::size_t size, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = top - size;
  context.state.uc_stack.ss_size = size;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

}  // namespace dsa::simt

#endif
