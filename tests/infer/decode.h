/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_INFER_DECODE_H
#define TT_TESTS_INFER_DECODE_H
#include "exec/job.h"
#include <math.h>

/* Programs that decode, of small models with odd sizes. */

#define SLOTS 3
#define PIECE 16
#define LENGTH 330 /* more than one block of keys */

static tt_cache cache; /* of all programs; a test that changes it sets it back to TT_CACHE_AUTO */
static const tt_op_def *const *more_ops; /* that the models may use, too */
static size_t n_more_ops;

#define LLAMA3_ARGS                                                                                \
    "{\"dim\":48,\"n_layers\":3,\"n_heads\":6,\"n_kv_heads\":2,\"hidden_dim\":70,"                 \
    "\"vocab_size\":263}"

static inline int64_t vocab(const void *cfg)
{
    (void)cfg;
    return 263;
}

/* A sum along sequences, which a reshape split off: it has no incremental form. */
static inline void describe_sums(const void *cfg, tt_builder *b)
{
    const tt_dim V = TT_DIM(263, "vocab"), D = TT_DIM(24, "embed");
    (void)cfg;
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", V, D, NULL);
    const tt_dim T = tt_value_type(x)->dims[0], joined[2] = {T, D},
                 apart[3] = {TT_DIM(T.lines, NULL), TT_DIM(T.size / T.lines, NULL), D};
    tt_value *sums = tt_cumsum(b, tt_reshape(b, x, apart, 3), 1, NULL);
    x = tt_add(b, x, tt_reshape(b, sums, joined, 2));
    tt_output(b, "logits", tt_linear(b, x, "head", V, NULL));
}

static const tt_model_vt sums_vt = {sizeof sums_vt, NULL,  0,    NULL,
                                    describe_sums,  vocab, NULL, NULL};

typedef struct program {
    job j;
    tt_component model;
    tt_rank rank;
    tt_tensor logits;
} program;

/* vt: the model to use instead of the spec's. */
static inline void open_program(program *p, const char *spec, const char *args,
                                const tt_model_vt *vt, const char *overrides, tt_mode mode,
                                const tt_decode_opts *d)
{
    char text[1024], all[1024];
    const tt_setup_opts parts = {.mode = mode};
    const tt_setup_opts whole = {.mode = mode, .decode = *d};
    const tt_dist one = {.world = 1};
    tt_error err = {0};
    memset(p, 0, sizeof *p);
    tt_log_setup(TT_ERROR, 0, 1, false);
    snprintf(text, sizeof text,
             "{\"spec\":\"%s\",\"model\":{\"flavor\":\"debugmodel\",\"args\":%s},"
             "\"training\":{\"local_batch_size\":1,\"seq_len\":%d},\"dataloader\":{\"name\":"
             "\"text\"}}",
             spec, args ? args : "{}", LENGTH);
    snprintf(all, sizeof all, "%s", overrides);
    tt_setup_opts with_data = parts;
    with_data.data = true;
    if (job_try(&p->j, text, all, &with_data, &err) != TT_OK)
        fail_msg("%s: %s", spec, err.text);
    tt_setup *s = &p->j.setup;
    if (vt) {
        p->model = *s->model.component;
        p->model.vtable = vt;
        s->model.component = &p->model;
    }
    s->ops.extra = more_ops;
    s->ops.n_extra = n_more_ops;
    if (tt_setup_compile(s, &whole, &err) != TT_OK ||
        tt_rank_open(s, &one, false, &p->rank, &err) != TT_OK ||
        tt_exec_state_tensor(p->rank.exec, TT_METRIC_LOGITS, &p->logits, &err) != TT_OK)
        fail_msg("%s %s: %s", spec, overrides, err.text);
    assert_int_equal(tt_rank_init_params(&p->rank, &err), TT_OK);
}

static inline void close_program(program *p)
{
    tt_rank_close(&p->rank);
    job_close(&p->j);
}

static inline int32_t token(int64_t sequence, int64_t pos)
{
    return (int32_t)((pos * 7919 + sequence * 104729 + pos * pos % 31) % 263);
}

#endif
