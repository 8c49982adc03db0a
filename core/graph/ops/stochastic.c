/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <string.h>
#include <ttrun/random.h>

/* Stochastic rounding of f32 to bf16 (R20): stochastic_round rounds x by a number u in [0,1), and
 * keyed_uniform makes u, a hash of one key per row and one per column. random_keys makes the keys:
 * they depend on the seed, the step, a stream and the global index. Keys are small, so a pointwise
 * program that rounds reads almost no more memory than one that does not. */

static tt_status infer_random_keys(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_random_keys *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 0, 0, err));
    if (a->dims.n_dims < 1 || a->dims.n_dims > TT_MAX_DIMS)
        return tt_infer_fail(q, err, "a value of keys has 1 to %d dims, not %d", TT_MAX_DIMS,
                             a->dims.n_dims);
    if (!a->streams || a->n_streams != a->dims.dims[0].size)
        return tt_infer_fail(q, err, "%lld streams for %lld rows of dim 0; give one for each",
                             (long long)a->n_streams, (long long)a->dims.dims[0].size);
    out[0] = tt_type_make(TT_F32, a->dims.dims, a->dims.n_dims);
    return TT_OK;
}

static void rule_random_keys(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    tt_rule_add(&t, "->");
    tt_rule_dims(&t, ((const tt_attrs_random_keys *)q->attrs)->dims.n_dims, -1, NULL);
}

static tt_status infer_f32(const tt_shape_query *q, tt_dtype to, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    for (int i = 0; i < 2; i++)
        if (q->in[i]->dtype != TT_F32)
            return tt_infer_fail(q, err, "operand %d must be f32", i);
    TT_TRY(tt_broadcast_type(q, false, out, err));
    out[0].dtype = to;
    return TT_OK;
}

static tt_status infer_keyed_uniform(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_f32(q, TT_F32, out, err);
}

static tt_status infer_stochastic_round(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    return infer_f32(q, TT_BF16, out, err);
}

static void rule_both(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_broadcast(q, 1, rule, size);
}

static tt_cost cost_random_keys(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 60.0 * tt_numel(&out[0]));
}

static tt_cost cost_few(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 8.0 * tt_numel(&out[0]));
}

/* As for a cast: the rounding is not differentiated. */
static void vjp_stochastic_round(tt_builder *b, tt_vjp *c)
{
    if (c->want[0])
        c->din[0] = tt_vjp_fit(b, tt_cast(b, c->dout[0], TT_F32), c->in[0]);
}

static void print_random_keys(const void *attrs, char *text, size_t size)
{
    const tt_attrs_random_keys *a = attrs;
    snprintf(text, size, "streams=%lld first=%016llx", (long long)a->n_streams,
             a->n_streams ? (unsigned long long)a->streams[0] : 0);
}

const tt_op_def tt_op_random_keys = {
    .struct_size = sizeof(tt_op_def),
    .name = "random_keys",
    .operands = "→ dims, f32",
    .attributes = "tt_attrs_random_keys",
    .doc = "keys for keyed_uniform, f32 whose bits are random; each depends on the seed, the step, "
           "the stream of its row of dim 0, and its global index in the other dims",
    .flags = TT_OP_NO_GRADIENT | TT_OP_BY_PLACE,
    .attrs_size = sizeof(tt_attrs_random_keys),
    .n_out = 1,
    .infer = infer_random_keys,
    .rule_for = rule_random_keys,
    .cost = cost_random_keys,
    .print_attrs = print_random_keys};
const tt_op_def tt_op_keyed_uniform = {
    .struct_size = sizeof(tt_op_def),
    .name = "keyed_uniform",
    .operands = "a, b f32 → as both, f32",
    .doc = "a multiple of 2^-16 in [0,1), uniform: a hash of the bits of a and b",
    .flags = TT_OP_POINTWISE | TT_OP_NO_GRADIENT,
    .n_out = 1,
    .infer = infer_keyed_uniform,
    .rule_for = rule_both,
    .cost = cost_few};
const tt_op_def tt_op_stochastic_round = {
    .struct_size = sizeof(tt_op_def),
    .name = "stochastic_round",
    .operands = "x f32, u f32 in [0,1) → as both, bf16",
    .doc = "one of the two bf16 next to x: the one away from zero if u is at least 1 - the "
           "fraction of the way there; a finite x stays finite",
    .flags = TT_OP_POINTWISE,
    .n_out = 1,
    .infer = infer_stochastic_round,
    .rule_for = rule_both,
    .vjp = vjp_stochastic_round,
    .cost = cost_few};

tt_value *tt_stochastic_round(tt_builder *b, tt_value *x, tt_value *u)
{
    return tt_emit2(b, "stochastic_round", x, u, NULL);
}

/* ---- the same for kernels on the host ---- */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint64_t hash_numbers(uint64_t x, uint64_t y, int n, uint64_t seed)
{
    uint8_t bytes[16]; /* little-endian on any machine */
    for (int i = 0; i < 16; i++)
        bytes[i] = (uint8_t)((i < 8 ? x : y) >> 8 * (i % 8));
    return tt_hash64(bytes, (size_t)(8 * n), seed);
}

/* Sign, 7 bits of the exponent and the fraction are random: neither infinite nor subnormal, so that
 * every backend carries all 31 bits through a register. */
float tt_random_key_at(uint64_t seed, int64_t step, uint64_t stream, uint64_t index)
{
    const uint64_t key = hash_numbers((uint64_t)step, stream, 2, seed);
    const uint64_t h = hash_numbers(index, 0, 1, key);
    return float_of((uint32_t)(h & 0x807fffff) | (uint32_t)(64 + (h >> 32 & 127)) << 23);
}

/* Two rounds of multiply and xor-shift, with the constants of C. Wellons' search for 32-bit hashes
 * (github.com/skeeto/hash-prospector). */
float tt_keyed_uniform(float a, float b)
{
    uint32_t x = bits_of(a) + bits_of(b);
    x = (x ^ x >> 16) * 0x21f0aaad;
    x = (x ^ x >> 15) * 0xd35a2d97;
    return (float)((x ^ x >> 15) >> 16) * 0x1p-16f;
}

/* The bits below bf16's are a fraction of the distance to the next bf16 away from zero; a random
 * fraction added to them carries over with just that probability. */
float tt_stochastic_rounded(float x, float u)
{
    const uint32_t bits = bits_of(x), size = bits & 0x7fffffff;
    uint32_t up = (size + (uint32_t)(u * 65536)) & 0xffff0000;
    if (size >= 0x7f800000) /* infinity and NaN stay */
        return size > 0x7f800000 ? float_of((bits | 0x400000) & 0xffff0000) : x;
    if (up >= 0x7f800000) /* no finite bf16 is larger */
        up = 0x7f7f0000;
    return float_of((bits & 0x80000000) | up);
}
