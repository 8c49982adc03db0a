/* SPDX-License-Identifier: Apache-2.0 */
#include "fiber.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { N_FIBERS = 1024 + 32, STACK = 128 << 10, GUARD = 4096 };

static char *stacks;
static emu_fiber fibers[N_FIBERS], *idle;
static int n_made;

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl emu_switch\n"
        ".hidden emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch, .-emu_switch\n");
/* Six registers, then the address that emu_switch returns to, which finds the stack as after a call. */
static void *first_sp(char *top)
{
    void **sp = reinterpret_cast<void **>(top);
    *--sp = NULL;
    *--sp = reinterpret_cast<void *>(emu_fiber_main);
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    return sp;
}
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl emu_switch\n"
        ".hidden emu_switch\n"
        ".type emu_switch, %function\n"
        "emu_switch:\n"
        "    stp x29, x30, [sp, -160]!\n"
        "    stp x19, x20, [sp, 16]\n"
        "    stp x21, x22, [sp, 32]\n"
        "    stp x23, x24, [sp, 48]\n"
        "    stp x25, x26, [sp, 64]\n"
        "    stp x27, x28, [sp, 80]\n"
        "    stp d8, d9, [sp, 96]\n"
        "    stp d10, d11, [sp, 112]\n"
        "    stp d12, d13, [sp, 128]\n"
        "    stp d14, d15, [sp, 144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, 16]\n"
        "    ldp x21, x22, [sp, 32]\n"
        "    ldp x23, x24, [sp, 48]\n"
        "    ldp x25, x26, [sp, 64]\n"
        "    ldp x27, x28, [sp, 80]\n"
        "    ldp d8, d9, [sp, 96]\n"
        "    ldp d10, d11, [sp, 112]\n"
        "    ldp d12, d13, [sp, 128]\n"
        "    ldp d14, d15, [sp, 144]\n"
        "    ldp x29, x30, [sp], 160\n"
        "    ret\n"
        ".size emu_switch, .-emu_switch\n");
static void *first_sp(char *top)
{
    void **sp = reinterpret_cast<void **>(top - 160);
    for (int i = 0; i < 20; i++)
        sp[i] = NULL;
    sp[1] = reinterpret_cast<void *>(emu_fiber_main);
    return sp;
}
#else
#error "the emulator has fibers for x86-64 and aarch64"
#endif

emu_fiber *emu_fiber_take(void)
{
    emu_fiber *f = idle;
    if (f) {
        idle = f->next;
        return f;
    }
    if (!stacks) {
        stacks = static_cast<char *>(mmap(NULL, (size_t)N_FIBERS * (STACK + GUARD), PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (stacks == MAP_FAILED) {
            fputs("emulator: no memory for the stacks of fibers\n", stderr);
            abort();
        }
    }
    char *low = stacks + (size_t)n_made * (STACK + GUARD) + GUARD;
    if (n_made == N_FIBERS || mprotect(low, STACK, PROT_READ | PROT_WRITE)) {
        fputs("emulator: no more fibers\n", stderr);
        abort();
    }
    f = &fibers[n_made++];
    f->sp = first_sp(low + STACK);
    return f;
}

void emu_fiber_give(emu_fiber *f)
{
    f->next = idle;
    idle = f;
}

bool emu_fiber_overflow(const void *p)
{
    const char *at = static_cast<const char *>(p);
    return stacks && at >= stacks && at < stacks + (size_t)n_made * (STACK + GUARD) &&
           (size_t)(at - stacks) % (STACK + GUARD) < GUARD;
}
