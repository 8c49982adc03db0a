/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_HALF_H
#define TT_CPU_HALF_H
#include "gemm.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/backend.h>

/* Products of bf16 matrices (half_gemm.c), and what an instruction set provides for them. */

/* Products of bf16 matrices, summed in f32, one panel of rows or columns at a time. */
typedef struct cpu_half {
    int mr, nr, kr; /* height and width of a tile; k is padded to kr */
    size_t size;    /* bytes of a packed element */
    /* Packs one panel of `rows` rows (with swapped strides: columns) × k into dst [k, mr or nr]. */
    void (*pack)(const uint16_t *p, int64_t rs, int64_t cs, int64_t rows, int64_t k, bool left,
                 void *dst);
    void (*tile)(int64_t k, const void *a, const void *b, float *c); /* c [mr, nr] = A B */
    void (*begin)(void), (*end)(void); /* called around each thread's tiles; NULL: nothing to do */
    double (*peak)(double seconds);    /* flops per second; NULL: as for f32 */
} cpu_half;

extern const cpu_half cpu_half_amx;
bool cpu_amx_open(void);                     /* is AMX present, and may this process use it? */
void cpu_amx_begin(void), cpu_amx_end(void); /* called around each thread's tiles */

/* C = A B, or C += A B. Element (r, c) of A is at a[r * ars + c * acs]; C is f32 (wide) or bf16. */
typedef struct cpu_half_call {
    int64_t m, n, k;
    const uint16_t *a, *b;
    int64_t ars, acs, brs, bcs;
    void *c;
    int64_t ldc;
    bool wide, add;
    const cpu_done *done; /* NULL: no epilogue */
    tt_checks *checks;    /* NULL: the product is not checked */
} cpu_half_call;
struct cpu_backend;
void cpu_half_gemm(const struct cpu_backend *self, tt_pool *pool, const cpu_half_call *g,
                   void *scratch);
size_t cpu_half_scratch(int64_t m, int64_t n, int64_t k, bool checked);

#endif
