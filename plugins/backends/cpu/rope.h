/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_ROPE_H
#define TT_CPU_ROPE_H
#include <stdbool.h>
#include <stddef.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

/* Rotary positions (rope.c): which elements of a head are rotated, and by what angle. */
typedef struct cpu_rope {
    /* radians per position of each pair, padded with zeros to a whole vector */
    const double *inv_freq;
    double factor; /* multiplies cos and sin */
    int64_t head_dim, pairs;
    bool interleaved; /* pairs are (2 j, 2 j + 1), otherwise (j, j + pairs) */
    bool inverse;
} cpu_rope;

/* memory has cpu_rope_bytes() bytes; the frequencies are stored there. */
size_t cpu_rope_bytes(const tt_attrs_rope *at);
tt_status cpu_rope_make(cpu_rope *r, const tt_attrs_rope *at, void *memory, tt_error *err);

#endif
