/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_BATTERY_H
#define TT_TESTS_OPS_BATTERY_H
#include "battery_rows.h"
#include <fnmatch.h>

/* Every kernel of a backend against the reference on random shapes: odd, one, empty, broadcast, boxes
 * inside a larger tensor. Also: a kernel that accumulates adds; a kernel that works in place, and a
 * second run (of the host with two threads, of a device perhaps in another order), compute the same
 * bits.
 *   TT_OPS=rms_norm,soft*   only these ops
 *   TT_OPS_TRIALS=N         shapes per row */

static inline bool battery_chosen(const char *op)
{
    const char *p = getenv("TT_OPS");
    char pattern[128];
    bool any = p == NULL || *p == '\0';
    while (!any && *p != '\0') {
        const size_t n = strcspn(p, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, p);
        any = fnmatch(pattern, op, 0) == 0;
        p += n + (p[n] == ',');
    }
    return any;
}

/* The kernel under test. NULL: the op runs as its decomposition. */
static inline const tt_kernel *battery_kernel(const char *op, const tt_op_def *def)
{
    const tt_kernel *k = s.it.vt->kernel(s.it.self[0], op);
    if (k != NULL || def->decompose != NULL)
        return k;
    fail_msg("%s has no %s, nor has it a decomposition", s.it.name, op);
    return NULL;
}

static inline void compare(const row *r, int k, const tt_tensor *want, const tt_tensor *got,
                           const tt_tensor *before)
{
    double largest = 1.0, tolerance = r->tolerance + (want->dtype == TT_BF16 ? 1.0 / 128.0 : 0.0) +
                                      (before != NULL ? 1e-6 : 0.0);
    int64_t n = tt_tensor_numel(want);
    for (int64_t i = 0; i < n; i++)
        if (isfinite(get(want, i)))
            largest = fmax(largest, fabs(get(want, i)));
    for (int64_t i = 0; i < n; i++) {
        double a = get(want, i) + (before != NULL ? get(before, i) : 0.0), b = get(got, i);
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * largest)
            continue;
        fail_msg(
            "%s(%s) %s%s: output %d element %lld is %.9g, the reference has %.9g (largest %.3g)",
            r->op, r->ins, tt_dtype_name(s.dtype), before != NULL ? " accumulated" : "", k,
            (long long)i, b, a, largest);
    }
}

static inline bool is_attention_bwd(const row *r)
{
    return strcmp(r->op, "attention_bwd") == 0 || strcmp(r->op, "attention_bias_bwd") == 0;
}

/* attention_bwd needs the out and lse that attention computes from the same q, k, v and bias. */
static inline void make_attention_true(const row *r, tt_tensor *in)
{
    if (!is_attention_bwd(r))
        return;
    const tt_attrs_attention *at = r->attrs;
    const int more = (at->bias ? 1 : 0) + tt_attention_drops(at); /* bias, token_index */
    tt_tensor fin[9] = {in[0], in[1], in[2], in[6], in[7], in[8], in[9]};
    for (int i = 0; i < more; i++)
        fin[7 + i] = in[10 + i];
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = "attention",
                        .in = fin,
                        .n_in = 7 + more,
                        .n_out = 2,
                        .attrs = r->attrs,
                        .seed = &(const uint64_t){5},
                        .step = &(const double){2}};
    subject_run(&s.reference, 0, s.reference.vt->kernel(NULL, "attention"), &c, &in[3]);
}

static inline void add_bits(const row *r, const tt_tensor *t)
{
    uint64_t *h = &s.bits[r - rows];
    for (size_t i = 0; i < subject_bytes(t); i++)
        *h = (*h ^ ((const unsigned char *)t->data)[i]) * UINT64_C(0x100000001b3);
}

static inline bool check_row(const row *r, const tt_op_table *table)
{
    tt_arena *a = tt_arena_new();
    tt_type types[TT_MAX_INS], outs[TT_MAX_OUTS];
    const tt_type *type_p[TT_MAX_INS];
    tt_tensor in[TT_MAX_INS], out[3][TT_MAX_OUTS];
    tt_error err = {0};
    const tt_op_def *def = tt_op_find(table, r->op);
    const tt_kernel *k[2] = {s.reference.vt->kernel(NULL, r->op), NULL};
    int n = 0;
    bool ran = false;
    memset(types, 0, sizeof types);
    memset(outs, 0, sizeof outs);
    if (def == NULL || k[0] == NULL)
        fail_msg("%s: no %s", r->op, def == NULL ? "op" : "kernel");
    k[1] = battery_kernel(r->op, def);
    if (k[1] == NULL) {
        tt_arena_free(a);
        return true;
    }
    for (const char *p = r->ins; *p != '\0'; n++) {
        parse_operand(&p, a, &types[n], &in[n]);
        type_p[n] = &types[n];
        if (is_attention_bwd(r) && n == 4) {
            types[n].dtype = TT_F32; /* lse */
            in[n] = tensor_of(a, &types[n]);
        }
    }
    tt_shape_query q = {sizeof q, n, type_p, r->attrs, r->op};
    if (def->infer(&q, outs, &err) != TT_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 3; i++)
        for (int o = 0; o < def->n_out; o++) {
            out[i][o] = tensor_of(a, &outs[o]);
            if (strcmp(r->op, "embedding_dw") == 0)
                out[i][o].begin[0] = 5;
            memset(out[i][o].data, 0x5a, subject_bytes(&out[i][o]));
        }
    make_attention_true(r, in);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = r->op,
                        .in = in,
                        .n_in = n,
                        .n_out = def->n_out,
                        .attrs = r->attrs,
                        .seed = &(const uint64_t){5},
                        .step = &(const double){2}};
    subject_run(&s.reference, 0, k[0], &c, out[0]);
    const uint64_t places = s.it.random; /* a library may choose its algorithm by addresses */
    ran = subject_run(&s.it, 0, k[1], &c, out[1]);
    s.it.random = places;
    ran = ran && subject_run(&s.it, 1, k[1], &c, out[2]);
    for (int o = 0; ran && o < def->n_out; o++) {
        compare(r, o, &out[0][o], &out[1][o], NULL);
        if (memcmp(out[1][o].data, out[2][o].data, subject_bytes(&out[1][o])) != 0)
            fail_msg(
                "%s(%s), t %lld d %lld i %lld o %lld b %lld%s: the second run gives other bits",
                r->op, r->ins, (long long)s.size['t'], (long long)s.size['d'],
                (long long)s.size['i'], (long long)s.size['o'], (long long)s.size['b'],
                s.it.tight ? ", tight" : "");
        if (s.keeps_bits)
            add_bits(r, &out[1][o]);
    }
    c.accumulate = 1;
    if (ran && k[1]->can_accumulate && out[0][0].dtype != TT_I32 &&
        subject_ask(&s.it, 1, k[1], &c) >= 0) {
        fill(&out[2][0], "f");
        tt_tensor before = tensor_of(a, &outs[0]);
        memcpy(before.data, out[2][0].data, subject_bytes(&before));
        subject_run(&s.it, 1, k[1], &c, out[2]);
        compare(r, 0, &out[0][0], &out[2][0], &before);
    }
    c.accumulate = 0;
    for (int i = 0; ran && i < n; i++) {
        if (!(k[1]->in_place >> i & 1) || subject_bytes(&in[i]) != subject_bytes(&out[2][0]) ||
            in[i].dtype != out[2][0].dtype)
            continue;
        tt_tensor mine[TT_MAX_INS];
        memcpy(mine, in, sizeof mine);
        memcpy(out[2][0].data, in[i].data, subject_bytes(&in[i]));
        mine[i].data = out[2][0].data;
        c.in = mine;
        subject_run(&s.it, 1, k[1], &c, out[2]);
        c.in = in;
        if (memcmp(out[1][0].data, out[2][0].data, subject_bytes(&out[1][0])) != 0)
            fail_msg("%s(%s): in place of input %d gives other bits", r->op, r->ins, i);
    }
    tt_arena_free(a);
    return ran;
}

/* must_run: the backend may refuse no row in this dtype. */
static inline void check_all(tt_dtype dtype, bool must_run)
{
    tt_op_table table = {0};
    table.core = tt_core_ops(&table.n_core);
    s.dtype = dtype;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        if (!battery_chosen(rows[i].op))
            continue;
        /* a row has the same cases whatever came before it */
        s.random = 42 + i * UINT64_C(0x9e3779b97f4a7c15);
        s.it.random = s.random + 35;
        for (int trial = 0; trial < s.trials; trial++) {
            draw_sizes(trial);
            s.keeps_bits = trial < s.bits_trials;
            s.it.tight = trial % 2 == 1 && !s.is_strict;
            if (s.takes != NULL && !s.takes(i, trial))
                continue;
            if (!check_row(&rows[i], &table) && must_run)
                fail_msg("%s(%s): not supported in %s", rows[i].op, rows[i].ins,
                         tt_dtype_name(dtype));
        }
    }
}

/* Every op of the core's table is in `rows`; fused has its own test, and so has a product with a
 * program. */
static inline void check_every_op(void)
{
    size_t n;
    const tt_op_def *const *ops = tt_core_ops(&n);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(ops[i]->name, "linear", 6) == 0 && strstr(ops[i]->name, "fused") != NULL)
            continue; /* passes make it for backends that have it */
        bool found = strstr(ops[i]->name, "fused") != NULL;
        if (ops[i]->expand_letters && !ops[i]->expand_letters[0])
            continue; /* it always expands into other ops */
        if (ops[i]->flags & TT_OP_LOCAL)
            continue; /* of a described graph: no backend has it */
        for (size_t k = 0; k < TT_COUNT(rows); k++)
            found |= strcmp(rows[k].op, ops[i]->name) == 0;
        if (!found)
            fail_msg("%s is in no row", ops[i]->name);
        (void)battery_kernel(ops[i]->name, ops[i]);
    }
}

/* config: the backend's, or NULL for its defaults. */
static inline void battery_open(const char *name, const void *config, int trials)
{
    static max_align_t zero[64]; /* zero = the defaults, for any backend's config */
    const char *n = getenv("TT_OPS_TRIALS");
    s.trials = s.bits_trials = n != NULL ? atoi(n) : trials;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        s.bits[i] = UINT64_C(0xcbf29ce484222325);
    subject_open(&s.reference, "reference", zero);
    subject_open(&s.it, name, config != NULL ? config : zero);
}

static inline void battery_close(void)
{
    subject_close(&s.reference);
    subject_close(&s.it);
}

#endif
