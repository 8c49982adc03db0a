/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_LOOP_COUNT_H
#define TT_TESTS_LOOP_COUNT_H
#include <stdint.h>
#include <string.h>

/* Counts the work of one source file, so that a test can say that it grows with the input and not with its square,
 * without a clock: the passes of all its loops, and what it hands to the C library, a pass per 16 bytes or key. Include
 * this after all other headers and before the source itself; its functions then take the place of the library's:
 *
 *     #include "config/config.h"
 *
 *     #include "loop_count.h"
 *
 *     #include "config/json.c"
 *
 *     #include "loop_count_end.h"
 *
 *     loop_passes = 0;
 *     tt_json_parse(…);
 *     assert_true(loop_passes < 30 * n_bytes); */

static int64_t loop_passes;

static inline int loop_pass(size_t n)
{
    loop_passes += (int64_t)n;
    return 0;
}

static inline int counted_strcmp(const char *a, const char *b)
{
    loop_pass(1 + strlen(b) / 16);
    return strcmp(a, b);
}

static inline void *counted_memcpy(void *to, const void *from, size_t n)
{
    loop_pass(1 + n / 16);
    return memcpy(to, from, n);
}

static inline void *counted_memmove(void *to, const void *from, size_t n)
{
    loop_pass(1 + n / 16);
    return memmove(to, from, n);
}

static inline void *counted_memset(void *to, int c, size_t n)
{
    loop_pass(1 + n / 16);
    return memset(to, c, n);
}

#undef skip /* a macro of cmocka.h; sources have functions of that name */
/* if with else: an else behind the loop keeps its own if */
/* clang-format off */
#define for(...) for (__VA_ARGS__) if (loop_pass(1)) {} else
#define while(...) while (loop_pass(1), (__VA_ARGS__))
/* clang-format on */
#define strcmp(...) counted_strcmp(__VA_ARGS__)
#define memcpy(...) counted_memcpy(__VA_ARGS__)
#define memmove(...) counted_memmove(__VA_ARGS__)
#define memset(...) counted_memset(__VA_ARGS__)

#endif
