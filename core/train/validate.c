/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include "train/reference.h"
#include <math.h>

/* Validation: the mean loss per counted token over the same samples each time, each of them once,
 * so that it does not depend on the mesh. A batch has validation.local_batch_size samples per data
 * rank, however a pipeline splits them; if the last batch lacks samples, it is filled up with samples
 * whose labels are ignored. */

/* *stop: whether any rank has seen a stop signal. */
static tt_status add_tokens(tt_loop *l, const tt_batch *b, tt_validated *out, bool *stop,
                            tt_error *err)
{
    int64_t v[2] = {l->rank.counts ? b->counted : 0, tt_loop_stop_signal(l) != 0};
    double weight = l->rank.counts ? b->weight : 0;
    TT_TRY(tt_dist_reduce(&l->rank.dist, v, 2, TT_I64, TT_SUM, err));
    if (l->s->loss_weights)
        TT_TRY(tt_dist_reduce(&l->rank.dist, &weight, 1, TT_F64, TT_SUM, err));
    out->tokens += v[0];
    out->weight += l->s->loss_weights ? weight : (double)v[0];
    *stop = v[1] != 0;
    return TT_OK;
}

/* Runs n micro-batches; the stream yields `pieces` of them at a time. *stop: a stop signal
 * interrupted it. */
static tt_status validate_run(tt_loop *l, tt_stream *stream, int64_t n, int64_t pieces,
                              tt_validated *out, bool *stop, tt_error *err)
{
    const tt_setup *s = l->s;
    tt_exec *x = l->rank.eval;
    const bool same = s->eval_local == s->local && s->eval_seq_len == s->core.training.seq_len;
    const tt_batch *micro = NULL;
    int64_t epoch;
    for (int64_t i = 0; i < n; i++) {
        if (i % pieces == 0)
            TT_TRY(tt_stream_next(stream, &micro, &epoch, err));
        const tt_batch *b = &micro[i % pieces];
        TT_TRY(tt_loop_save_meanwhile(l, err));
        TT_TRY(add_tokens(l, b, out, stop, err));
        if (*stop)
            return TT_OK;
        /* the order of tokens is made for the batches of the training; any other order will do */
        tt_feed feed = {b, l->rank.data_rank * s->eval_local * s->eval_seq_len,
                        same ? s->token_order : NULL, 0};
        TT_TRY(tt_exec_micro_batches(x, l->step, tt_feed_fill, &feed, err));
        TT_TRY(tt_exec_epilogue(x, err));
        out->sum += tt_exec_metric(x, TT_METRIC_LOSS);
    }
    return TT_OK;
}

static tt_status validate_set(tt_loop *l, int set, tt_validated *out, bool *stop, tt_error *err)
{
    const tt_setup *s = l->s;
    const tt_validation_set *v = &s->validation[set];
    const tt_dataloader_vt *vt = v->data.component->vtable;
    const tt_model_vt *model = s->model.component->vtable;
    const int64_t pieces = s->eval_batch / s->eval_local, batch = s->eval_batch * s->data_world;
    tt_order order = v->order;
    order.n_samples = vt->n_samples(l->data.validation[set]);
    int64_t n = order.n_samples / batch + (order.n_samples % batch != 0);
    if (s->core.validation.steps > 0)
        n = TT_MIN(n, s->core.validation.steps);
    const tt_stream_opts o = {
        .loader = vt,
        .loader_self = l->data.validation[set],
        .loader_name = v->data.name,
        .order = order,
        .seq_len = s->eval_seq_len,
        .local = s->eval_local,
        .micro_batches = pieces,
        .global_batch = batch,
        .data_rank = l->rank.data_rank,
        .inputs = &s->inputs,
        .reference = tt_loop_reference(l, set),
        .reference_input = s->reference_input,
        .weights = s->loss_weights,
        .one_segment = tt_setup_one_segment(&v->data),
        .data_world = s->data_world,
        .n_steps = n,
        .by_epoch = true,
        .vocab_size = model->vocab_size(s->model.config),
    };
    tt_stream *stream;
    TT_TRY(tt_stream_new(&o, &stream, err));
    const tt_status st = validate_run(l, stream, n * pieces, pieces, out, stop, err);
    tt_stream_free(stream);
    if (st != TT_OK && v->name)
        tt_error_context(err, "%s", v->section);
    return st;
}

static tt_status validate_all(tt_loop *l, tt_validated *all, tt_validated *sets, bool *stop,
                              tt_error *err)
{
    for (int i = 0; i < l->s->n_validation && !*stop; i++) {
        TT_TRY(validate_set(l, i, &sets[i], stop, err));
        all->sum += sets[i].sum;
        all->weight += sets[i].weight;
        all->tokens += sets[i].tokens;
    }
    return TT_OK;
}

tt_status tt_loop_validate(tt_loop *l, tt_error *err)
{
    tt_validated all = {0}, sets[TT_MAX_PARTS] = {{0}};
    bool stop = false;
    const int64_t t0 = tt_now_ns();
    if (l->ctl)
        tt_ctl_set_state(l->ctl, "validating");
    const tt_status st = validate_all(l, &all, sets, &stop, err);
    l->t.validation += tt_seconds_since(t0);
    if (l->ctl)
        tt_ctl_set_state(l->ctl, "training");
    if (st != TT_OK || stop)
        return st;
    l->validation_due = false;
    if (l->ctl)
        tt_ctl_answer(l->ctl, TT_CTL_VALIDATE, TT_OK,
                      "step %lld: validation loss %.5f over %lld tokens", (long long)l->step,
                      tt_validated_loss(&all), (long long)all.tokens);
    if (l->main)
        TT_TRY(tt_loop_log_validation(l, &all, sets, err));
    return tt_loop_note_early(l, tt_validated_loss(&all), err);
}
