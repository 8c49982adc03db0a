/* SPDX-License-Identifier: Apache-2.0 */
/* emulator.cpp's functions for the fake driver, and warp.cpp's for emulator.cpp. */
#pragma once
#ifndef EMU_CORE
#define EMU_CORE
#endif
#include "emulator.h"
#include <stddef.h>
#include <stdint.h>

/* Runs all blocks. size: threads of a block, at most 1024; shared: at most 256 KiB; seed 0: warps and blocks in order. One
 * launch at a time per process. A fault of the kernel prints what and where, and aborts. */
void emu_launch(const emu_kernel *k, emu_block **now, void **arguments, emu_dim3 grid,
                emu_dim3 size, size_t shared, uint64_t seed);
/* The kernel, block and thread that run now, as text; NULL: none. */
const char *emu_running(char *text, size_t size);
/* Is p in the pages before and behind shared memory? */
bool emu_outside_shared(const void *p);

/* warp.cpp: the warp functions, for the lanes of one warp. */
void emu_do_shuffle(emu_lane *const *lane);
void emu_do_ballot(emu_lane *const *lane);
void emu_do_ldmatrix(emu_lane *const *lane);
void emu_do_mma(emu_lane *const *lane);
