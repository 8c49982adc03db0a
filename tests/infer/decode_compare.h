/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_INFER_DECODE_COMPARE_H
#define TT_TESTS_INFER_DECODE_COMPARE_H
#include "infer/decode.h"

/* Decoding compared with computing the whole context again: the logits of every token of several
 * sequences, which arrive in pieces and then one by one, all in one call. Equal bit for bit with
 * our own matrix products and the same instruction set; to 1e-5 with OpenBLAS, whose sums depend on
 * the number of rows. */

typedef struct call {
    int32_t ids[PIECE], pos[PIECE], slot[PIECE], longer[PIECE], pick[PIECE];
    int64_t n, n_pick;
} call;

static inline bool is_longer(const char *input)
{
    return !strncmp(input, TT_INPUT_LONGER, strlen(TT_INPUT_LONGER));
}

static inline tt_status fill_call(void *user, const char *input, int micro, int64_t begin,
                                  int64_t end, int32_t *dst, tt_error *err)
{
    const call *c = user;
    const int32_t *src = !strcmp(input, "pick")  ? c->pick
                         : !strcmp(input, "ids") ? c->ids
                         : !strcmp(input, "pos") ? c->pos
                         : is_longer(input)      ? c->longer
                                                 : c->slot;
    (void)micro;
    (void)err;
    memcpy(dst, src + begin, (size_t)(end - begin) * sizeof *dst);
    return TT_OK;
}

static inline tt_status fill_whole(void *user, const char *input, int micro, int64_t begin,
                                   int64_t end, int32_t *dst, tt_error *err)
{
    const int64_t sequence = *(const int64_t *)user;
    (void)micro;
    (void)err;
    for (int64_t t = begin; t < end; t++)
        dst[t - begin] = !strcmp(input, "ids")   ? token(sequence, t)
                         : !strcmp(input, "pos") ? (int32_t)t
                         : is_longer(input)      ? (int32_t)(sequence % 2)
                                                 : 0;
    return TT_OK;
}

typedef struct want {
    float *logits; /* [SLOTS][LENGTH][vocab] of the whole context */
    int64_t vocab;
    double tolerance; /* 0: every bit */
    const char *name;
    int64_t compared;
} want;

static inline void run_call(program *p, call *c)
{
    tt_error err = {0};
    tt_exec_set_rows(p->rank.exec, c->n, c->n_pick);
    if (tt_exec_micro_batches(p->rank.exec, 1, fill_call, c, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static inline void check_row(const program *p, want *w, int64_t row, int64_t sequence, int64_t pos)
{
    const float *got = (const float *)p->logits.data + row * w->vocab,
                *whole = w->logits + (sequence * LENGTH + pos) * w->vocab;
    double largest = 1;
    for (int64_t i = 0; i < w->vocab; i++)
        largest = fmax(largest, fabs((double)whole[i]));
    for (int64_t i = 0; i < w->vocab; i++)
        if (w->tolerance > 0 ? !(fabs((double)got[i] - (double)whole[i]) <= w->tolerance * largest)
                             : memcmp(&got[i], &whole[i], sizeof *got))
            fail_msg("%s: sequence %lld, token %lld, logit %lld: %.9g, of the whole context %.9g",
                     w->name, (long long)sequence, (long long)pos, (long long)i, (double)got[i],
                     (double)whole[i]);
    w->compared++;
}

static inline void add_token(call *c, int64_t sequence, int64_t pos, int64_t slot, bool pick)
{
    c->ids[c->n] = token(sequence, pos);
    c->pos[c->n] = (int32_t)pos;
    c->slot[c->n] = (int32_t)slot;
    c->longer[c->n] = sequence % 2; /* texts of both kinds side by side */
    if (pick)
        c->pick[c->n_pick++] = (int32_t)c->n;
    c->n++;
}

/* Computes a prompt in pieces, for the logits of the last token of each piece; of sequence 1, of all tokens. */
static inline void prompt(program *p, want *w, int64_t sequence, int64_t slot, int64_t n)
{
    for (int64_t t = 0; t < n; t += PIECE) {
        call c = {.n = 0};
        const int64_t end = TT_MIN(t + PIECE, n);
        for (int64_t k = t; k < end; k++)
            add_token(&c, sequence, k, slot, sequence == 1 || k == end - 1);
        run_call(p, &c);
        for (int64_t row = 0; row < c.n_pick; row++)
            check_row(p, w, row, sequence, end - c.n_pick + row);
    }
}

/* Computes one more token of every sequence that is not finished, until all are. */
static inline void steps(program *p, want *w, int64_t *at, const int64_t *slot)
{
    for (;;) {
        call c = {.n = 0};
        for (int64_t s = 0; s < SLOTS; s++)
            if (at[s] < LENGTH)
                add_token(&c, s, at[s], slot[s], true);
        if (!c.n)
            return;
        run_call(p, &c);
        for (int64_t s = 0, row = 0; s < SLOTS; s++)
            if (at[s] < LENGTH)
                check_row(p, w, row++, s, at[s]++);
    }
}

static inline void whole_logits(want *w, const char *spec, const char *args, const tt_model_vt *vt,
                                const char *overrides)
{
    program p;
    tt_error err = {0};
    const tt_decode_opts none = {0};
    open_program(&p, spec, args, vt, overrides, TT_MODE_LOGITS, &none);
    w->vocab = p.logits.shape[1];
    assert_int_equal(p.logits.shape[0], LENGTH);
    const size_t bytes = (size_t)(LENGTH * w->vocab) * sizeof(float);
    w->logits = malloc(SLOTS * bytes);
    for (int64_t s = 0; s < SLOTS; s++) {
        if (tt_exec_micro_batches(p.rank.exec, 1, fill_whole, &s, &err) != TT_OK)
            fail_msg("%s", err.text);
        memcpy(w->logits + s * LENGTH * w->vocab, p.logits.data, bytes);
    }
    close_program(&p);
}

static inline void compare(const char *spec, const char *args, const tt_model_vt *vt,
                           const char *overrides, double tolerance)
{
    const tt_decode_opts d = {
        .rows = PIECE, .picked = PIECE, .slots = SLOTS, .length = LENGTH, .cache = cache};
    const int64_t slot[SLOTS] = {2, 0, 1};
    int64_t at[SLOTS] = {1, 300, 17};
    want w = {.tolerance = tolerance, .name = vt ? "a model of the test" : spec};
    program p;
    whole_logits(&w, spec, args, vt, overrides);
    open_program(&p, spec, args, vt, overrides, TT_MODE_DECODE, &d);
    assert_int_equal(p.j.setup.graph->slots, SLOTS);
    assert_int_equal(p.logits.shape[0], PIECE);
    /* what another sequence left in the slots is not seen */
    for (int64_t s = 0; s < SLOTS; s++)
        prompt(&p, &w, s, (slot[s] + 1) % SLOTS, 33);
    for (int64_t s = 0; s < SLOTS; s++)
        prompt(&p, &w, s, slot[s], at[s]);
    steps(&p, &w, at, slot);
    assert_int_equal(w.compared, 3 + 33 + 3 + 1 + 300 + 2 + 3 * LENGTH - 1 - 300 - 17);
    free(w.logits);
    close_program(&p);
}

/* Products that give a row the same bits for any number of rows. */
#define OWN "backend.name cpu backend.blas own backend.f32_products fma"
/* With these a decoded token has the bits that it has in the whole context. */
static const char *const exact_overrides[] = {
    OWN " backend.threads 1",
    OWN " backend.threads 2",
    OWN " backend.isa generic backend.threads 1",
    OWN " debug.disable_fusion true backend.threads 1",
};
/* With these, where sums are in another order, it is within rounding. */
static const char *const near_overrides[] = {
    OWN " backend.threads 1",
    OWN " backend.threads 2",
    OWN " backend.isa generic backend.threads 1",
    OWN " debug.disable_fusion true backend.threads 1",
    OWN " debug.poison true backend.threads 2",
    "backend.name cpu backend.blas openblas backend.threads 1",
    "backend.name reference backend.threads 1",
};

static inline void kept(const char *spec, const char *args, const tt_model_vt *vt, tt_cache c,
                        double bytes, double heads)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = LENGTH, .cache = c};
    program p;
    open_program(&p, spec, args, vt, "backend.name cpu backend.threads 1", TT_MODE_DECODE, &d);
    const tt_graph *g = p.j.setup.graph;
    if (g->kept_bytes != bytes || g->heads_bytes != heads)
        fail_msg("%s: %g bytes per token, of heads %g; expected %g and %g", spec, g->kept_bytes,
                 g->heads_bytes, bytes, heads);
    int64_t total = 0;
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == TT_STATE_MEMORY)
            total += tt_type_numel(&g->states.items[i]->type) * 4;
    assert_int_equal(total, (int64_t)bytes * SLOTS * ((LENGTH + 31) / 32 * 32));
    close_program(&p);
}

#endif
