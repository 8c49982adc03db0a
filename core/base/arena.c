/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reserve.h"
#include "internal.h"
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#define RED_ZONE 16 /* bytes after an allocation, so that the sanitizer finds an overrun */
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define RED_ZONE 0
#endif

#define ALIGN 16
#define FIRST_CHUNK ((size_t)4096)
#define LARGEST_CHUNK ((size_t)1 << 20)

typedef struct chunk {
    struct chunk *next;
    size_t size, used; /* of the bytes after this header */
} chunk;
#define HEADER ((sizeof(chunk) + ALIGN - 1) / ALIGN * ALIGN)

typedef struct cleanup {
    struct cleanup *next;
    void (*fn)(void *);
    void *arg;
} cleanup;

struct tt_arena {
    chunk *chunks; /* allocations come from the first one */
    cleanup *cleanups;
    size_t next_size, used;
};

tt_arena *tt_arena_new(void)
{
    tt_arena *a = tt_reserve_calloc(1, sizeof *a);
    if (!a)
        tt_out_of_memory(sizeof *a, "tt_arena_new");
    a->next_size = FIRST_CHUNK;
    return a;
}

void tt_arena_free(tt_arena *a)
{
    if (!a)
        return;
    while (a->cleanups) { /* a cleanup may add another */
        cleanup *c = a->cleanups;
        a->cleanups = c->next;
        c->fn(c->arg);
    }
    for (chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        UNPOISON((char *)c + HEADER, c->size);
        free(c);
    }
    free(a);
}

static chunk *chunk_new(size_t size)
{
    chunk *c = size < SIZE_MAX - HEADER ? tt_reserve_calloc(1, HEADER + size) : NULL;
    if (!c)
        tt_out_of_memory(size, "tt_arena_alloc");
    c->size = size;
    POISON((char *)c + HEADER, size);
    return c;
}

void *tt_arena_alloc(tt_arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        tt_out_of_memory(size, "tt_arena_alloc");
    size_t step = (TT_MAXV(size, (size_t)1) + ALIGN - 1) / ALIGN * ALIGN + RED_ZONE;
    chunk *c = a->chunks;
    if (!c || c->size - c->used < step) {
        bool alone =
            step > a->next_size / 2; /* a large one gets its own chunk, behind the current one */
        c = chunk_new(alone ? step : a->next_size);
        if (alone && a->chunks) {
            c->next = a->chunks->next;
            a->chunks->next = c;
        } else {
            c->next = a->chunks;
            a->chunks = c;
        }
        if (!alone)
            a->next_size = TT_MIN(a->next_size * 2, LARGEST_CHUNK);
    }
    char *p = (char *)c + HEADER + c->used;
    c->used += step;
    a->used += step;
    UNPOISON(p, size);
    return p;
}

void *tt_arena_array(tt_arena *a, size_t n, size_t elem)
{
    size_t size;
    if (__builtin_mul_overflow(n, elem, &size))
        tt_out_of_memory(SIZE_MAX, "tt_arena_array");
    return tt_arena_alloc(a, size);
}

void *tt_arena_dup(tt_arena *a, const void *p, size_t size)
{
    void *q = tt_arena_alloc(a, size);
    if (size)
        memcpy(q, p, size);
    return q;
}

char *tt_arena_str(tt_arena *a, const char *s)
{
    return s ? tt_arena_strn(a, s, strlen(s)) : NULL;
}

char *tt_arena_strn(tt_arena *a, const char *s, size_t n)
{
    if (n == SIZE_MAX)
        tt_out_of_memory(n, "tt_arena_strn");
    char *q = tt_arena_alloc(a, n + 1); /* zeroed, hence NUL-terminated */
    if (n)
        memcpy(q, s, n);
    return q;
}

char *tt_arena_vprintf(tt_arena *a, const char *fmt, va_list ap)
{
    char text[256]; /* most texts fit, and are then formatted once */
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(text, sizeof text, fmt, again);
    va_end(again);
    TT_ASSERT(n >= 0);
    if ((size_t)n < sizeof text)
        return tt_arena_strn(a, text, (size_t)n);
    char *s = tt_arena_alloc(a, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    return s;
}

char *tt_arena_printf(tt_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *s = tt_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return s;
}

void tt_arena_cleanup(tt_arena *a, void (*fn)(void *), void *arg)
{
    cleanup *c = tt_arena_alloc(a, sizeof *c);
    c->fn = fn;
    c->arg = arg;
    c->next = a->cleanups;
    a->cleanups = c;
}

size_t tt_arena_used(const tt_arena *a)
{
    return a->used;
}
