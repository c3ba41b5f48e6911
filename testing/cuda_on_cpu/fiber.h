// A fiber: a stack, and a switch from one stack to another. Scheduling is not done here.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(GC_UCONTEXT)

#include <ucontext.h>

#elif defined(__x86_64__)

// Saves the registers that the System V ABI preserves on the old stack; `ret` continues on the new one.
asm(R"(
.text
.globl gc_switch_stack
.type gc_switch_stack, @function
gc_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gc_switch_stack, .-gc_switch_stack
)");
constexpr int GC_ENTRY_WORD = 6, GC_FRAME_WORDS = 8;  // saved registers, return address, 0

#elif defined(__aarch64__)

asm(R"(
.text
.globl gc_switch_stack
.type gc_switch_stack, %function
gc_switch_stack:
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
  mov x2, sp
  str x2, [x0]
  mov sp, x1
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
.size gc_switch_stack, .-gc_switch_stack
)");
constexpr int GC_ENTRY_WORD = 11, GC_FRAME_WORDS = 20;

#else

#include <ucontext.h>
#define GC_UCONTEXT

#endif

#ifdef GC_TSAN
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_set_fiber_name(void* fiber, const char* name);
}
#endif
#ifdef GC_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom_old, size_t* size_old);
}
#endif

#ifndef GC_UCONTEXT
extern "C" void gc_switch_stack(void** save_here, void* continue_there);
#endif

struct Fiber {
#ifdef GC_UCONTEXT
  ucontext_t context;
#else
  void* stack_pointer = nullptr;
#endif
  const void* stack_bottom = nullptr;  // of the OS thread's stack; known after the first switch away from it
  size_t stack_bytes = 0;
#ifdef GC_TSAN
  void* tsan = nullptr;
#endif
#ifdef GC_ASAN
  void* fake_stack = nullptr;
#endif

  // The stack that is running now.
  void adopt_running_stack() {
#ifdef GC_TSAN
    tsan = __tsan_get_current_fiber();
#endif
  }

  // Prepares a stack with an unmapped page below it; the first switch to it calls `entry`.
  bool create(void (*entry)(), size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* mapping = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapping == MAP_FAILED || mprotect(mapping, page, PROT_NONE) != 0) return false;
    stack_bottom = static_cast<char*>(mapping) + page;
    stack_bytes = bytes;
#ifdef GC_UCONTEXT
    getcontext(&context);
    context.uc_stack.ss_sp = const_cast<void*>(stack_bottom);
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
#else
    uintptr_t* top = reinterpret_cast<uintptr_t*>(static_cast<char*>(mapping) + page + bytes);
    uintptr_t* frame = top - GC_FRAME_WORDS;
    frame[GC_ENTRY_WORD] = reinterpret_cast<uintptr_t>(entry);
    stack_pointer = frame;
#endif
#ifdef GC_TSAN
    tsan = __tsan_create_fiber(0);
#endif
    return true;
  }
};

constexpr unsigned GC_TSAN_NO_SYNC = 1;  // a switch is no synchronisation; only barriers are

inline void switch_fiber(Fiber& from, Fiber& to) {
#ifdef GC_TSAN
  __tsan_switch_to_fiber(to.tsan, GC_TSAN_NO_SYNC);
#endif
#ifdef GC_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
#ifdef GC_UCONTEXT
  swapcontext(&from.context, &to.context);
#else
  gc_switch_stack(&from.stack_pointer, to.stack_pointer);
#endif
#ifdef GC_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}
