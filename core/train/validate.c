/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <math.h>

/* Validation: the mean loss per counted token over the same samples each time, each of them once,
 * so that it does not depend on the mesh. A batch has local_batch_size samples per data rank,
 * however a pipeline splits them; if the last batch lacks samples, it is filled up with samples
 * whose labels are ignored. */

/* *stop: whether any rank has seen a stop signal. */
static tt_status add_tokens(tt_loop *l, const tt_batch *b, int64_t *counted, bool *stop,
                            tt_error *err)
{
    int64_t v[2] = {l->rank.counts ? b->counted : 0, tt_loop_stop_signal(l) != 0};
    if (l->rank.dist.vt)
        TT_TRY(l->rank.dist.vt->all_reduce(l->rank.dist.all, v, 2, TT_I64, TT_SUM, err));
    *counted += v[0];
    *stop = v[1] != 0;
    return TT_OK;
}

/* Runs n micro-batches; the stream yields `pieces` of them at a time. *stop: a stop signal
 * interrupted it. */
static tt_status validate_run(tt_loop *l, tt_stream *stream, int64_t n, int64_t pieces,
                              double *loss, int64_t *counted, bool *stop, tt_error *err)
{
    tt_exec *x = l->rank.eval;
    double sum = 0;
    *counted = 0;
    *stop = false;
    const tt_batch *micro = NULL;
    int64_t epoch;
    for (int64_t i = 0; i < n; i++) {
        if (i % pieces == 0)
            TT_TRY(tt_stream_next(stream, &micro, &epoch, err));
        const tt_batch *b = &micro[i % pieces];
        TT_TRY(add_tokens(l, b, counted, stop, err));
        if (*stop)
            return TT_OK;
        tt_feed feed = {b, l->rank.data_rank * l->s->local * l->s->core.training.seq_len,
                        l->s->token_order};
        TT_TRY(tt_exec_micro_batches(x, l->step, tt_feed_fill, &feed, err));
        TT_TRY(tt_exec_epilogue(x, err));
        sum += tt_exec_metric(x, TT_METRIC_LOSS);
    }
    *loss = *counted ? sum / (double)*counted : (double)NAN;
    return TT_OK;
}

tt_status tt_loop_validate(tt_loop *l, tt_error *err)
{
    const tt_setup *s = l->s;
    const tt_dataloader_vt *vt = s->validation_data.component->vtable;
    const tt_model_vt *model = s->model.component->vtable;
    const int64_t here = s->core.training.local_batch_size, pieces = here / s->local;
    const int64_t batch = here * s->data_world, have = vt->n_samples(l->data.validation_loader);
    int64_t n = have / batch + (have % batch != 0), counted = 0;
    double loss = (double)NAN;
    bool stop;
    if (s->core.validation.steps > 0)
        n = TT_MIN(n, s->core.validation.steps);
    const int64_t t0 = tt_now_ns();
    if (l->ctl)
        tt_ctl_set_state(l->ctl, "validating");
    tt_order order = s->validation_order;
    order.n_samples = have;
    const tt_stream_opts o = {
        .loader = vt,
        .loader_self = l->data.validation_loader,
        .loader_name = s->validation_data.name,
        .order = order,
        .seq_len = s->core.training.seq_len,
        .local = s->local,
        .micro_batches = pieces,
        .global_batch = batch,
        .data_rank = l->rank.data_rank,
        .inputs = &s->inputs,
        .one_segment = tt_setup_one_segment(&s->validation_data),
        .data_world = s->data_world,
        .n_steps = n,
        .once = true,
        .vocab_size = model->vocab_size(s->model.config),
    };
    tt_stream *stream;
    TT_TRY(tt_stream_new(&o, &stream, err));
    const tt_status st = validate_run(l, stream, n * pieces, pieces, &loss, &counted, &stop, err);
    tt_stream_free(stream);
    l->t.validation += tt_seconds_since(t0);
    if (l->ctl)
        tt_ctl_set_state(l->ctl, "training");
    if (st != TT_OK || stop)
        return st;
    l->validation_due = false;
    if (l->ctl)
        tt_ctl_answer(l->ctl, TT_CTL_VALIDATE, TT_OK,
                      "step %lld: validation loss %.5f over %lld tokens", (long long)l->step, loss,
                      (long long)counted);
    return l->main ? tt_loop_log_validation(l, loss, counted, err) : TT_OK;
}
