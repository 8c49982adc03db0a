/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers of emulator.cpp: stacks of 128 KiB between pages that nobody may touch. */
#pragma once

struct emu_fiber {
    void *sp; /* where it stopped */
    emu_fiber *next;
};
/* A fiber that will call emu_fiber_main, or that waits in it for its next thread. */
emu_fiber *emu_fiber_take(void);
void emu_fiber_give(emu_fiber *f);
void emu_fiber_main(void);
/* Is p in one of the pages behind the stacks' ends? */
bool emu_fiber_overflow(const void *p);
/* Saves the registers that a call keeps and the stack in *save, goes on where `to` was saved. */
extern "C" void emu_switch(void **save, void *to);
