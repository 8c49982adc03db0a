/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_HEAP_H
#define TT_TESTS_HEAP_H
#include <stdlib.h>
#ifdef __GLIBC__
#include <limits.h>
#include <malloc.h>

/* For programs that make and free many plans: freed memory stays with the process, instead of a page fault per 4 KiB of the next one. */
__attribute__((constructor)) static void keep_heap(void)
{
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most there is */
    (void)mallopt(M_TOP_PAD, 4 << 20);
}
#endif

#endif
