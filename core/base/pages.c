/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pages.h"
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

static void *map_pages(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *tt_pages_new(size_t bytes)
{
    if (bytes < HUGE_PAGE)
        return map_pages(bytes);
    if (bytes > SIZE_MAX - HUGE_PAGE) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *p = map_pages(bytes + HUGE_PAGE);
    if (!p)
        return NULL;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE,
                 end = (before + bytes + page - 1) / page * page;
    if (before)
        munmap(p, before);
    if (end < bytes + HUGE_PAGE)
        munmap(p + end, bytes + HUGE_PAGE - end);
#ifdef MADV_HUGEPAGE
    (void)madvise(p + before, bytes, MADV_HUGEPAGE);
#endif
    return p + before;
}

void tt_pages_free(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}
