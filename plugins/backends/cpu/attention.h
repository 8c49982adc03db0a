/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CPU_ATTENTION_H
#define TT_CPU_ATTENTION_H
#include "cpu.h"

/* What attention, its backward and attention_cached share: shapes, the keys' positions, copies of
 * rows. */
typedef struct cpu_attn_shape {
    cpu_attn a;
    const cpu_isa *isa;
    const tt_tensor *k, *v;
    const tt_tensor *bias;        /* [heads, n]; NULL: none */
    int64_t heads, kv_heads;      /* on this rank */
    int64_t head_begin, kv_begin; /* the first heads on this rank, as global indices */
    int64_t group;                /* query heads per kv head */
} cpu_attn_shape;

/* local kv head of a local query head */
int64_t cpu_attn_kv_head(const cpu_attn_shape *s, int64_t head);
void cpu_attn_shape_of(const cpu_isa *isa, const tt_kernel_call *c, const tt_tensor *q,
                       const tt_tensor *k, const tt_tensor *v, cpu_attn_shape *out);
tt_status cpu_attn_check(const cpu_attn_shape *s, tt_error *err);
size_t cpu_attn_keys_bytes(const cpu_attn_shape *s);
void cpu_attn_keys(cpu_attn_shape *s, const int32_t *pos, const int32_t *seg, char **scratch);
/* `a` of a local query head: with its bias */
cpu_attn cpu_attn_of_head(const cpu_attn_shape *s, int64_t head);
/* attention's optional operand sinks, [heads], at index 7; NULL: none */
const float *cpu_attn_sinks(const tt_kernel_call *c);
void cpu_attn_copy(const cpu_attn_shape *s, const tt_tensor *x, int64_t head, int64_t d,
                   int64_t d_pad, int64_t j, int64_t n, float *dst);

#endif
