/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_ROPE_H
#define TT_CPU_ROPE_H
#include <stdbool.h>
#include <stddef.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

/* Rotary positions: which elements of a head are turned, and how far (rope.c). */
typedef struct cpu_rope {
    const double *inv_freq; /* radians a position, of each pair; zeros up to a whole vector */
    double factor;          /* of cos and sin */
    int64_t head_dim, pairs;
    bool interleaved; /* pairs (2 j, 2 j + 1), else (j, j + pairs) */
    bool inverse;
} cpu_rope;

/* memory: cpu_rope_bytes, of the frequencies. */
size_t cpu_rope_bytes(const tt_attrs_rope *at);
tt_status cpu_rope_make(cpu_rope *r, const tt_attrs_rope *at, void *memory, tt_error *err);

#endif
